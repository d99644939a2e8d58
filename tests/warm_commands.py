"""Programs that shell scripts find in ``PATH``, without the seconds of their imports.

``WarmCommands(folder)`` is a context manager: a server imports torch and fairseq once, and the programs in
its folder are clients that hand it their arguments, folder, environment and standard streams. Every
command runs in a process of its own, forked from the server.

    python tests/warm_commands.py serve SOCKET
    python tests/warm_commands.py SOCKET NAME ARGUMENTS...
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

NAMES = "train generate interactive eval-lm validate preprocess score doc".split()


class WarmCommands:
    """Programs ``folder/fairseq-train`` and so on; ``folder`` is to precede the others in ``PATH``."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._socket = self.folder / "socket"

    def __enter__(self):
        for name in NAMES:
            program = self.folder / f"fairseq-{name}"
            client = f'"{sys.executable}" -I -S "{__file__}" "{self._socket}" {program.name}'
            program.write_text(f'#!/bin/sh\nexec {client} "$@"\n')
            program.chmod(0o755)
        self._server = subprocess.Popen(
            [sys.executable, __file__, "serve", self._socket],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout.readline() == b"ready\n", "the server ended"
        return self

    def __exit__(self, *error):
        self._server.terminate()
        self._server.wait(timeout=60)


def call(path, words):
    """Have the server run a command on this process's standard streams; its exit status."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
        message = json.dumps(request).encode()
        socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(message)
        with connection.makefile() as answer:
            return int(answer.read() or 70)  # 70: the server's process is gone


def serve(path):
    """Fork for every connection; returns in a command's process only, with what it is to call."""
    from harm import fork_server

    fork_server.warm_up()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait
    print("ready", flush=True)
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
    pid = os.fork()
    if pid:
        for stream in (0, 1, 2, *streams):  # so that a pipe ends when the command ends
            os.close(stream)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(b"%d" % (status if status >= 0 else 128 - status))  # as a shell has it
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return fork_server.entry_point(request["words"])


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.path.insert(0, str(Path(__file__).parent))
        main = serve(sys.argv[2])
        from harm.fork_server import end_soon

        end_soon(main)
    sys.exit(call(sys.argv[1], sys.argv[2:]))
