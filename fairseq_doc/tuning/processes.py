"""Who works on a trial or holds a lock, and whether that process is still there.

A process is known by its machine, its number and its start time, since numbers are used again.
"""

import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEARTBEAT = 60.0  # seconds between the time stamps of a running trial
STALE = 600.0  # seconds without one after which a process of another machine counts as gone


def machine() -> str:
    """This machine since its start, and the container in it."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    started = boot.read_text().strip() if boot.exists() else ""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {started} {space}"


def start_time(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's units; None where there is none."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = line.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def this_process() -> dict[str, Any]:
    """This process, as what JSON can hold. Every call gives another name, so that two tuners in one
    process differ."""
    pid = os.getpid()
    name = uuid.uuid4().hex[:8]
    return {"machine": machine(), "pid": pid, "started": start_time(pid), "name": name}


def is_process(value: Any) -> bool:
    """Whether a value from a storage is what :func:`this_process` gives."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("machine"), str)
        and isinstance(value.get("pid"), int)
        and isinstance(value.get("started"), str | None)
    )


def has_ended(owner: Mapping[str, Any]) -> bool | None:
    """Whether a process has ended; None where it is another machine's, of which nothing is known."""
    if owner["machine"] != machine():
        return None
    return start_time(owner["pid"]) != owner["started"]
