"""Commands report Ctrl-C and errors that the user can correct in one line.

fairseq prints a traceback for every exception. The hook prints ``FairseqDocError`` and the errors
listed here as one line, but only in fairseq's commands: other programs may have their own hook.
"""

import argparse
import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from traceback import walk_tb
from types import TracebackType

from fairseq import options, registry
from torch.distributed import DistNetworkError, DistStoreError
from torch.multiprocessing import ProcessRaisedException

from fairseq_doc.errors import FairseqDocError, causes, first_usage_error, interruption, shown
from fairseq_doc.interruptions import how_it_ended, runs_a_command
from fairseq_doc.options import with_flags

# {beginning of a message of fairseq: text to add}
_OF_FAIRSEQ = {
    "Must specify batch size": "; language models of this package need --batch-size",
    "optimizer is required!": " give --optimizer, such as adam; for a language model of this "
    "package, nt_asgd with --lr-scheduler nt_asgd",
    "Could not infer language pair": "; for a language model give --task bptt_language_modeling, "
    "or sample text from it by fairseq-doc generate",
    "--replace-unk requires": "; leave it out: fairseq 0.12 does not store the alignment",
    "AdaptiveLoss is not compatible": "; models of this package have no adaptive softmax: give "
    "--criterion doc_cross_entropy",
    "Model file not found": "",
    "Optimizer does not match": ", since the checkpoint is of another training; or give another "
    "--save-dir",
    "Criterion does not match": ", since the checkpoint is of another training; or give another "
    "--save-dir",
    "--finetune-from-model": "",
    "Interpolation key 'task.": ": --task bptt_language_modeling needs an architecture that carries "
    "its state, such as lstm_doc_lm",
    "Dataset not found": "",
    "Size of sample": ", or give --max-source-positions and --max-target-positions",
}
_REFUSED = (errno.EROFS, errno.EACCES, errno.ENOSPC)  # of files that cannot be opened
LONGEST = 500  # maximum number of characters of fairseq's message


def apply() -> None:
    """Install the hook if this process runs one of fairseq's commands."""
    if runs_a_command(sys.argv):
        print_usage_errors_in_one_line()
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else hydra prints a traceback and exits


def print_usage_errors_in_one_line() -> None:
    """Install the hook. The exit status stays 1, or that of SIGINT after Ctrl-C."""
    previous = sys.excepthook

    def hook(kind, error, traceback):
        ended = interruption(error)
        if isinstance(ended, KeyboardInterrupt):
            print(how_it_ended("interrupted"), file=sys.stderr)
            if ended is not error:
                raise SystemExit(128 + signal.SIGINT)
        elif ended is not None:
            raise ended
        elif message := message_of(error, traceback):
            print(f"fairseq_doc: error: {message}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    sys.excepthook = hook


def message_of(error: BaseException, traceback: TracebackType | None = None) -> str | None:
    """The line for an error that the user can correct, or None."""
    usage_error = first_usage_error(error)
    if usage_error is not None:
        return with_flags(usage_error)
    text = str(error)
    if isinstance(error, ProcessRaisedException):  # a worker's traceback as text
        if found := re.search(r"^fairseq_doc\.[\w.]+Error: (.*)", text, re.M):
            return found[1]
        text = text.strip().rpartition("\n")[2].partition(": ")[2]
    text = " ".join(text.split())
    for beginning, advice in _OF_FAIRSEQ.items():
        if text.startswith(beginning):
            return text[:LONGEST].rstrip(".") + advice
    for part in causes(error):
        of_gloo = isinstance(part, RuntimeError) and "gloo/transport" in str(part)
        if isinstance(part, OSError) and part.errno in _REFUSED and part.filename:
            return f"cannot open {part.filename}: {part.strerror}"
        if of_gloo or isinstance(part, DistNetworkError | DistStoreError):
            got = shown(" ".join(str(part).split()), 200)
            return f"another worker ended or did not start in time; see its output ({got})"
    files = [frame.f_code.co_filename for frame, _ in walk_tb(traceback)]
    if files[-1:] == [options.__file__] and isinstance(error, RuntimeError):
        return "expected --arch, such as lstm_doc_lm or lstm_luong_doc; got none"
    return None


def check_settings_file(argv: Sequence[str]) -> None:
    """Raise ``FairseqDocError`` if fairseq-hydra-train would ignore a missing YAML file."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    given = parser.parse_known_args(argv[1:])[0]
    if not given.config_name or not given.config_dir:
        return
    name = given.config_name.removesuffix(".yaml") + ".yaml"
    folders = (given.config_dir, os.path.join(os.path.dirname(registry.__file__), "config"))
    if not any(os.path.isfile(os.path.join(folder, name)) for folder in folders):
        raise FairseqDocError(
            f"{os.path.join(given.config_dir, name)} does not exist: --config-dir and --config-name "
            "must name a YAML file of settings"
        )
