"""The cluster of docker-compose.yml: healthy, on the loopback, within 8 GB, and the main job runs there."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
from pyhive import hive

from tests.cluster.processes import ROOT
from tests.cluster.submit import wait_for
from tests.conftest import MODEL_ID

ENGINE = ["docker", "compose", "ls"]
ANSWERS = bool(shutil.which("docker")) and not subprocess.run(ENGINE, capture_output=True).returncode
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(not ANSWERS, reason="no Docker engine with compose answers")]
SERVICES = {
    "namenode": 1, "datanode": 3, "resourcemanager": 1, "nodemanager": 2, "postgres": 1, "metastore": 1,
    "hiveserver2": 1, "history": 1, "spark": 1,
}  # fmt: skip


def compose(*arguments: str, check: bool = True) -> str:
    done = subprocess.run(["docker", "compose", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 or not check, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr * (not check)


@pytest.fixture(scope="module")
def up() -> Iterator[None]:
    """The whole cluster, as `make up` starts it."""
    try:
        compose("up", "--build", "--wait", "--wait-timeout", "300")
        yield
    finally:
        compose("down", "--volumes")


def containers() -> list[dict[str, object]]:
    ids = compose("ps", "--quiet").split()
    return json.loads(subprocess.run(["docker", "inspect", *ids], capture_output=True, check=True).stdout)


@pytest.mark.timeout(1500)  # the images are built
def test_the_main_job_runs_where_docker_compose_starts_it(up: None) -> None:
    emails = "tests/data/emails.jsonl.gz"
    compose("exec", "-T", "spark", "hadoop", "fs", "-put", emails, "/emails.jsonl.gz")
    job = ["jobs/featurize.py", "--input", "/emails.jsonl.gz", "--output", "/features", "--model", "/model"]
    said = compose("exec", "-T", "spark", "spark-submit", "--master", "yarn", *job)
    assert MODEL_ID in said
    with hive.connect("localhost", 10000, auth="NOSASL") as connection:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE TABLE words AS SELECT explode(split('a b a', ' ')) AS word"
        )  # which PostgreSQL remembers
        cursor.execute("SELECT word, count(*) FROM words GROUP BY word")
        assert sorted(cursor.fetchall()) == [("a", 2), ("b", 1)]
    with urllib.request.urlopen("http://localhost:18080/api/v1/applications") as answer:
        assert [each["name"] for each in json.load(answer)] == ["textmill featurize"]


def test_all_services_are_healthy_on_the_loopback_and_within_8_gb(up: None) -> None:
    found = containers()
    names = [each["Config"]["Labels"]["com.docker.compose.service"] for each in found]  # type: ignore[index]
    assert {name: names.count(name) for name in names} == SERVICES
    assert {each["State"]["Health"]["Status"] for each in found} == {"healthy"}  # type: ignore[index]
    assert sum(each["HostConfig"]["Memory"] for each in found) <= 8 << 30  # type: ignore[index]
    ports = [port for each in found for open_ in each["HostConfig"]["PortBindings"].values() for port in open_]  # type: ignore[index]
    assert {port["HostIp"] for port in ports} == {"127.0.0.1"}
    assert len(ports) == 6


@pytest.mark.timeout(1200)  # what a connection that says nothing more is waited for adds up
def test_a_job_survives_the_loss_of_a_nodes_network(up: None) -> None:
    job = ["jobs/featurize.py", "--input", "/emails.jsonl.gz", "--output", "/cut", "--model", "/cut-model"]
    slow = ["--tokenizer", "regex", "--pattern", r"(?:\w+\W+){0,3}\w+"]
    submit = ["docker", "compose", "exec", "-T", "spark", "spark-submit", "--master", "yarn", *job, *slow]
    running = subprocess.Popen(submit, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    node = None
    while node is None:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < end
        for each in compose("ps", "--quiet", "nodemanager").split():
            logs = "/data/logs/application_*/container_*/stderr"
            look = f"grep -l 'Running task' {logs} | tail -1 | xargs grep -L 'Finished task'"
            busy = subprocess.run(["docker", "exec", each, "sh", "-c", look], capture_output=True, text=True)
            node = each if busy.stdout.strip() else node
    network = "textmill_default"
    subprocess.run(["docker", "network", "disconnect", network, node], check=True)
    try:
        # The other node has no room for an executor beside the application master: this one must come back.
        wait_for("YARN takes the node for lost", lambda: "LOST" in [each["state"] for each in nodes()])
        assert running.poll() is None
    finally:
        subprocess.run(["docker", "network", "connect", network, node], check=True)
    said, _ = running.communicate(timeout=900)
    assert running.returncode == 0, said[-3000:]
    assert "2,773 of 2,773 records" in said


def nodes() -> list[dict[str, object]]:
    with urllib.request.urlopen("http://localhost:8088/ws/v1/cluster/nodes", timeout=10) as answer:
        return json.load(answer)["nodes"]["node"]
