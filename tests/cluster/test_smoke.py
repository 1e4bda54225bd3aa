"""The cluster is up, and the main job runs there from start to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyhive import hive

from tests.cluster.processes import ROOT, Cluster
from tests.cluster.submit import FEATURIZE, manifest, run
from tests.conftest import DATA, MODEL_ID


def test_featurize_runs_on_yarn_from_hdfs_to_hdfs_with_the_shipped_code(hadoop: Cluster, tmp_path: Path) -> None:
    archive = tmp_path / "textmill.zip"
    subprocess.run([sys.executable, "-m", "jobs.package", archive], check=True, cwd=ROOT)
    hadoop.put(DATA / "emails.jsonl.gz", "/in/emails.jsonl.gz")
    script = tmp_path / "featurize.py"  # alone: the code comes from the zip
    script.write_bytes(FEATURIZE.read_bytes())
    before = {each["id"] for each in hadoop.applications()}  # other tests of this cluster ran applications too
    places = ("--input", "/in", "--output", "/out/features", "--model", "/out/model")
    done = run(hadoop, *places, script=script, options=("--py-files", archive))
    assert done.returncode == 0, done.stdout[-3000:]
    assert manifest(hadoop, "/out/features")["model_id"] == MODEL_ID
    assert [each["finalStatus"] for each in hadoop.applications() if each["id"] not in before] == ["SUCCEEDED"]


def test_hive_answers_a_query(hadoop: Cluster) -> None:
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT word, count(*) FROM (SELECT explode(split('a b a', ' ')) AS word) AS t GROUP BY word")
        assert sorted(cursor.fetchall()) == [("a", 2), ("b", 1)]
