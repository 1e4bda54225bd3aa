"""What clusters do to a job: processes killed, a name node gone, no room, two drivers: the output stays the same."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import MAINS, Cluster
from tests.cluster.submit import containers, ended, error, manifest, pid_of, run, start, unfinished, wait_for
from tests.conftest import DATA

pytestmark = pytest.mark.cluster
FILES = 8
SLOW = ("--tokenizer", "jieba")  # so that tasks last for seconds
TWO = ("--num-executors", "2")


@pytest.fixture(scope="module")
def undisturbed(hadoop: Cluster) -> dict[str, object]:
    """The manifest of a run on /chinese that nothing disturbs."""
    with gzip.open(DATA / "libreoffice_help_zh.jsonl.gz", "rt", encoding="utf-8") as file:
        pages = [json.loads(line) for line in file]
    for k in range(FILES):
        lines = [json.dumps({**page, "id": f"{page['id']}-{k}"}, ensure_ascii=False) + "\n" for page in pages]
        hadoop.web("PUT", f"/chinese/{k}.jsonl", "CREATE", data="".join(lines).encode())
    done = run(hadoop, *job("/undisturbed"), options=TWO)
    assert done.returncode == 0, done.stdout[-3000:]
    return manifest(hadoop, "/undisturbed/out")


def job(folder: str, *options: str) -> list[str]:
    places = ["--input", "/chinese", "--output", f"{folder}/out", "--model", f"{folder}/model"]
    return [*places, *SLOW, *options]


class Disturbed:
    """A job of which tasks are running just now, of a stage that has finished some."""

    def __init__(self, hadoop: Cluster, folder: str, **settings: object) -> None:
        before = {app["id"] for app in hadoop.applications()}
        self.hadoop, self.folder = hadoop, folder
        self.process = start(hadoop, *job(folder), **{"options": TWO, **settings})  # type: ignore[arg-type]
        self.application = wait_for("an application", lambda: self._new(before))

    def _new(self, before: set[object]) -> str | None:
        assert self.process.poll() is None, self.process.communicate()
        return next((str(app["id"]) for app in self.hadoop.applications() if app["id"] not in before), None)

    def executors(self) -> list[Path]:
        """The logs of its executors."""
        logs = containers(self.hadoop, self.application, "stderr")
        return [log for log in logs if "CoarseGrainedExecutorBackend" in log.read_text(errors="replace")]

    def busy(self) -> Path:
        """The log of an executor that runs a task and has finished another."""

        def found() -> Path | None:
            assert self.process.poll() is None, self.process.communicate()
            for log in self.executors():
                if "Finished task" in log.read_text(errors="replace") and unfinished(log):
                    return log
            return None

        return wait_for("an executor at work", found)

    def is_as_undisturbed(self, expected: dict[str, object]) -> str:
        """It ends well with the same output; returns what it said."""
        done = ended(self.process)
        assert done.returncode == 0, done.stdout[-4000:]
        found = manifest(self.hadoop, f"{self.folder}/out")
        for name in ("content_hash", "model_id", "documents", "records", "rejects", "tokens"):
            assert found[name] == expected[name], name
        left = json.loads(self.hadoop.web("GET", self.folder, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        assert sorted(each["pathSuffix"] for each in left) == ["model", "out"]
        return done.stdout


def node_of(log: Path) -> str:
    return next(part for part in log.parts if part.startswith("nodemanager-"))


@pytest.fixture
def mended(hadoop: Cluster) -> Iterator[None]:
    """What the test killed runs again afterwards."""
    yield
    for name in [name for name in MAINS if name not in hadoop.running]:
        hadoop.start(name)
    hadoop.wait("HDFS is healthy", hadoop.hdfs_is_healthy, 120)
    hadoop.wait("YARN is healthy", hadoop.yarn_is_healthy, 120)


def test_an_executor_is_killed(hadoop: Cluster, undisturbed: dict[str, object]) -> None:
    one = Disturbed(hadoop, "/executor")
    log = one.busy()
    number = re.search(r"executor-id (\d+)|Starting executor ID (\d+)", log.read_text(errors="replace"))
    assert number
    os.kill(pid_of("CoarseGrainedExecutorBackend", one.application, f"--executor-id\0{number[1] or number[2]}\0"), 9)
    one.is_as_undisturbed(undisturbed)
    assert unfinished(log)  # and never told of their end
    assert len(one.executors()) >= 3


def test_a_node_manager_is_lost_with_all_it_ran(hadoop: Cluster, undisturbed: dict[str, object], mended: None) -> None:
    one = Disturbed(hadoop, "/nodemanager")
    log = one.busy()
    hadoop.kill(node_of(log))
    one.is_as_undisturbed(undisturbed)
    assert unfinished(log)
    assert re.search(r"Node .* is expired|Deactivating Node|LOST", hadoop.log("resourcemanager").read_text())


def test_a_data_node_with_the_input_is_lost(hadoop: Cluster, undisturbed: dict[str, object], mended: None) -> None:
    one = Disturbed(hadoop, "/datanode")
    log = one.busy()
    ports = []
    for k in range(FILES):
        found = json.loads(hadoop.web("GET", f"/chinese/{k}.jsonl", "GETFILEBLOCKLOCATIONS"))["BlockLocations"]
        ports += [name.split(":")[1] for block in found["BlockLocation"] for name in block["names"]]
    at = max(ports, key=ports.count)
    holds = [f"datanode-{k}" for k in (1, 2, 3) if f"127.0.0.1:{at}\n" in hadoop.log(f"datanode-{k}").read_text()]
    assert unfinished(log)
    hadoop.kill(holds[0])
    one.is_as_undisturbed(undisturbed)
    wait_for("it is known to be dead", lambda: hadoop._bean("FSNamesystemState")["NumDeadDataNodes"] == 1)


def test_the_application_master_is_killed(hadoop: Cluster, undisturbed: dict[str, object]) -> None:
    one = Disturbed(hadoop, "/master")
    assert unfinished(one.busy())
    os.kill(pid_of("ExecutorLauncher", one.application), signal.SIGKILL)
    one.is_as_undisturbed(undisturbed)
    attempts = json.loads(hadoop.resources(f"apps/{one.application}/appattempts"))["appAttempts"]["appAttempt"]
    assert len(attempts) == 2


def test_the_name_node_starts_anew(hadoop: Cluster, undisturbed: dict[str, object], mended: None) -> None:
    one = Disturbed(hadoop, "/namenode")
    assert unfinished(one.busy())
    hadoop.kill("namenode")
    time.sleep(5)
    hadoop.start("namenode")
    one.is_as_undisturbed(undisturbed)
    assert len(re.findall("STARTUP_MSG: Starting NameNode", hadoop.log("namenode").read_text())) > 1


def test_a_killed_driver_is_followed_by_one_that_goes_on(hadoop: Cluster, undisturbed: dict[str, object]) -> None:
    one = Disturbed(hadoop, "/driver")
    wait_for("the fit is done", lambda: finished(hadoop, "/driver/.out.stage", "count"))
    os.kill(pid_of("SparkSubmit", "/driver/out"), signal.SIGKILL)
    assert ended(one.process).returncode != 0
    with pytest.raises(FileNotFoundError):
        hadoop.status("/driver/out")
    again = run(hadoop, *job("/driver"), options=TWO)
    assert again.returncode == 0, again.stdout[-3000:]
    assert "continues after count" in again.stdout
    assert manifest(hadoop, "/driver/out")["content_hash"] == undisturbed["content_hash"]


def finished(hadoop: Cluster, stage: str, step: str) -> bool:
    """Whether a step lies in a stage, finished."""
    try:
        names = json.loads(hadoop.web("GET", stage, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        keys = [each["pathSuffix"] for each in names if re.fullmatch("[0-9a-f]{16}", each["pathSuffix"])]
        return any(hadoop.status(f"{stage}/{key}/{step}") for key in keys)
    except FileNotFoundError:
        return False


def test_of_two_drivers_one_wins_and_the_other_says_why(hadoop: Cluster, undisturbed: dict[str, object]) -> None:
    one = Disturbed(hadoop, "/two")  # it has just begun: the other comes while its tasks run
    other = run(hadoop, *job("/two"), options=TWO)
    assert unfinished(one.busy())
    assert other.returncode == 2
    assert "is writing there: wait until it is done, or stop it" in error(other)
    one.is_as_undisturbed(undisturbed)


def test_a_quota_that_is_full_leaves_the_old_output(hadoop: Cluster, undisturbed: dict[str, object]) -> None:
    old = run(hadoop, *job("/quota", "--features", "count"))
    assert old.returncode == 0, old.stdout[-3000:]
    before = manifest(hadoop, "/quota/out")
    used = json.loads(hadoop.web("GET", "/quota", "GETCONTENTSUMMARY"))["ContentSummary"]["spaceConsumed"]
    hadoop.web("PUT", "/quota", "SETQUOTA", storagespacequota=used + (20 << 20))
    try:
        done = run(hadoop, *job("/quota", "--overwrite"), options=TWO)
    finally:
        hadoop.web("PUT", "/quota", "SETQUOTA", storagespacequota=-1)
    assert done.returncode == 1
    assert re.search("quota", error(done))
    assert manifest(hadoop, "/quota/out") == before
    again = run(hadoop, *job("/quota", "--overwrite"))
    assert again.returncode == 0, again.stdout[-3000:]
    assert manifest(hadoop, "/quota/out")["content_hash"] == undisturbed["content_hash"]


def test_the_master_of_cluster_mode_is_killed_and_the_next_attempt_goes_on(
    hadoop: Cluster, undisturbed: dict[str, object], packed: tuple[str, ...]
) -> None:
    one = Disturbed(hadoop, "/cluster", deploy="cluster", options=(*TWO, *packed))
    wait_for("the count is done", lambda: finished(hadoop, "/cluster/.out.stage", "count"))
    os.kill(pid_of("deploy.yarn.ApplicationMaster", one.application), signal.SIGKILL)
    one.is_as_undisturbed(undisturbed)
    drivers = [log for log in containers(hadoop, one.application, "stdout") if "_02_000001" in str(log)]
    assert "continues after count" in drivers[0].read_text()


def test_there_is_nothing_left_of_the_jobs(hadoop: Cluster) -> None:
    found = subprocess.run(["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True)
    assert found.stdout == ""
