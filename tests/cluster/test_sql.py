"""All queries, run in their order by one command on HiveServer2, give what the Python functions give."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyhive import hive

from jobs import query, session
from jobs.queries import read_query
from tests.cluster.processes import ROOT, Cluster
from tests.sql.examples import SQL
from tests.sql.nasty import SPLITS, VALUES, VIEWS, WORDS
from tests.sql.reference import PARAMS, REFERENCE, TABLES, Row, assert_same, write_tables

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
NAMES = (SQL / "ORDER").read_text().split()
ENGINES = {"mr": (), "tez": ("hive.execution.engine=tez", "tez.local.mode=true")}


@pytest.fixture(scope="module")
def archives(hadoop: Cluster, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The code, and in place of the packed environment, which test_transform.py takes, one that calls this Python."""
    folder = tmp_path_factory.mktemp("archives")
    subprocess.run([sys.executable, "-m", "jobs.package", folder / "textmill.zip"], check=True, cwd=ROOT)
    with tarfile.open(folder / "environment.tgz", "w:gz") as packed:
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode()
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(python), 0o755
        packed.addfile(entry, io.BytesIO(python))
    for name in ("textmill.zip", "environment.tgz"):
        hadoop.put(folder / name, f"/sql/{name}")
    return [f"{hadoop.hdfs}/sql/{name}" for name in ("textmill.zip", "environment.tgz")]


