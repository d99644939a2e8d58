"""Commands in processes of their own, without the seconds of their imports.

The server is one process that imports torch and fairseq once and forks for every command. The child takes over
the client's folder, environment and standard streams, and runs the command as its console script would: the
package is imported after ``sys.argv`` is set. ``ForkServer`` is the client for tests. The files in
``ForkServer.programs`` are clients for shell scripts, which find them in ``PATH``, and for programs that start
trainings; they pass SIGTERM on:

    python tests/fork_server.py SOCKET NAME ARGUMENTS...

A command is killed if its client ends first.
"""

import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
TIMEOUT = 600  # seconds of a command, which is killed then
PROGRAMS = "train generate interactive eval-lm validate preprocess score doc".split()

# What the commands import besides fairseq, and nothing of this package.
WARM = """torch torch._dynamo fairseq fairseq.tasks fairseq.models fairseq.criterions fairseq.optim
    fairseq.optim.lr_scheduler fairseq.trainer fairseq.options fairseq.data.encoders
    fairseq.sequence_generator fairseq.sequence_scorer fairseq.dataclass.initialize hydra scipy.linalg
    matplotlib.figure matplotlib.backends.backend_agg sacrebleu rouge_score.rouge_scorer sacremoses
    subword_nmt.apply_bpe subword_nmt.learn_bpe sentencepiece""".split()


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    words: list[str]  # its command line
    status: int  # minus the signal that ended it
    out: str
    err: str
    left_processes: bool


class ForkServer:
    """Runs commands; a context manager. ``programs`` is a folder of programs ``fairseq-train`` and so on."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()  # short, as a socket's path is
        self._socket = f"{self._folder.name}/socket"
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve", self._socket],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=_environment(),
            cwd="/",
        )
        assert self._process.stdout.readline() == b"ready\n", "the fork server ended"
        self.programs = Path(self._folder.name, "programs")
        self.programs.mkdir()
        for name in PROGRAMS:
            program = self.programs / f"fairseq-{name}"
            client = f'"{sys.executable}" -I -S "{__file__}" "{self._socket}" {program.name}'
            program.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
            program.chmod(0o755)
        return self

    def __exit__(self, *error):
        self._process.terminate()
        self._process.wait(timeout=60)
        self._folder.cleanup()

    def run(self, words, folder, **settings):
        """Run a command to its end; the :class:`Result`. See :meth:`start`."""
        return self.start(words, folder, **settings).wait()

    def start(self, words, folder, streams=None, before="", **environment):
        """Start a command line, a list or a string whose first word is a console script, in a folder.

        Args:
            streams: folder for the files of its output; ``FOLDER.streams`` by default.
            before: Python that the child executes first.
        """
        streams = Path(streams or f"{folder}.streams")
        streams.mkdir(exist_ok=True)
        words = shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
        request = {
            "words": words,
            "folder": str(folder),
            "environment": _environment(**environment),
            "before": before,
        }
        with (
            open(os.devnull) as zero,
            open(streams / "out", "w") as one,
            open(streams / "err", "w") as two,
        ):
            answers = send(self._socket, request, [zero.fileno(), one.fileno(), two.fileno()])
        return Running(words, streams, answers)


def _environment(**changes):
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return {**os.environ, **own, **changes}


def send(path, request, streams):
    """Have a server run a command; the file of its two answers, the process and its end."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        message = json.dumps(request).encode()
        socket.send_fds(connection, [len(message).to_bytes(8, "big")], streams)
        connection.sendall(message)
        return connection.makefile()


class Running:
    """A command that was started."""

    def __init__(self, words, streams, answers):
        self.words, self.streams, self._answers = words, streams, answers
        self.pid = json.loads(answers.readline())["pid"]

    @functools.cache  # noqa: B019
    def wait(self):
        """Its :class:`Result`."""
        with self._answers:
            ended = json.loads(self._answers.readline())
        return Result(self.words, out=self.output(), err=self.output("err"), **ended)

    def kill(self, number=signal.SIGKILL):
        """Send it a signal."""
        kill(self.pid, number)

    def output(self, stream="out"):
        """What it has written to standard output, or to ``err``, so far."""
        return (self.streams / stream).read_text("utf-8", "backslashreplace")


def kill(pid, number):
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def call(path, words):
    """Have a server run a command on this process's standard streams; its exit status."""
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "before": ""}
    with send(path, request, [0, 1, 2]) as answers:
        pid = json.loads(answers.readline())["pid"]
        signal.signal(signal.SIGTERM, lambda number, _: kill(pid, number))
        status = json.loads(answers.readline())["status"]
    return status if status >= 0 else 128 - status  # as a shell has it


# The server


def serve(path):
    """Answer requests, each in a process of its own; returns in a command's process only, with the
    request and what says that it is ready."""
    logging.root.addHandler(logging.NullHandler())
    for module in WARM:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that a child's collections leave the shared pages shared
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait
    print("ready", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            break
        connection.close()
    server.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, streams, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as lines:
        request = json.loads(lines.read(int.from_bytes(length, "big")))
    ready, starting = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request, starting
    for stream in (0, 1, 2, starting, *streams):  # so that a pipe ends when the command ends
        os.close(stream)
    os.read(ready, 1)  # ends when the child is what a shell would have started, or is gone
    with contextlib.suppress(BrokenPipeError), connection.makefile("w") as answers:
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        print(json.dumps(wait_for(pid, connection)), file=answers)
    os._exit(0)


def wait_for(pid, client):
    """Wait for a child while its client waits, and kill what it left behind."""
    handle, poll = os.pidfd_open(pid), select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(client, 0)  # its end
    if handle not in dict(poll.poll(1000 * TIMEOUT)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    try:
        os.killpg(pid, signal.SIGKILL)
        left_processes = True
    except ProcessLookupError:
        left_processes = False
    return {"status": os.waitstatus_to_exitcode(status), "left_processes": left_processes}


def become(request):
    """Make this process what a shell starts for the command; the function that its script calls."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    name, *words = request["words"]
    sys.argv[:] = [str(BIN / name), *words]
    sys.path[0] = str(BIN)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    exec(request["before"], {})
    if name == "python":
        return functools.partial(exec, words[1], {"__name__": "__main__"})
    if name == "fairseq-doc":
        return importlib.import_module("fairseq_doc.cli.main").main
    module = name.removeprefix("fairseq-").replace("-", "_")
    return importlib.import_module(f"fairseq_cli.{module}").cli_main


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        sys.exit(call(sys.argv[1], sys.argv[2:]))
    found, starting = serve(sys.argv[2])
    main = become(found)
    os.close(starting)
    sys.exit(main())
