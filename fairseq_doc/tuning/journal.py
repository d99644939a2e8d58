"""Journal files: Optuna's storage for several machines with a common disk."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import IO

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from fairseq_doc.errors import FairseqDocError

GRACE = 30.0  # seconds; a record is written in milliseconds


def open_journal(path: str) -> JournalStorage:
    """Open a journal, or make it; another or a damaged file is refused."""
    lock = JournalLock(path)
    try:
        open(path, "ab").close()
        lock.acquire()
        try:
            lines = Path(path).read_bytes().splitlines()
        finally:
            lock.release()
        # Optuna skips a last line that it cannot read.
        for line in (*lines[:1], *lines[-1:]):
            json.loads(line)["op_code"]
        return JournalStorage(JournalFileBackend(path, lock))
    except FairseqDocError:
        raise
    except OSError as error:
        raise FairseqDocError(f"storage: cannot open {path}: {error.strerror}") from None
    except Exception:  # records are replayed unchecked
        raise FairseqDocError(
            f"storage: expected {path} to be a journal of Optuna; got another or a damaged file"
        ) from None


class JournalLock(JournalFileOpenLock):  # whose base class is not public
    """The system's lock on the journal, which ends with its process. Optuna's own locks, files next
    to the journal, stay when a process is killed while it writes; two that wait for such a lock can
    both take it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Wait for the lock, at most ``GRACE`` seconds; check the last line for its end."""
        self.release()  # if a signal came after the last call
        self._file = open(self._path, "rb+")  # noqa: SIM115
        try:
            self._wait(self._file)
            self._check_end(self._file)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def _wait(self, file: IO[bytes]) -> None:
        began = time.monotonic()
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() - began > GRACE:
                    raise FairseqDocError(
                        f"storage: expected {self._path} to be free within {GRACE:.0f} seconds; "
                        "another process holds its lock: is one of its tuners stopped?"
                    ) from None
                time.sleep(0.01)

    def _check_end(self, file: IO[bytes]) -> None:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if file.read() in (b"", b"\n"):
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        raise FairseqDocError(
            f"storage: expected {self._path} to end with a whole line; its last {size - whole} "
            "bytes are a part of one, as after a kill or a full disk: give the whole file, or "
            f"leave the part out: truncate -s {whole} {self._path}"
        )
