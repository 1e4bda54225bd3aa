"""Jobs on the cluster by spark-submit, as a user's shell runs them, and what of them can be seen from outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.processes import ROOT, Cluster
from tests.jobs.test_featurize import submission

FEATURIZE = ROOT / "jobs/featurize.py"


def start(
    hadoop: Cluster, *job: object, script: Path = FEATURIZE, deploy: str = "client", options: tuple[object, ...] = ()
) -> subprocess.Popen[str]:
    """A job by spark-submit on YARN, with the options of either, running."""
    command, settings = submission("--deploy-mode", deploy, *options, script, *job, master="yarn")
    python = {"PYSPARK_PYTHON": sys.executable} if deploy == "client" else {}
    return subprocess.Popen(
        command, env={**settings, **hadoop.client(), **python}, cwd=hadoop.folder,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], seconds: float = 400) -> subprocess.CompletedProcess[str]:
    """Its exit code and what it said; spark-submit joins a job's stderr to stdout."""
    said, _ = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, said)


def run(hadoop: Cluster, *job: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A job by spark-submit on YARN, from start to end."""
    return ended(start(hadoop, *job, **settings))


def error(done: subprocess.CompletedProcess[str]) -> str:
    """The line in which a job told what is wrong; it must be one, and no traceback beside it."""
    lines = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stdout[-3000:]
    assert "Traceback" not in done.stdout
    return lines[0]


def manifest(hadoop: Cluster, folder: str) -> dict[str, Any]:
    """What an output says of itself."""
    return json.loads(hadoop.read(f"{folder}/_manifest.json"))


def wait_for(what: str, found: Callable[[], Any], seconds: float = 180) -> Any:
    """What `found` finds as soon as it finds something."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return result


def containers(hadoop: Cluster, application: str, kind: str) -> list[Path]:
    """The logs (stderr, or stdout of drivers) of an application's containers, by the NodeManager that has them."""
    return sorted(hadoop.folder.glob(f"nodemanager-*/logs/{application}/container_*/{kind}"))


def unfinished(log: Path) -> set[str]:
    """The tasks that an executor's log says have begun and not ended."""
    text = log.read_text(errors="replace") if log.exists() else ""
    begun = set(re.findall(r"Running (task \S+ in stage \S+ \(TID \d+\))", text))
    return begun - set(re.findall(r"Finished (task \S+ in stage \S+ \(TID \d+\))", text))


def pid_of(*words: str) -> int:
    """The process whose command line holds these words."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(word in command for word in words) and command.split("\0")[0].endswith("java"):
            return int(folder.name)
    raise AssertionError(f"no process {words}")
