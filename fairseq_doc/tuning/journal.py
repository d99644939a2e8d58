"""Journal files: Optuna's storage for several machines with a common disk."""

import fcntl
import json
import os
import time

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.tuning.slots import has_ended, this_process

GRACE = 30.0  # seconds; a record is written in milliseconds


def open_journal(path: str) -> JournalStorage:
    """Open a journal, or make it; another or a damaged file is refused."""
    lock = JournalLock(path)
    try:
        with open(path, "ab+") as file:
            lock.acquire()
            try:
                file.seek(0)
                lines = file.read().splitlines()
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


class JournalLock(JournalFileSymlinkLock):
    """Optuna's lock, a symbolic link next to the journal, whose target names the process. Optuna's
    own names none, so a process killed while it writes blocks all others. Here the lock of an ended
    process is taken over by its machine, which alone knows; elsewhere it is an error."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path, self._link = path, f"{path}.lock"
        self._name = json.dumps(this_process())

    def acquire(self) -> bool:
        """Wait for the lock, ``GRACE`` seconds for one holder; check the last line for its end."""
        waited_for, since = None, time.monotonic()
        while not self._take():
            holder = self._holder()
            if holder != waited_for:
                waited_for, since = holder, time.monotonic()
            if holder is not None and _has_died(holder[0]):
                self._remove(holder[0])
            elif time.monotonic() - since > GRACE:
                raise FairseqDocError(
                    f"storage: expected {self._link} to be released within {GRACE:.0f} seconds; it "
                    "was not: if no other process writes to this journal, remove it"
                )
            else:
                time.sleep(0.01)
        try:
            self._check_end()
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        os.unlink(self._link)

    def _take(self) -> bool:
        try:
            os.symlink(self._name, self._link)
        except FileExistsError:
            holder = self._holder()  # this one, if a signal came before it knew
            return holder is not None and holder[0] == self._name
        return True

    def _holder(self) -> tuple[str, int] | None:
        """(process, since when); None if the lock was released meanwhile."""
        try:
            return os.readlink(self._link), os.lstat(self._link).st_mtime_ns
        except OSError:
            return None

    def _remove(self, name: str) -> None:
        """Remove an ended process's lock, one process at a time: another may have replaced it."""
        with open(self._path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            holder = self._holder()
            if holder is not None and holder[0] == name:
                os.unlink(self._link)

    def _check_end(self) -> None:
        with open(self._path, "rb") as file:
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


def _has_died(name: str) -> bool:
    try:
        process = json.loads(name)
    except ValueError:  # Optuna's own lock
        return False
    return isinstance(process, dict) and has_ended(process) is True