@pytest.fixture(scope="module")
def cursor(hadoop: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session that sees, in the database of each engine, the tables from which the queries start."""
    places = write_tables(tmp_path_factory.mktemp("tables") / "tables")
    for name, place in places.items():
        hadoop.put(place / "part-0.parquet", f"/sql/{name}/part-0.parquet")
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL", username="root") as connection:
        one = connection.cursor()
        for engine in ENGINES:
            one.execute(f"CREATE DATABASE sql_{engine}")
            for name, (columns, _) in TABLES.items():
                one.execute(
                    f"CREATE EXTERNAL TABLE sql_{engine}.{name} ({columns}) STORED AS PARQUET "
                    f"LOCATION '{hadoop.hdfs}/sql/{name}'"
                )
        yield one


def run(hadoop: Cluster, engine: str, *arguments: str) -> int:
    """The exit code of jobs/query.py on Hive."""
    url = f"hive2://root@localhost:{hadoop.ports['hiveserver2']}/sql_{engine};auth=NOSASL"
    conf = [f"--hive-conf={setting}" for setting in ENGINES[engine]]
    return session.exit_code(query.main, ["--engine", "hive", "--url", url, *conf, *arguments])


@pytest.fixture(scope="module", params=ENGINES)
def engine(hadoop: Cluster, cursor: Any, archives: list[str], request: pytest.FixtureRequest) -> str:
    """The engine that has run all queries, which read each other's results."""
    params = [f"--param={name}={value}" for name, value in PARAMS.items()]
    resources = [f"--resource={uri}" for uri in archives]
    output = f"--output=database:sql_{request.param}"
    assert run(hadoop, request.param, str(SQL), *params, *resources, output) == 0
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_hive_gives_what_python_gives(cursor: Any, engine: str, name: str) -> None:
    cursor.execute(f"SELECT * FROM sql_{engine}.`{name}`")
    rows: list[Row] = cursor.fetchall()
    assert_same(rows, REFERENCE[name](), 1.2e-7 if name == "features" else 1e-12)


@pytest.mark.parametrize("idf", ["plain", "ml"])
@pytest.mark.parametrize("norm", ["l2", "l1", "none"])
def test_every_form_of_tfidf(
    hadoop: Cluster, cursor: Any, engine: str, idf: str, norm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if engine != "mr":
        return
    settings = {"idf": idf, "norm": norm, "sublinear_tf": int(norm == "l1")}
    given = [f"--param={name}={value}" for name, value in settings.items()]
    assert run(hadoop, engine, str(SQL / "tfidf.sql"), *given, "--output=table:sql_mr.form", "--overwrite") == 0
    assert "rows in sql_mr.form" in capsys.readouterr().out
    cursor.execute("SELECT * FROM sql_mr.form")
    assert_same(cursor.fetchall(), REFERENCE["tfidf"](**settings))  # type: ignore[call-arg]


def test_what_is_typed_wrong_is_told_in_a_line(
    hadoop: Cluster, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.sql").write_text("-- param: t identifier documents\nSELECT nothing FROM :t")
    for arguments, why in (
        ([str(SQL / "quality.sql"), "--param=documents=absent"], "quality reads table absent, which is not there"),
        ([str(SQL / "quality.sql"), "--output=table:documents"], "--output documents exists: give --overwrite"),
        ([str(SQL / "quality.sql"), "--output=somewhere"], "on Hive give table:NAME"),
        ([str(tmp_path / "wrong.sql")], "Invalid table alias or column reference 'nothing'"),
        ([str(SQL / "quality.sql"), "--hive-conf=a;b=1"], "is no name of a setting"),
        ([str(SQL / "quality.sql"), "--resource=hdfs:///no/such.zip"], "no/such.zip"),
        ([str(SQL / "quality.sql"), "--resource=x; DROP TABLE y"], "is no plain URI"),
    ):
        assert run(hadoop, engine, *arguments) == 2, arguments
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert len(said) == 1
        assert why in said[0], said


def test_a_plan_and_rows_are_printed(hadoop: Cluster, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(hadoop, engine, str(SQL / "vocabulary.sql"), "--explain") == 0
    assert {"mr": "STAGE DEPENDENCIES", "tez": "Reducer 2 <- Map 1"}[engine] in capsys.readouterr().out
    assert run(hadoop, engine, str(SQL / "label_distribution.sql"), "--rows=2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["label", "documents", "share"]
    assert len(lines) == 5
    assert lines[-1].startswith("… and more rows")


def ask(cursor: Any, path: Path, text: str, **given: str) -> list[Row]:
    path.write_text(text, "utf-8")
    found = read_query(path)
    cursor.execute(found.for_hive(found.values(given)))
    return cursor.fetchall()


@pytest.fixture(scope="module")
def words(hadoop: Cluster, cursor: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    maps = [{"x": 1, "y": 2}, {}, None, None]
    columns = {
        "id": pa.array([id for id, _ in WORDS], pa.int32()),
        "w": pa.array([w for _, w in WORDS], pa.list_(pa.string())),
        "m": pa.array([m and list(m.items()) for m in maps], pa.map_(pa.string(), pa.int32())),
    }
    place = tmp_path_factory.mktemp("words") / "words.parquet"
    pq.write_table(pa.table(columns), place)
    hadoop.put(place, "/sql/words/part-0.parquet")
    cursor.execute(
        "CREATE EXTERNAL TABLE sql_mr.words (id int, w array<string>, m map<string,int>) STORED AS PARQUET "
        f"LOCATION '{hadoop.hdfs}/sql/words'"
    )
    return "sql_mr.words"


@pytest.mark.parametrize("name", VIEWS)
def test_lateral_view(cursor: Any, words: str, tmp_path: Path, name: str) -> None:
    text, wanted = VIEWS[name]
    found = ask(cursor, tmp_path / "q.sql", f"-- param: t identifier {words}\n{text}")
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_a_value_stays_a_value_whatever_it_holds(cursor: Any, tmp_path: Path) -> None:
    cursor.execute("CREATE TABLE IF NOT EXISTS sql_mr.victims (id int)")
    cursor.execute("USE sql_mr")
    for value in VALUES:
        text = "-- param: s string\nSELECT hex(:s) AS s, length(:s) AS n, ':s' AS t"
        assert ask(cursor, tmp_path / "q.sql", text, s=value) == [(value.encode().hex().upper(), len(value), ":s")]
    cursor.execute("SHOW TABLES LIKE 'victims'")
    assert cursor.fetchall() == [("victims",)]


def test_patterns_of_character_classes_split_as_in_spark(cursor: Any, tmp_path: Path) -> None:
    for text, (pattern, parts) in SPLITS.items():
        for given in ("'" + pattern + "'", ":p"):
            query = f"-- param: s string\n-- param: p string\nSELECT split(:s, {given}) AS w, :p AS p"
            assert json.loads(ask(cursor, tmp_path / "q.sql", query, s=text, p=pattern)[0][0]) == parts
