"""The cluster of plain processes: nothing is left of it, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.processes import ROOT
from tests.cluster.submit import wait_for

pytestmark = pytest.mark.cluster
STARTED = """
import sys, time
from pathlib import Path
from tests.cluster.processes import cluster

with cluster(Path(sys.argv[1]), ("hdfs",)):
    print("up", flush=True)
    time.sleep(600)
"""


def processes(folder: Path) -> list[str]:
    """The command lines of processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def test_daemons_die_with_the_process_that_started_them_though_it_is_killed(tmp_path: Path) -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTED, tmp_path], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    assert starter.stdout.readline() == "up\n"
    assert sum("NameNode" in command or "DataNode" in command for command in processes(tmp_path)) >= 4
    starter.kill()
    wait_for("the daemons' end", lambda: not processes(tmp_path), 20)


def test_a_cluster_that_stays_is_started_told_and_stopped(tmp_path: Path) -> None:
    def act(action: str) -> str:
        command = [sys.executable, "-m", "tests.cluster.processes", action, "--folder", str(tmp_path / "it")]
        return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    said = act("up")
    assert f"export HADOOP_CONF_DIR={tmp_path}/it/cluster/conf" in said
    assert "# namenode-web: localhost:" in said
    act("down")
    assert processes(tmp_path) == []
    assert not (tmp_path / "it").exists()
