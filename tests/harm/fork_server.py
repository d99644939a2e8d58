"""Commands in processes of their own, without the seconds of their imports.

The server is one process that imports torch and fairseq once and forks for every command. The child sets its
limits, redirects its standard streams to files, and runs the command as its console script would: the
package is imported after ``sys.argv`` is set, and errors go through ``sys.excepthook``. ``ForkServer``
is the client.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TIMEOUT = 60  # seconds of a command

# What the commands import besides fairseq, and nothing of this package.
WARM = """torch fairseq fairseq.tasks fairseq.models fairseq.criterions fairseq.optim
    fairseq.optim.lr_scheduler fairseq.trainer fairseq.options fairseq.data.encoders
    fairseq.sequence_generator fairseq.sequence_scorer fairseq.dataclass.initialize hydra scipy.linalg
    matplotlib.figure matplotlib.backends.backend_agg sacrebleu rouge_score.rouge_scorer sacremoses
    subword_nmt.apply_bpe subword_nmt.learn_bpe sentencepiece""".split()


@dataclass(frozen=True)
class Result:
    """How a command ended.

    Attributes:
        words: its command line.
        status: its exit status; minus the signal that ended it.
        out, err: its standard output and standard error.
        memory: the most bytes it held in memory.
        seconds: how long it ran, without its imports.
        timed_out: whether it was ended because it took too long.
        left_processes: whether it left processes behind.
    """

    words: list[str]
    status: int
    out: str
    err: str
    memory: int
    seconds: float
    timed_out: bool
    left_processes: bool


class ForkServer:
    """Runs commands, one at a time; a context manager."""

    def __enter__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd="/",
        )
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def run(self, words, folder, **settings):
        """Run a command to its end; the :class:`Result`. See :meth:`start`."""
        return self.start(words, folder, **settings).wait()

    def start(
        self,
        words,
        folder,
        stdin=None,
        timeout=TIMEOUT,
        limits=None,
        before=None,
        full_exit=False,
        **more,
    ):
        """Start a command.

        Args:
            words: the command line; the first word is the name of a console script.
            folder: where it runs.
            stdin: file that it reads as standard input; None for an empty one.
            timeout: seconds after which it is killed.
            limits: {name in ``resource``: number}.
            before: Python that the child executes first.
            full_exit: let Python end as always, which takes 0.3 seconds, instead of running only what
                is registered for the exit and the destructors of what the command made.
            more: changes of the environment.
        """
        streams = Path(f"{folder}.streams")
        streams.mkdir(exist_ok=True)
        request = {
            "words": [str(word) for word in words],
            "folder": str(folder),
            "stdin": str(stdin or os.devnull),
            "out": str(streams / "out"),
            "err": str(streams / "err"),
            "timeout": timeout,
            "limits": limits or {},
            "before": before or "",
            "full_exit": full_exit,
            "environment": more,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Running(request, self._answer()["pid"], self._answer)

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, "the fork server ended"
        return json.loads(line)


class Running:
    """A command that was started."""

    def __init__(self, request, pid, answer):
        self.request, self.pid = request, pid
        self._answer = answer

    @functools.cache  # noqa: B019
    def wait(self):
        """Its :class:`Result`."""
        ended = self._answer()
        out, err = (
            Path(self.request[name]).read_text("utf-8", "backslashreplace")
            for name in ("out", "err")
        )
        return Result(self.request["words"], out=out, err=err, **ended)

    def kill(self, number=signal.SIGKILL):
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def output(self):
        """What it has written to standard output so far."""
        return Path(self.request["out"]).read_text("utf-8", "backslashreplace")


# The server


def warm_up():
    """Import what the commands import."""
    logging.root.addHandler(logging.NullHandler())
    for module in WARM:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that a child's collections leave the shared pages shared


def serve():
    """Answer requests; returns in a child only, with what it is to run, and at the end with None."""
    warm_up()
    requests, answers = os.dup(0), os.dup(1)
    for number in (0, 1):  # nothing but answers goes to the client
        os.dup2(os.open(os.devnull, os.O_RDWR), number)
    with os.fdopen(requests) as lines, os.fdopen(answers, "w", buffering=1) as replies:
        for line in lines:
            request = json.loads(line)
            ready, starting = os.pipe()
            pid = os.fork()
            if pid == 0:
                for number in (lines.fileno(), replies.fileno(), ready):
                    os.close(number)
                lines.close = replies.close = lambda: None
                return request, starting
            os.close(starting)
            os.read(ready, 1)  # ends when the child is what a shell would have started, or is gone
            os.close(ready)
            start = time.monotonic()
            print(json.dumps({"pid": pid}), file=replies)
            ended = wait_for(pid, request["timeout"])
            ended["seconds"] = time.monotonic() - start
            print(json.dumps(ended), file=replies)
    return None, None


def wait_for(pid, timeout):
    """Wait for a child, and kill what it left behind."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    timed_out = not poll.poll(1000 * timeout)
    if timed_out:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os.close(handle)
    _, status, usage = os.wait4(pid, 0)
    left = True
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        left = False
    return {
        "status": os.waitstatus_to_exitcode(status),
        "memory": usage.ru_maxrss * 1024,
        "timed_out": timed_out,
        "left_processes": left,
    }


def become(request):
    """Make this process what a shell starts for the command; the function to run."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path, mode in (
        (0, request["stdin"], os.O_RDONLY),
        (1, request["out"], flags),
        (2, request["err"], flags),
    ):
        file = os.open(path, mode, 0o666)
        os.dup2(file, number)
        os.close(file)
    for name, limit in request["limits"].items():
        # the second number kills, where the first is only a signal
        resource.setrlimit(getattr(resource, name), (limit, limit + (name == "RLIMIT_CPU")))
    return entry_point(request["words"], request["before"])


def entry_point(words, before=""):
    """What the console script of a command line calls, with this process as the script would find it."""
    name, *words = words
    sys.argv[:] = [str(BIN / name), *words]
    sys.path[0] = str(BIN)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    exec(before, {})
    if name == "python":
        return functools.partial(exec, words[1], {"__name__": "__main__"})
    if name == "fairseq-doc":
        return importlib.import_module("fairseq_doc.cli.main").main
    module = name.removeprefix("fairseq-").replace("-", "_")
    return importlib.import_module(f"fairseq_cli.{module}").cli_main


def end_soon(main):
    """Run a function and end the process as Python would, without taking its modules apart."""
    status = 0
    try:
        status = main()
    except SystemExit as exit_:
        status = exit_.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        kind, error, trace = sys.exc_info()
        if kind is KeyboardInterrupt:
            raise  # Python ends itself by the signal
        sys.excepthook(kind, error, trace)
        status = 1
        del error, trace
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    found, starting = serve()
    if found is not None:
        main = become(found)
        os.close(starting)
        if found["full_exit"]:
            sys.exit(main())
        end_soon(main)
