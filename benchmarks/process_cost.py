"""What a command costs with every process it starts: python benchmarks/process_cost.py RESULT.json COMMAND [ARG …].

CPU time is had in two ways, each of which can only miss some, so that the larger is taken. reaped: this process makes
itself the reaper of what the command leaves behind (PR_SET_CHILD_SUBREAPER) and asks for its RUSAGE_CHILDREN, which
lacks every process whose parent ignores SIGCHLD, as pyspark.daemon does: a Python worker that ends before its daemon.
sampled: the last CPU time seen of each process, which lacks what it used after that, and processes never seen.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
INTERVAL = 0.2  # seconds between samples of CPU time
EVERY = 5  # such samples, one of memory, which costs more
PATIENCE = 30.0  # seconds that processes left behind may take to end by themselves
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it; `start` tells it from another that had the same id."""

    pid: int
    start: int
    name: str


class Sampler(threading.Thread):
    """Samples a process's descendants: CPU seconds of each, the peak of their memory (PSS) in all, of a Python one."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak, self.python, self.done = root, 0, 0, threading.Event()
        self._cpu: dict[Process, float] = {}

    def run(self) -> None:
        """Sample until `done`."""
        for number in itertools.count(1):
            if self.done.wait(INTERVAL):
                return
            found = descendants(self.root)
            self._cpu.update(found)
            if number % EVERY == 0:
                sizes = {process: proportional_set_size(process.pid) for process in found}
                self.peak = max(self.peak, sum(sizes.values()))
                of_python = (size for process, size in sizes.items() if process.name.startswith("python"))
                self.python = max(self.python, *of_python, 0)

    def cpu(self, name: str | None = None) -> float:
        """CPU seconds of all processes, or of those of this name, when they were last seen."""
        return sum(cpu for process, cpu in self._cpu.items() if name in (None, process.name))


def descendants(root: int) -> dict[Process, float]:
    """The processes below `root`, and the CPU seconds that each has used itself."""
    children: dict[int, list[int]] = {}
    seen: dict[int, tuple[Process, float]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                head, tail = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)
            except OSError:  # it has ended
                continue
            pid, fields = int(entry), tail.split()
            children.setdefault(int(fields[1]), []).append(pid)
            process = Process(pid, int(fields[19]), head.split("(", 1)[1])
            seen[pid] = process, (int(fields[11]) + int(fields[12])) / TICK
    found = list(children.get(root, []))
    for pid in found:
        found += children.get(pid, [])
    return dict(seen[pid] for pid in found)


def proportional_set_size(pid: int) -> int:
    """Bytes of a process's memory, those it shares divided by the number of sharers; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def reap() -> None:
    """Wait for every process that the command left behind; kill those that outstay PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            if time.monotonic() > deadline:
                for left in descendants(os.getpid()):
                    os.kill(left.pid, signal.SIGKILL)
            time.sleep(0.05)


def main(result: str, *command: str) -> int:
    """Run the command; write code, CPU seconds, wall (seconds), memory: the peak of all and of one Python (bytes)."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed: what a daemon uses can't be had")
    sampler = Sampler(os.getpid())
    sampler.start()
    started = time.monotonic()
    code = subprocess.call(command)
    wall = time.monotonic() - started
    reap()
    sampler.done.set()
    sampler.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {"reaped": used.ru_utime + used.ru_stime, "sampled": sampler.cpu(), "java": sampler.cpu("java")}
    Path(result).write_text(
        json.dumps({"code": code, **cost, "wall": wall, "memory": sampler.peak, "python": sampler.python})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
