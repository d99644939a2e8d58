"""Checks that Python, torch and fairseq can be used; imports neither torch nor fairseq.

The package ``fairseq`` comes from ``fairseq-fixed``, ``ve-fairseq`` or ``fairseq`` itself, often an
editable checkout; any version 0.12 works. If two of them are installed, they overwrite each other's
files without pip noticing.
"""

import importlib.util
import logging
import re
import sys
from importlib import metadata
from pathlib import Path

from fairseq_doc.errors import FairseqDocError

logger = logging.getLogger(__name__)

# fairseq reads its dataclasses' types as Python up to 3.13 prints them: 3.14 prints X | None.
FIRST_PYTHON_WITHOUT_FAIRSEQ = (3, 14)
# The first torch whose default is not to run code from a checkpoint, except for allowed types.
LOWEST_TORCH = (2, 6)
FAIRSEQ = (0, 12)


def distributions_of(package: str) -> list[str]:
    """The installed distributions that provide a package, each as name and version, sorted."""
    found = {
        f"{distribution.name} {distribution.version}"
        for distribution in metadata.distributions()
        if package in (distribution.read_text("top_level.txt") or "").split()
    }
    return sorted(found)


def folder_of(package: str) -> Path | None:
    """A package's folder; None without the package, or if only an empty folder is left of it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def check() -> None:
    """Raise ``FairseqDocError`` unless Python, torch and fairseq can be used; an untested version
    of fairseq only gives a warning."""
    if sys.version_info >= FIRST_PYTHON_WITHOUT_FAIRSEQ:
        raise FairseqDocError(
            f"expected Python 3.10 to 3.13; got {sys.version.split()[0]}, which cannot import "
            "fairseq"
        )
    if folder_of("torch") is None:
        raise FairseqDocError("expected torch; got none: pip install torch")
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:  # not installed by pip
        version = None
    if version is not None and _numbers(version) < LOWEST_TORCH:
        lowest = ".".join(map(str, LOWEST_TORCH))
        raise FairseqDocError(
            f"expected torch {lowest} or newer; got {version}: pip install --upgrade torch"
        )
    _check_fairseq(distributions_of("fairseq"), folder_of("fairseq"))


def _check_fairseq(providers: list[str], folder: Path | None) -> None:
    if folder is None:  # files can be missing where another distribution was removed
        force = " --force-reinstall --no-deps" if providers else ""
        raise FairseqDocError(
            f"expected fairseq 0.12; got none: pip install{force} fairseq-fixed (in a checkout, "
            "faster: scripts/install_fairseq.sh python)"
        )
    if len(providers) > 1:
        names = " ".join(provider.split()[0] for provider in providers)
        logger.warning(
            f"expected one distribution of fairseq; got {' and '.join(providers)}, which overwrite "
            f"each other's files: pip uninstall {names}, then install one of them"
        )
    if not providers and (folder / "version.txt").exists():  # a checkout on the path
        providers = [f"fairseq {(folder / 'version.txt').read_text().strip()}"]
    for provider in providers:
        name, _, version = provider.partition(" ")
        problem = f"expected fairseq 0.12; got {provider}"
        if _numbers(version) < FAIRSEQ:
            raise FairseqDocError(f"{problem}: pip uninstall {name}, pip install fairseq-fixed")
        if _numbers(version) > FAIRSEQ:
            logger.warning(f"{problem}, which is untested")


def _numbers(version: str) -> tuple[int, ...]:
    """``2.6.0+cpu`` -> (2, 6)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
