"""Who may write to a target: the run whose file lies in the stage. It is renewed, and void once its run is gone."""

from __future__ import annotations

import os
import random
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.session import Mistake

if TYPE_CHECKING:
    from jobs.outputs import FileSystem

PREFIX = "lease-"
VOID_SECONDS = 60  # without renewal
RENEW_SECONDS = 15
ATTEMPTS = 5  # of runs that start at once and stand back from each other


class Lease:
    """A run's right to a folder, by a file in it that holds host, pid and start, and that a thread renews.

    A run writes its file, then looks for others: if there is one that is not void, it takes its own away. So two runs
    never both believe to have the folder, on any file system that lists what was written before; to create a file
    exclusively would not do, since Hadoop's local file system looks first and creates then. Ages are differences of the
    file system's own times, whatever the clocks of the hosts.
    """

    def __init__(self, fs: FileSystem, folder: str, what: str) -> None:
        """Raises Mistake, which names the holder, if another run has the folder."""
        self._fs, self._folder, self._what = fs, folder, what
        self.run = uuid.uuid4().hex[:12]
        self.scratch = f"{folder}/run-{self.run}"  # no other run looks there
        self._path = f"{folder}/{PREFIX}{self.run}"
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, daemon=True)
        me = {"host": socket.gethostname(), "pid": os.getpid(), "start": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        for _ in range(ATTEMPTS):
            try:
                fs.write_json(
                    self._path, {**me, "machine": _machine(), "ticks": _ticks(os.getpid()), "yarn": _attempt()}
                )
            except Exception:  # a full HDFS keeps the empty file
                with suppress(Exception):
                    fs.delete(self._path)
                raise
            holder = self._other()
            if holder is None:
                self._renewer.start()
                return
            fs.delete(self._path)
            time.sleep(random.uniform(0.1, 1))
        raise Mistake(f"{what}: {_run(holder)} is writing there: wait until it is done, or stop it")

    def held(self) -> bool:
        """Whether no other run has taken over."""
        return self._fs.exists(self._path)

    def check(self) -> None:
        """Raise Mistake if another run has taken over, since this one stood still for too long."""
        if not self.held():
            raise Mistake(
                f"{self._what}: this run stood still for more than {VOID_SECONDS} s, and {_run(self._other())} has "
                "taken over: let that one finish"
            )

    def stop(self) -> None:
        """Renew no more."""
        self._ended.set()
        self._renewer.join(10)

    def release(self) -> None:
        """Leave the folder to others."""
        self._fs.delete(self._path)

    def _other(self) -> dict[str, object] | None:
        """The holder of another lease, if there is one; those that are void are deleted."""
        leases = {name: at for name, at in self._fs.modified_in(self._folder) if name.startswith(PREFIX)}
        own = leases.pop(self._path.rsplit("/", 1)[1], 0)
        for name, at in leases.items():
            holder = self._read(f"{self._folder}/{name}")
            if own - at <= VOID_SECONDS * 1000 and not _gone(holder):
                return holder
            if own:
                self._fs.delete(f"{self._folder}/{name}")
        return None

    def _read(self, path: str) -> dict[str, object]:
        """A lease's holder; nothing if it is being written, or was just taken away."""
        for _ in range(3):
            with suppress(Exception):
                return dict(self._fs.read_json(path))
            time.sleep(0.05)
        return {}

    def _renew(self) -> None:
        """Give the file the file system's present time, again and again; what was deleted does not come back."""
        beat = f"{self.scratch}/beat"
        while not self._ended.wait(RENEW_SECONDS):
            with suppress(Exception):  # the file system may be away for a while
                self._fs.write(beat, b"")
                self._fs.set_modified(self._path, self._fs.modified(beat))


def _run(holder: dict[str, object] | None) -> str:
    """How a message calls a run."""
    if not holder:
        return "another run"
    return f"another run (host {holder['host']}, pid {holder['pid']}, started {holder['start']})"


def _machine() -> str:
    """What tells this machine, and the processes that can be seen on it, from all others; empty if nothing does."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _ticks(pid: int) -> int | None:
    """When a process of this machine was started, in clock ticks; None if it has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(fields[18])


def _attempt() -> list[str]:
    """In YARN's cluster mode the application and the attempt that this driver is; otherwise nothing."""
    container = re.match(r"container_(?:e\d+_)?(\d+_\d+)_(\d+)_", os.environ.get("CONTAINER_ID", ""))
    return list(container.groups()) if container else []


def _gone(holder: dict[str, object]) -> bool:
    """Whether a holder was a process of this machine, and is no more, or an earlier attempt of this application."""
    theirs, ours = holder.get("yarn") or [], _attempt()
    if isinstance(theirs, list) and theirs[:1] == ours[:1] != [] and theirs < ours:
        return True  # YARN makes a new attempt when it has given up the one before
    here = bool(holder) and holder["machine"] == _machine() != ""
    return here and _ticks(int(str(holder["pid"]))) != holder["ticks"]
