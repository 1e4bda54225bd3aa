"""The main job on YARN in cluster mode, with nothing but what was shipped, and no one to read what it prints."""

from __future__ import annotations

import json

import pytest

from tests.cluster.processes import Cluster
from tests.cluster.submit import containers, manifest, run
from tests.jobs.test_featurize import EMAILS

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def emails(hadoop: Cluster) -> str:
    hadoop.put(EMAILS, "/emails.jsonl.gz")
    return "/emails.jsonl.gz"


def test_cluster_mode_gives_the_output_of_client_mode(hadoop: Cluster, emails: str, packed: tuple[str, ...]) -> None:
    for deploy, options in (("client", ()), ("cluster", packed)):
        places = ("--input", emails, "--output", f"/{deploy}-mode/out", "--model", f"/{deploy}-mode/model")
        done = run(hadoop, *places, deploy=deploy, options=options)
        assert done.returncode == 0, done.stdout[-4000:]
    client, cluster = (manifest(hadoop, f"/{deploy}-mode/out") for deploy in ("client", "cluster"))
    assert client == cluster
    application = str(hadoop.applications()[0]["id"])
    (driver,) = [log for log in containers(hadoop, application, "stdout") if log.parent.name.endswith("_000001")]
    assert "documents   2,773 of 2,773 records" in driver.read_text()  # its summary
    assert {each.parent.name[-6:] for each in containers(hadoop, application, "stderr")} == {"000001", "000002"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--input", "/absent"), "error: --input /absent does not exist: give a file or a folder"),
        (("--input", "/broken.jsonl"), "error: 1 of 2 records (50.00%) of "),
        (("--input", "/emails.jsonl.gz", "--tokenizr", "char"), "did you mean --tokenizer?"),
    ],
)
def test_in_cluster_mode_a_mistake_is_what_yarn_says_of_the_application_after_one_attempt(
    options: tuple[str, ...], told: str, hadoop: Cluster, emails: str, packed: tuple[str, ...]
) -> None:
    hadoop.web("PUT", "/broken.jsonl", "CREATE", data=b'{"text": "a"}\n{', overwrite="true")
    done = run(hadoop, *options, "--output", "/no/out", "--model", "/no/model", deploy="cluster", options=packed)
    assert done.returncode == 1
    (application, *_) = hadoop.applications()
    assert application["finalStatus"] == "FAILED"
    assert told in str(application["diagnostics"])
    assert told in done.stdout
    attempts = json.loads(hadoop.resources(f"apps/{application['id']}/appattempts"))["appAttempts"]["appAttempt"]
    assert len(attempts) == 1
