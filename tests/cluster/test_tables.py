"""Hive's tables in and out, as Hive and Spark see them, and what readers see while an output is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyhive import hive

from models.features import FeatureModel
from tests.cluster.processes import ROOT, Cluster
from tests.jobs.test_featurize import write_lines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
SUBMIT = Path(sys.executable).with_name("spark-submit")
LOCAL = "--master local[2] --driver-memory 768m"  # the data and the tables are the cluster's
OVERWRITES = 10

# Runs featurize in one session, once for each list of arguments; prints its exit codes.
WRITER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from jobs.featurize import main
from jobs.session import exit_code, stop_spark
for arguments in json.loads(sys.argv[2]):
    print("code", exit_code(main, arguments), flush=True)
stop_spark()
"""

# Polls the features in one session until a file is there; prints what each query gave, or its error.
READER = """
import json, os, sys
from pyspark.sql import SparkSession
source, end = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
while not os.path.exists(end):
    try:
        rows = spark.table(source) if ":" not in source else spark.read.parquet(source)
        rows.createOrReplaceTempView("rows")
        found = spark.sql("select count(*), min(`values`[0]), max(`values`[0]), count(distinct `values`[0]) from rows")
        print(json.dumps(list(found.first())), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
spark.stop()
"""


def environment(hadoop: Cluster, **more: str) -> dict[str, str]:
    """Of a client, with the Python of the tests."""
    return {**os.environ, **hadoop.client(), "PYSPARK_PYTHON": sys.executable, **more}


def started(hadoop: Cluster, code: str, *arguments: str, memory: str = "", **more: str) -> subprocess.Popen[str]:
    """A Python with a Spark session of its own on two cores."""
    env = environment(hadoop, PYSPARK_SUBMIT_ARGS=f"{LOCAL} {memory} pyspark-shell", **more)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=env, cwd=hadoop.folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def featurize(hadoop: Cluster, *runs: list[str], **more: str) -> str:
    """Run featurize for each list of arguments, in one process; what it said on stderr."""
    writer = started(hadoop, WRITER, str(ROOT), json.dumps(runs), **more)
    out, err = writer.communicate(timeout=900)
    codes = [line for line in out.splitlines() if line.startswith("code ")]
    assert codes == ["code 0"] * len(runs), out[-2000:] + err[-4000:]
    return err


@contextmanager
def connected(hadoop: Cluster) -> Iterator[Any]:
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        yield connection.cursor()


def asked(cursor: Any, query: str) -> list[tuple[Any, ...]]:
    """The rows that Hive answers with."""
    cursor.execute(query)
    return list(cursor.fetchall())


FEATURES = "SELECT id, label, indices, `values`, at, price, tags, dt FROM texts.features"


def features(cursor: Any) -> dict[Any, tuple[Any, ...]]:
    """The rows of texts.features by id, as Hive reads them, arrays as lists."""
    found = {}
    for id, label, indices, values, at, price, tags, dt in asked(cursor, FEATURES):
        floats = [float(np.float32(value)) for value in json.loads(values)]
        found[id] = (label, json.loads(indices), floats, str(at), str(price), tags and json.loads(tags), dt)
    return found


