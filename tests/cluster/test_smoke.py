"""The cluster is up, and the main job runs there from start to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pyhive import hive

from tests.cluster.processes import ROOT, Cluster
from tests.conftest import DATA

MODEL_ID = "40aca41de81631c111a7d3ff83721e30"  # README's
SUBMIT = Path(sys.executable).with_name("spark-submit")


def test_featurize_runs_on_yarn_from_hdfs_to_hdfs_with_the_shipped_code(hadoop: Cluster, tmp_path: Path) -> None:
    archive = tmp_path / "textmill.zip"
    subprocess.run([sys.executable, "-m", "jobs.package", archive], check=True, cwd=ROOT)
    hadoop.fs("-mkdir", "-p", "/in")
    hadoop.fs("-put", str(DATA / "emails.jsonl.gz"), "/in/emails.jsonl.gz")
    script = tmp_path / "featurize.py"  # alone: the code comes from the zip
    script.write_bytes((ROOT / "jobs/featurize.py").read_bytes())
    options = ["--master", "yarn", "--num-executors", "1", "--executor-memory", "640m", "--py-files", str(archive)]
    for name, value in hadoop.spark_conf().items():
        options += ["--conf", f"{name}={value}"]
    job = [str(script), "--input", "/in", "--output", "/out/features", "--model", "/out/model"]
    environment = {**os.environ, **hadoop.client(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(SUBMIT), *options, *job], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(hadoop.fs("-cat", "/out/features/_manifest.json"))["model_id"] == MODEL_ID
    applications = hadoop.applications()
    assert [each["finalStatus"] for each in applications] == ["SUCCEEDED"]


def test_hive_answers_a_query(hadoop: Cluster) -> None:
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT word, count(*) FROM (SELECT explode(split('a b a', ' ')) AS word) AS t GROUP BY word")
        assert sorted(cursor.fetchall()) == [("a", 2), ("b", 1)]
