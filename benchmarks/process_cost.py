"""What a command costs with every process it starts: python benchmarks/process_cost.py RESULT.json COMMAND [ARG …].

This process makes itself the reaper of what the command leaves behind (PR_SET_CHILD_SUBREAPER), so that the kernel adds
the CPU time of every process of the tree, daemons too, to its RUSAGE_CHILDREN once the last has ended: nothing is
sampled. Memory and the Java virtual machine's part of the CPU time are.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
INTERVAL = 1.0  # seconds between samples
PATIENCE = 30.0  # seconds that processes left behind may take to end by themselves
TICK = os.sysconf("SC_CLK_TCK")


class Sampler(threading.Thread):
    """Samples a process's descendants: the peak of their memory (PSS), and CPU seconds of those named java."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.peak, self.done = root, 0, threading.Event()
        self._java: dict[int, float] = {}

    def run(self) -> None:
        """Sample until `done`."""
        while not self.done.wait(INTERVAL):
            found = descendants(self.root)
            self.peak = max(self.peak, sum(proportional_set_size(pid) for pid in found))
            self._java.update({pid: cpu for pid, (name, cpu) in found.items() if name == "java"})

    @property
    def java(self) -> float:
        """CPU seconds of all Java processes when they were last seen."""
        return sum(self._java.values())


def descendants(root: int) -> dict[int, tuple[str, float]]:
    """The name and the own CPU seconds of each process below `root`, by its id."""
    children: dict[int, list[int]] = {}
    seen: dict[int, tuple[str, float]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                head, tail = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)
            except OSError:  # it has ended
                continue
            fields = tail.split()
            children.setdefault(int(fields[1]), []).append(int(entry))
            seen[int(entry)] = head.split("(", 1)[1], (int(fields[11]) + int(fields[12])) / TICK
    found: list[int] = list(children.get(root, []))
    for pid in found:
        found += children.get(pid, [])
    return {pid: seen[pid] for pid in found}


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
                    os.kill(left, signal.SIGKILL)
            time.sleep(0.05)


def main(result: str, *command: str) -> int:
    """Run the command; write code, cpu and java (CPU seconds), wall (seconds) and memory (bytes) as JSON."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed: CPU time can't be had exactly")
    sampler = Sampler(os.getpid())
    sampler.start()
    started = time.monotonic()
    code = subprocess.call(command)
    wall = time.monotonic() - started
    sampler.done.set()
    sampler.join()
    reap()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {"cpu": used.ru_utime + used.ru_stime, "java": sampler.java, "wall": wall, "memory": sampler.peak}
    Path(result).write_text(json.dumps({"code": code, **cost}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
