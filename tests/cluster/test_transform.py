"""The text functions in Hive by TRANSFORM, with what is shipped and nothing else, give what they give here."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyhive import hive

from tests.cluster.processes import ROOT, Cluster
from tests.test_docs import blocks
from tests.udfs.test_hive_script import NASTY
from udfs.functions import FUNCTIONS
from udfs.text import TextConfig

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
ENVIRONMENT = ROOT / "build/environment.tgz"
TEXTS = dict(enumerate(NASTY)) | {None: "of a null id"}
CODE = "ADD ARCHIVE hdfs:///textmill/textmill.zip"
GIVEN = "TRANSFORM(hex(cast(id AS string)), hex(text))"


@pytest.fixture(scope="module")
def cursor(hadoop: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the code as an archive, and a table of nasty texts."""
    folder = tmp_path_factory.mktemp("transform")
    subprocess.run([sys.executable, "-m", "jobs.package", folder / "textmill.zip"], check=True, cwd=ROOT)
    rows = (("\\N" if cell is None else str(cell).encode().hex() for cell in row) for row in TEXTS.items())
    (folder / "rows").write_text("".join("\t".join(row) + "\n" for row in rows))
    hadoop.put(folder / "rows", "/transform/in/rows")
    hadoop.put(folder / "textmill.zip", "/textmill/textmill.zip")
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        one = connection.cursor()
        for statement in (
            "CREATE DATABASE transforming",
            "USE transforming",
            "CREATE EXTERNAL TABLE digits (id string, text string) ROW FORMAT DELIMITED FIELDS TERMINATED BY '\\t' "
            "LOCATION '/transform/in'",
            "CREATE TABLE texts STORED AS ORC AS SELECT cast(cast(unhex(id) AS string) AS int) AS id, "
            "cast(unhex(text) AS string) AS text FROM digits",
            CODE,
        ):
            one.execute(statement)
        yield one


def asked(cursor: Any, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, in order."""
    cursor.execute(query)
    return sorted(cursor.fetchall(), key=lambda row: [(cell is None, cell) for cell in row])


def script(*command: object) -> str:
    return " ".join([sys.executable, "textmill.zip/udfs/hive.py", *map(str, command)])


def expected(name: str, *numbers: int) -> list[tuple[Any, Any]]:
    """What a function of text gives in this process."""
    columns = [pa.array([number] * len(TEXTS)) for number in numbers]
    found = FUNCTIONS[name](TextConfig(), pa.array(TEXTS.values(), pa.string()), *columns).to_pylist()
    return list(zip(TEXTS, found, strict=True))


def test_the_table_holds_the_texts_as_they_are(cursor: Any) -> None:
    assert asked(cursor, "SELECT id, text FROM texts") == list(TEXTS.items())


@pytest.mark.usefixtures("cursor")
def test_tokens_on_yarn_by_the_packed_environment_as_the_page_shows(hadoop: Cluster) -> None:
    assert ENVIRONMENT.exists(), "no build/environment.tgz: make environment"
    hadoop.fs("-put", str(ENVIRONMENT), "/textmill/environment.tgz")
    (shown,) = blocks("docs/functions.md", "sql hive")
    *archives, query, _ = (statement.strip() for statement in shown.split(";"))
    settings = ("USE transforming", "SET mapreduce.framework.name=yarn", "SET mapreduce.map.memory.mb=1024")
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        cursor = connection.cursor()
        for statement in (*settings, *archives):
            cursor.execute(statement)
        found = asked(cursor, query)
    rows = [(id, *token.values()) for id, tokens in expected("tokenize") for token in tokens]
    assert sorted(found, key=str) == sorted(((None if id is None else str(id), *row) for id, *row in rows), key=str)
    assert hadoop.applications()[0]["finalStatus"] == "SUCCEEDED"


def test_the_other_functions(cursor: Any) -> None:
    texts = asked(
        cursor,
        "SELECT cast(cast(unhex(id) AS string) AS int), cast(unhex(text) AS string) FROM "
        f"(SELECT {GIVEN} USING '{script('normalize')}' AS (id string, text string) FROM texts) AS t",
    )
    assert texts == expected("normalize")
    indices = asked(
        cursor,
        "SELECT cast(cast(unhex(id) AS string) AS int), `index` FROM "
        f"(SELECT {GIVEN} USING '{script('hash_term', 1000)}' AS (id string, `index` int) FROM texts) AS t",
    )
    assert indices == expected("hash_term", 1000)
    terms = f"SELECT {GIVEN} USING '{script('ngrams', 1, 2)}' AS (id string, terms string) FROM texts"
    found = asked(
        cursor,
        "SELECT cast(cast(unhex(id) AS string) AS int), cast(unhex(term) AS string) FROM "
        f"({terms}) AS t LATERAL VIEW explode(split(terms, ',')) each AS term WHERE term <> ''",
    )
    assert [row for row in found if row[0] is not None] == sorted(
        (id, term) for id, terms in expected("ngrams", 1, 2) for term in terms if id is not None
    )
    signatures = asked(
        cursor,
        "SELECT cast(cast(unhex(id) AS string) AS int), signature FROM "
        f"(SELECT TRANSFORM(id, terms) USING '{script('minhash', 8)}' AS (id string, signature string) "
        f"FROM ({terms}) AS t) AS s",
    )
    of_terms = FUNCTIONS["minhash"](
        TextConfig(), pa.array([row[1] for row in expected("ngrams", 1, 2)]), pa.array([8] * len(TEXTS))
    )
    assert signatures == [(id, ",".join(map(str, row))) for id, row in zip(TEXTS, of_terms.to_pylist(), strict=True)]


def test_a_text_that_is_not_in_hexadecimal_fails_the_query_and_tells_the_row(hadoop: Cluster, cursor: Any) -> None:
    wrong = "TRANSFORM(hex(cast(id AS string)), text)"
    with pytest.raises(hive.OperationalError):
        asked(cursor, f"SELECT {wrong} USING '{script('tokens')}' AS (a string) FROM texts WHERE id = 0")
    told = (
        "hive.py: row 1 has no hexadecimal text but b'The cat. A mat!': give hex(cast(text AS string)), and NULL as \\N"
    )
    end = time.monotonic() + 30
    while told not in hadoop.log("hiveserver2").read_text(errors="replace"):
        assert time.monotonic() < end
        time.sleep(0.5)
