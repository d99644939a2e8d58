"""Commands in processes of their own, without the seconds of their imports.

The server is one process that imports torch and fairseq once and forks for every command. The child takes over
the client's folder, environment and standard streams, sets its limits, and runs the command as its console
script would: the package is imported after ``sys.argv`` is set, and errors go through ``sys.excepthook``.
``ForkServer`` is the client for tests. The files in ``ForkServer.programs`` are clients for shell scripts,
which find them in ``PATH``, and for programs that start trainings; they pass SIGTERM on:

    python tests/fork_server.py SOCKET NAME ARGUMENTS...

A command is killed where its client ends before it.
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
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
TIMEOUT = 300  # seconds of a command
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
    memory: int  # the most bytes that it held
    seconds: float  # without its imports
    timed_out: bool  # it was ended because it took too long
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

    def start(
        self, words, folder, streams=None, stdin=None, timeout=TIMEOUT, limits=None, before="",
        full_exit=False, **environment,
    ):  # fmt: skip
        """Start a command line, a list or a string whose first word is a console script, in a folder.

        Args:
            streams: folder for the files of its output; ``FOLDER.streams`` by default.
            stdin: file that it reads as standard input; None for an empty one.
            timeout: seconds after which it is killed.
            limits: {name in ``resource``: number}.
            before: Python that the child executes first.
            full_exit: let Python end as always, which takes 0.3 seconds, instead of running only what
                is registered for the exit and the destructors of what the command made.
        """
        streams = Path(streams or f"{folder}.streams")
        streams.mkdir(exist_ok=True)
        words = shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
        request = {
            "words": words,
            "folder": str(folder),
            "environment": _environment(**environment),
        }
        request |= {"timeout": timeout, "limits": limits or {}}
        request |= {"before": before, "full_exit": full_exit}
        with (
            open(stdin or os.devnull) as zero,
            open(streams / "out", "w") as one,
            open(streams / "err", "w") as two,
        ):
            answers = send(self._socket, request, [zero.fileno(), one.fileno(), two.fileno()])
        return Running(request, streams, answers)


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

    def __init__(self, request, streams, answers):
        self.request, self.streams, self._answers = request, streams, answers
        self.pid = self._answer()["pid"]

    def _answer(self):
        line = self._answers.readline()
        assert line, "the fork server ended"
        return json.loads(line)

    @functools.cache  # noqa: B019
    def wait(self):
        """Its :class:`Result`."""
        with self._answers:
            ended = self._answer()
        return Result(self.request["words"], out=self.output(), err=self.output("err"), **ended)

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
    request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    request |= {"timeout": 600, "limits": {}, "before": "", "full_exit": False}
    with send(path, request, [0, 1, 2]) as answers:
        pid = json.loads(answers.readline())["pid"]
        signal.signal(signal.SIGTERM, lambda number, _: kill(pid, number))
        status = json.loads(answers.readline())["status"]
    return status if status >= 0 else 128 - status  # as a shell has it


# The server


def warm_up():
    """Import what the commands import."""
    logging.root.addHandler(logging.NullHandler())
    for module in WARM:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # so that a child's collections leave the shared pages shared


def serve(path):
    """Answer requests, each in a process of its own; returns in a command's process only, with the
    request and what says that it is ready."""
    warm_up()
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
    start = time.monotonic()
    with contextlib.suppress(BrokenPipeError), connection.makefile("w") as answers:
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        ended = wait_for(pid, request["timeout"], connection)
        ended["seconds"] = time.monotonic() - start
        print(json.dumps(ended), file=answers)
    os._exit(0)


def wait_for(pid, timeout, client):
    """Wait for a child while its client waits, and kill what it left behind."""
    handle = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(client, 0)  # its end
    timed_out = handle not in dict(poll.poll(1000 * timeout))
    if timed_out:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    ended = {"status": os.waitstatus_to_exitcode(status), "memory": usage.ru_maxrss * 1024}
    ended |= {"timed_out": timed_out, "left_processes": True}
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        ended["left_processes"] = False
    return ended


def become(request):
    """Make this process what a shell starts for the command; the function that its script calls."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for name, limit in request["limits"].items():
        # the second number kills, where the first is only a signal
        resource.setrlimit(getattr(resource, name), (limit, limit + (name == "RLIMIT_CPU")))
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


def end_soon(main):
    """Run a function and end the process as Python would, without taking its modules apart."""
    try:
        status = main()
    except SystemExit as exit_:
        status = exit_.code
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except KeyboardInterrupt:
        raise  # Python ends itself by the signal
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        sys.exit(call(sys.argv[1], sys.argv[2:]))
    found, starting = serve(sys.argv[2])
    main = become(found)
    os.close(starting)
    if found["full_exit"]:
        sys.exit(main())
    end_soon(main)
