"""Checks that torch and fairseq can be used; imports neither.

The package ``fairseq`` comes from ``fairseq-fixed``, ``ve-fairseq`` or ``fairseq`` itself, often an
editable checkout; any 0.12 version works. If two of them are installed, they overwrite each other's
files without pip noticing.
"""

import importlib.util
import logging
import re
from importlib import metadata
from pathlib import Path

from fairseq_doc.errors import FairseqDocError

logger = logging.getLogger(__name__)

# The first torch that by default loads only allowed types from a checkpoint and runs no code.
LOWEST_TORCH = (2, 6)
FAIRSEQ = (0, 12)
INSTALL = "pip install fairseq-fixed (in a checkout, faster: scripts/install_fairseq.sh python)"


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
    """Raise ``FairseqDocError`` unless torch and fairseq can be used; an untested version of fairseq
    only gives a warning."""
    if folder_of("torch") is None:
        raise FairseqDocError("expected torch; got none: pip install torch")
    for provider in distributions_of("torch"):
        if _numbers(provider) < LOWEST_TORCH:
            lowest = ".".join(map(str, LOWEST_TORCH))
            raise FairseqDocError(
                f"expected torch {lowest} or newer; got {provider}: pip install --upgrade torch"
            )
    folder, providers = folder_of("fairseq"), distributions_of("fairseq")
    if folder is None:
        raise FairseqDocError(f"expected fairseq 0.12; got none: {INSTALL}")
    if len(providers) > 1:
        logger.warning(
            f"expected one distribution of fairseq; got {' and '.join(providers)}, which overwrite "
            "each other's files: pip uninstall both, then install one of them"
        )
    if not providers and (folder / "version.txt").exists():  # a checkout on the path
        providers = [f"fairseq {(folder / 'version.txt').read_text().strip()}"]
    for provider in providers:
        problem = f"expected fairseq 0.12; got {provider}"
        if _numbers(provider) < FAIRSEQ:
            raise FairseqDocError(f"{problem}: pip uninstall {provider.split()[0]}, then {INSTALL}")
        if _numbers(provider) > FAIRSEQ:
            logger.warning(f"{problem}, which is untested")


def _numbers(provider: str) -> tuple[int, ...]:
    """``torch 2.6.0+cpu`` -> (2, 6)."""
    return tuple(int(number) for number in re.findall(r"\d+", provider.split()[1])[:2])
