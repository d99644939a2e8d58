"""``fairseq-doc --version``: the information that a bug report needs."""

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path

import fairseq_doc
from fairseq_doc import installation
from fairseq_doc.errors import FairseqDocError


class VersionAction(argparse.Action):
    """The action of ``--version``, which prints the report and exits."""

    def __init__(self, option_strings, dest, **settings):
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, **settings)

    def __call__(self, parser, namespace, values, option_string=None):
        print("\n".join(f"{name}: {value}" for name, value in report().items()))
        parser.exit()


def report() -> dict[str, str]:
    """The parts of the installation, even if they are missing or unusable."""
    providers = " and ".join(installation.distributions_of("fairseq"))
    folder = installation.folder_of("fairseq")
    rows = {
        "fairseq_doc": f"{fairseq_doc.__version__}, {Path(fairseq_doc.__file__).resolve().parent}",
        "Python": f"{platform.python_version()}, {platform.platform()}",
        "fairseq": f"{providers or 'no distribution'}, {folder or 'no package'}",
        "numpy": _version("numpy"),
        **_torch_rows(),
    }
    try:
        installation.check()
    except FairseqDocError as error:
        rows["problem"] = str(error)
    return rows


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _torch_rows() -> dict[str, str]:
    try:
        import torch

        from fairseq_doc.ops import matmul, processor

        matmul.check_environment()
    except Exception as error:  # a damaged torch raises errors other than ImportError
        return {"torch": f"{_version('torch')}; {error}"}
    gpus = map(torch.cuda.get_device_name, range(torch.cuda.device_count()))
    bfloat16 = "faster" if matmul.has_fast_bfloat16("cpu") else "not faster"
    return {
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "processor": f"{processor.description()}, {os.cpu_count()} cores",
        "matrix products": f"{matmul.backend()}; bfloat16 is {bfloat16} on the processor",
        "GPU": ", ".join(gpus) or "none",
    }
