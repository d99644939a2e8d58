"""Package definition. Every dependency is pinned to a range that was run."""

from setuptools import find_packages, setup

setup(
    name="fairseq_doc",
    version="0.3.0",
    description="Direct Output Connection (EMNLP 2018) as a fairseq plugin",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["fairseq_doc", "fairseq_doc.*"]),
    entry_points={"console_scripts": ["fairseq-doc=fairseq_doc.cli.main:main"]},
    python_requires=">=3.11,<3.13",
    install_requires=[
        # fairseq 0.12.2 of the registry imports on no Python of today; this is the same code, mended.
        "fairseq-fixed==0.12.3.1",
        "torch>=2.13,<2.14",
        "numpy>=2.4,<2.5",
        "scipy>=1.17,<1.18",
        "omegaconf>=2.3,<2.4",
        "matplotlib>=3.11,<3.12",
        "tensorboard>=2.21,<2.22",
        # Text of translation: tokenised, split into subwords, scored.
        "sacremoses>=0.1.1,<0.2",
        "subword-nmt>=0.3.8,<0.4",
        "sentencepiece>=0.2.3,<0.3",
        "sacrebleu>=2.6,<2.7",
        "rouge-score>=0.1.2,<0.2",
    ],
    extras_require={
        "dev": [
            "pytest>=9.2,<9.3",
            "pytest-xdist>=3.8,<3.9",
            "hypothesis>=6.170,<6.171",
            "ruff>=0.17.5,<0.18",
        ],
    },
)