def test_a_table_of_hives_becomes_one_that_hive_and_spark_read(hadoop: Cluster, tmp_path: Path) -> None:
    with connected(hadoop) as cursor:
        cursor.execute("CREATE DATABASE texts")
        cursor.execute(
            "CREATE TABLE texts.corpus (id BIGINT, `text` STRING, label STRING, at TIMESTAMP, price DECIMAL(10,2), "
            "tags ARRAY<STRING>) PARTITIONED BY (dt STRING) STORED AS ORC"
        )
        nulls = "cast(NULL AS STRING), NULL, NULL, NULL, split(cast(NULL AS STRING), ' ')"
        day = "INSERT INTO texts.corpus PARTITION (dt = '{}') "
        cursor.execute(
            day.format("2026-11-29")
            + "SELECT 1, '中文 文本 中文', '新闻', timestamp '2026-11-29 12:34:56', 1.50, array('é', 'b') "
            f"UNION ALL SELECT 2, {nulls}"
        )
        cursor.execute(day.format("01") + "SELECT 3, 'plain words 中', 'x', NULL, -2.25, array('c')")
        submit = [
            str(SUBMIT), *LOCAL.split(), str(ROOT / "jobs/featurize.py"), "--input", "table:texts.corpus",
            "--output", "table:texts.features", "--model", "hdfs:///models/texts", "--partition-by", "dt",
        ]  # fmt: skip
        done = subprocess.run(
            submit, env=environment(hadoop), cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert "spark.table('texts.features')" in done.stdout
        rows = features(cursor)
        assert {id: (row[0], *row[3:]) for id, row in rows.items()} == {
            1: ("新闻", "2026-11-29 12:34:56", "1.50", ["é", "b"], "2026-11-29"),
            2: (None, "None", "None", None, "2026-11-29"),
            3: ("x", "None", "-2.25", ["c"], "01"),
        }
        # The same rows by Spark, and the same features by the model without Spark.
        spark = "\n".join([
            "import sys, json", "from pyspark.sql import SparkSession", "spark = SparkSession.builder.getOrCreate()",
            "for row in spark.table('texts.features').collect():",
            "    print('row', json.dumps([row.id, row.label, row.indices, row['values'], str(row.at), str(row.price), "
            "row.tags, row.dt]))",
        ])  # fmt: skip
        reader = started(hadoop, spark, TZ="UTC")
        out, err = reader.communicate(timeout=600)
        found = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("row ")]
        assert {row[0]: tuple(row[1:]) for row in found} == rows, err[-3000:]
        hadoop.fs("-get", "hdfs:///models/texts", str(tmp_path / "model"))
        model = FeatureModel.load(tmp_path / "model")
        named = {id: [model.terms[i].as_py() for i in row[1]] for id, row in rows.items()}
        assert {id: sorted(terms) for id, terms in named.items()} == {
            1: ["中", "文", "本"], 2: [], 3: ["plain", "words", "中"],
        }  # fmt: skip
        properties = dict(row[:2] for row in asked(cursor, "SHOW TBLPROPERTIES texts.features"))
        assert properties["textmill.model_id"] == model.id

        # One day more and one day anew, with the same model; the third stays as it is.
        cursor.execute(day.format("2026-11-30") + f"SELECT 4, {nulls}")
        cursor.execute(day.format("01") + f"SELECT 5, {nulls}")
        featurize(
            hadoop,
            ["--input", "table:texts.corpus", "--where", "dt <> '2026-11-29'", "--output", "table:texts.features",
             "--apply", "hdfs:///models/texts", "--partition-by", "dt"],
        )  # fmt: skip
        after = features(cursor)
        assert {id: after[id] for id in rows} == rows
        assert {id: row[-1] for id, row in after.items() if id > 3} == {4: "2026-11-30", 5: "01"}
        assert asked(cursor, "SELECT dt, count(*) FROM texts.features GROUP BY dt ORDER BY dt") == [
            ("01", 2), ("2026-11-29", 2), ("2026-11-30", 1),
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["table", "folder"])
def test_readers_see_the_old_or_the_new_while_it_is_replaced_ten_times(
    kind: str, hadoop: Cluster, tmp_path: Path, record_property: Any
) -> None:
    """Rows of one model only, and all of them; of a table at any time, of a folder if it finds the files there."""
    rows, place = 300, f"/polled/{kind}"
    write_lines(tmp_path / "in.jsonl", [{"id": str(i), "text": "甲 甲 甲"} for i in range(rows)])
    hadoop.fs("-mkdir", "-p", place)
    hadoop.fs("-put", str(tmp_path / "in.jsonl"), f"{place}/in.jsonl")
    source = "polled.features" if kind == "table" else f"hdfs://localhost:{hadoop.ports['namenode']}{place}/features"
    output = "table:polled.features" if kind == "table" else source
    kinds = ["onehot", "count"] * ((OVERWRITES + 2) // 2)
    runs = [
        ["--input", f"{place}/in.jsonl", "--output", output, "--model", f"{place}/model", "--features", each,
         "--overwrite"] for each in kinds
    ]  # fmt: skip
    with connected(hadoop) as cursor:
        if kind == "table":
            cursor.execute("CREATE DATABASE polled")
        featurize(hadoop, runs[0])
        writer = started(hadoop, WRITER, str(ROOT), json.dumps(runs[1 : OVERWRITES + 1]))
        reader = started(hadoop, READER, source, str(tmp_path / "end"))
        seen: dict[str, list[Any]] = {"hive": [], "spark": []}
        try:
            while writer.poll() is None:
                if kind == "table":
                    (found,) = asked(
                        cursor,
                        "SELECT count(*), min(`values`[0]), max(`values`[0]), count(DISTINCT `values`[0]) "
                        "FROM polled.features",
                    )
                    seen["hive"].append(list(found))
                else:
                    time.sleep(0.5)
        finally:
            (tmp_path / "end").touch()
            said = writer.communicate(timeout=300), reader.communicate(timeout=300)
    assert [line for line in said[0][0].splitlines() if line.startswith("code")] == ["code 0"] * OVERWRITES, said[0]
    seen["spark"] = [json.loads(line) for line in said[1][0].splitlines()]
    states = [[rows, 1.0, 1.0, 1], [rows, 3.0, 3.0, 1]]
    for who, found in seen.items():
        wrong = [each for each in found if each not in states]
        if kind == "folder":
            gone = ("PATH_NOT_FOUND", "FileNotFoundException", "File does not exist")  # also what was listed before
            wrong = [each for each in wrong if not (isinstance(each, str) and any(said in each for said in gone))]
        assert not wrong, (who, wrong)
        if found or kind == "table":
            changes = sum(one != other for one, other in zip(found, found[1:], strict=False))
            record_property(who, f"{len(found)} queries, {changes} changes")
            assert all(state in found for state in states), (who, found)


def test_owner_group_mode_and_acl_of_what_is_replaced_are_kept(hadoop: Cluster, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", [{"id": "a", "text": "a b", "dt": "x"}, {"id": "b", "text": "b", "dt": "y"}])
    hadoop.fs("-mkdir", "-p", "/kept")
    hadoop.fs("-put", str(tmp_path / "in.jsonl"), "/kept/in.jsonl")
    job = ["--input", "/kept/in.jsonl", "--output", "/kept/out", "--model", "/kept/model"]
    days = ["--input", "/kept/in.jsonl", "--output", "/kept/days", "--partition-by", "dt"]
    featurize(hadoop, job, [*days, "--apply", "/kept/model"])
    places = ("/kept/out", "/kept/model", "/kept/days")
    hadoop.fs("-chown", "-R", "alice:staff", *places)
    for place in places:
        hadoop.fs("-chmod", "-R", "u=rwX,g=rX,o-rwx", place)
        hadoop.fs("-setfacl", "-R", "-m", "user:bob:r-x,group:audit:r--", place)
        hadoop.fs("-setfacl", "-m", "default:user:bob:r-x,default:group:audit:r-x", place)
    hadoop.fs("-setfacl", "-R", "-m", "user:eve:rwx", "/kept/days/dt=x")
    before = access(hadoop, "/kept")
    assert "default:user:bob:r-x" in before["/kept/out"]
    assert "# owner: alice\n# group: staff\n" in before["/kept/out/_manifest.json"]
    assert "user:eve:rwx" in before["/kept/days/dt=x/_manifest.json"]
    told = featurize(hadoop, [*job, "--overwrite"], [*days, "--apply", "/kept/model"])
    assert "could not be kept" not in told
    after = access(hadoop, "/kept")
    assert after.keys() & {path for path in before if "part-0" in path} == set()  # all is new
    for path, of in after.items():
        top = next((top for top in (*(f"/kept/days/dt={day}" for day in "xy"), *places) if path.startswith(top)), None)
        if path == "/kept/days/_rejects":  # stays
            assert of == before[path]
        elif top:
            pattern = f"{top}/{'manifest' if top == '/kept/model' else '_manifest'}.json"
            assert of == before[pattern if path.endswith((".json", ".parquet")) else top], path

    # Another user, whom an ACL lets replace it, can't give the new one to alice.
    hadoop.fs("-setfacl", "-R", "-m", "user:carol:rwx", "/kept")
    told = featurize(hadoop, [*job, "--overwrite"], HADOOP_USER_NAME="carol")
    (line,) = [line for line in told.splitlines() if "/kept/out, which is replaced, could not be kept" in line]
    assert "owner (" in line
    assert "group (" in line
    (out,) = [of for path, of in access(hadoop, "/kept").items() if path == "/kept/out"]
    assert "# owner: carol\n" in out
    assert "default:user:bob:r-x" in out


def access(hadoop: Cluster, place: str) -> dict[str, str]:
    """Owner, group and ACL of all at and below a folder, by path."""
    blocks = hadoop.fs("-getfacl", "-R", place).strip().split("\n\n")
    return dict(block.removeprefix("# file: ").split("\n", 1) for block in blocks)
