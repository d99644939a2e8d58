"""What fairseq's ``setup.py`` takes from ``torch.utils.cpp_extension``."""

from setuptools import Extension
from setuptools.command.build_ext import build_ext


class CppExtension(Extension):
    """An extension that needs torch: left out."""


class BuildExtension(build_ext):
    """Builds the other extensions: two Cython modules, and the counts of BLEU."""

    def finalize_options(self):
        extensions = self.distribution.ext_modules
        self.distribution.ext_modules = [e for e in extensions if not isinstance(e, CppExtension)]
        super().finalize_options()
