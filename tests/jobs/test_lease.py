"""Leases: one run at a time, whatever starts at once, is killed, or stands still."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jobs import lease
from jobs.lease import VOID_SECONDS, Lease
from jobs.outputs import FileSystem
from jobs.session import Mistake


@pytest.fixture
def fs(spark: Any, tmp_path: Path) -> FileSystem:
    return FileSystem(str(tmp_path))


def lay(folder: Path, age: float = 0, **holder: object) -> Path:
    """A lease as another run leaves it, renewed `age` seconds ago; by default by a process that runs: this one."""
    me: dict[str, object] = {"host": "elsewhere", "pid": os.getpid(), "start": "2026-11-30 01:02:03 +0000"}
    found = {**me, "machine": lease._machine(), "ticks": lease._ticks(os.getpid()), **holder}
    folder.mkdir(exist_ok=True)
    path = folder / "lease-0123456789ab"
    path.write_text(json.dumps(found))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_of_runs_that_start_at_once_one_at_a_time_has_the_lease(fs: FileSystem, tmp_path: Path) -> None:
    held, most, taken, refused = 0, 0, 0, 0
    count = threading.Lock()

    def run() -> None:
        nonlocal held, most, taken, refused
        for _ in range(4):
            try:
                mine = Lease(fs, str(tmp_path), "--output")
            except Mistake:
                refused += 1
                continue
            with count:
                held, taken = held + 1, taken + 1
                most = max(most, held)
            time.sleep(0.3)
            assert mine.held()
            with count:
                held -= 1
            mine.stop()
            mine.release()

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert taken + refused == 20
    assert taken > 3
    assert list(tmp_path.iterdir()) == []


def test_a_second_run_is_told_who_is_there(fs: FileSystem, tmp_path: Path) -> None:
    path = lay(tmp_path / "stage", VOID_SECONDS - 20, host="far.away", pid=7, machine="another")
    told = r"--output: another run \(host far\.away, pid 7, started 2026-11-30 01:02:03 \+0000\) is writing there"
    with pytest.raises(Mistake, match=told):
        Lease(fs, str(tmp_path / "stage"), "--output")
    assert [*(tmp_path / "stage").iterdir()] == [path]


def test_a_later_attempt_of_a_yarn_application_takes_over_at_once(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / "stage"
    for theirs, ours in (("17_0002", "02"), ("17_0001", "01"), ("17_0001", "03")):
        path = lay(stage, machine="another", yarn=[theirs, "02"])
        monkeypatch.setenv("CONTAINER_ID", f"container_e05_17_0001_{ours}_000001")
        if ours != "03":  # another application, or an attempt that is itself out of date
            with pytest.raises(Mistake, match="another run"):
                Lease(fs, str(stage), "--output")
            assert path.exists()
    mine = Lease(fs, str(stage), "--output")
    assert not path.exists()
    mine.stop()
    mine.release()


def ended() -> dict[str, object]:
    """A process that was, until just now."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = {"pid": process.pid, "ticks": lease._ticks(process.pid)}
    assert found["ticks"]
    process.communicate()
    return found


@pytest.mark.parametrize("case", ["not renewed", "of another host, not renewed", "ended", "its pid is another's"])
def test_a_lease_is_void(case: str, fs: FileSystem, tmp_path: Path) -> None:
    age = VOID_SECONDS + 1 if "not renewed" in case else 0
    holders: dict[str, dict[str, object]] = {
        "of another host, not renewed": {"machine": "another"},
        "ended": ended(),
        "its pid is another's": {"ticks": 1},
    }
    path = lay(tmp_path, age, **holders.get(case, {}))
    mine = Lease(fs, str(tmp_path), "--output")
    assert mine.held()
    assert not path.exists()
    mine.stop()


@pytest.mark.parametrize("case", ["this very process", "ended, on another machine", "not yet written"])
def test_a_lease_is_live(case: str, fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "ATTEMPTS", 1)
    path = lay(tmp_path, **(ended() | {"machine": "another"} if "ended" in case else {}))
    if case == "not yet written":
        path.write_text("")
    with pytest.raises(Mistake, match=r"another run .*is writing there"):
        Lease(fs, str(tmp_path), "--output")
    assert path.exists()


def test_a_zombie_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    while (state := Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
        time.sleep(0.01)
    assert state == "Z"
    assert lease._ticks(process.pid) is None
    process.wait()


def test_a_lease_is_renewed_until_it_is_given_up_or_taken_over(
    fs: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    mine = Lease(fs, str(tmp_path), "--output")
    (path,) = tmp_path.glob("lease-*")
    before = path.read_bytes()
    os.utime(path, (0, 0))
    deadline = time.monotonic() + 30
    while time.time() - path.stat().st_mtime > 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert path.read_bytes() == before
    mine.check()
    path.unlink()  # by a run that took over, and is through
    time.sleep(0.5)
    assert not path.exists()
    with pytest.raises(Mistake, match=r"stood still for more than 60 s, and another run has taken over"):
        mine.check()
    lay(tmp_path, pid=7, machine="another")
    with pytest.raises(Mistake, match=r"and another run \(host elsewhere, pid 7, .*\) has taken over"):
        mine.check()
    mine.stop()
