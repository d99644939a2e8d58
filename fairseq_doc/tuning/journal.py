"""Journal files: Optuna's storage for several machines with a common disk."""

import fcntl
import json
import os
import time

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from fairseq_doc.errors import FairseqDocError
from fairseq_doc.tuning.processes import has_ended, is_process, this_process

GRACE = 30.0  # seconds; a record is written in milliseconds


def open_journal(path: str) -> JournalStorage:
    """Open a journal, which is made where there is none.

    Raises:
        FairseqDocError: it cannot be opened, is another file, or is damaged. Optuna alone would leave
            out a last line that is cut.
    """
    lock = JournalLock(path)
    try:
        with open(path, "ab+") as file:
            lock.acquire()
            try:
                file.seek(0)
                lines = file.read().splitlines()
            finally:
                lock.release()
        if lines and not all("op_code" in json.loads(line) for line in (lines[0], lines[-1])):
            raise ValueError
        return JournalStorage(JournalFileBackend(path, lock))
    except FairseqDocError:
        raise
    except OSError as error:
        raise FairseqDocError(f"--storage: cannot open {path}: {error.strerror}") from None
    except Exception:  # records are replayed unchecked
        raise FairseqDocError(
            f"--storage: expected {path} to be a journal of Optuna; got another or a damaged file"
        ) from None


class JournalLock(JournalFileSymlinkLock):
    """Optuna's lock, a symbolic link beside the journal, that names its process.

    Optuna's own does not say whose it is: a process that is killed while it writes leaves it behind,
    and the others wait for it. Here the lock of a process that has ended is taken over. That is safe
    on its own machine alone; another machine's is named in an error.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = path
        self._link = f"{path}.lock"
        self._name = json.dumps(this_process())

    def acquire(self) -> bool:
        """Wait for the lock and take it.

        Raises:
            FairseqDocError: nobody releases it, or the journal's last line is cut.
        """
        held, since = None, time.monotonic()
        while not self._take():
            if held != (held := self._holder()):
                since = time.monotonic()
            if held is not None and _is_of_the_dead(held[0]):
                self._remove(held[0])
            elif time.monotonic() - since > GRACE:
                raise FairseqDocError(
                    f"--storage: expected {self._link} to be released within {GRACE:.0f} seconds; it was "
                    "not: if no other process writes to this journal, remove it"
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
            holder = self._holder()  # this one, where a signal came before it knew
            return holder is not None and holder[0] == self._name
        return True

    def _holder(self) -> tuple[str, int] | None:
        """Whose lock it is, and since when; None where it was released meanwhile."""
        try:
            return os.readlink(self._link), os.lstat(self._link).st_mtime_ns
        except OSError:
            return None

    def _remove(self, name: str) -> None:
        """Remove the lock of a process that has ended; one process after another looks and removes."""
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
            f"--storage: expected {self._path} to end with a whole line; its last {size - whole} bytes "
            "are a part of one, as after a kill or a full disk: give the whole file, or leave the part "
            f"out: truncate -s {whole} {self._path}"
        )


def _is_of_the_dead(name: str) -> bool:
    try:
        owner = json.loads(name)
    except ValueError:  # Optuna's own lock
        return False
    return is_process(owner) and has_ended(owner) is True
