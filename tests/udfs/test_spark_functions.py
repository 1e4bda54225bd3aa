"""The SQL functions in Spark give what the functions of udfs give, in workers that have the code from nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.functions
import pytest
from pyspark.ml.feature import HashingTF

from tests.conftest import corpus
from udfs.functions import FUNCTIONS
from udfs.spark import register
from udfs.text import TextConfig, ngrams, normalize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
NO_UI = "spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
NASTY = ["The cat. A mat!", None, "", "a\tb\nc\r\0\\N", "👩‍🚀 İ", "यह क्षि है", "数据 中文。", "  ", "don’t\u00a0stop"]


@pytest.fixture(scope="module", params=[False, True], ids=["arrow", "pandas"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session with the functions, called in either way, and the table `texts`."""
    if not (request.param or hasattr(pyspark.sql.functions, "arrow_udf")):
        pytest.skip("Spark has no Arrow UDFs before 4.1")
    child = spark.newSession()
    register(child, pandas=request.param)
    child.createDataFrame(list(enumerate(NASTY)), "id int, text string").repartition(2).createOrReplaceTempView("texts")
    yield child
    for name in FUNCTIONS:
        child.sql(f"DROP TEMPORARY FUNCTION IF EXISTS {name}")


def column(session: SparkSession, expression: str) -> list[Any]:
    """An expression's values over the texts, in order."""
    return [row[0] for row in session.sql(f"SELECT {expression}, id FROM texts ORDER BY id").collect()]


def here(name: str, *arguments: pa.Array) -> list[Any]:
    """The same in this process."""
    return FUNCTIONS[name](TextConfig(), *arguments).to_pylist()


def test_the_functions_of_texts(session: SparkSession) -> None:
    texts, one, two = pa.array(NASTY), pa.array([1] * len(NASTY)), pa.array([2] * len(NASTY))
    assert column(session, "normalize(text)") == normalize(texts).to_pylist()
    tokens = column(session, "tokenize(text)")
    assert [[token.asDict() for token in row] for row in tokens] == here("tokenize", texts)
    assert column(session, "ngrams(text, 1, 2)") == here("ngrams", texts, one, two)
    lists = pa.array(here("ngrams", texts, one, two))
    assert column(session, "minhash(ngrams(text, 1, 2), 5)") == here("minhash", lists, pa.array([5] * len(NASTY)))
    assert column(session, "hash_term(text, 1000)") == here("hash_term", texts, pa.array([1000] * len(NASTY)))
    assert column(session, "murmur3(text)") == here("murmur3", texts)
    assert column(session, "lang(text)") == here("lang", texts)
    # In a condition, and with NULL or a list of NULL and others in place of a column.
    assert session.sql("SELECT id FROM texts WHERE size(tokenize(text)) = 4 ORDER BY id").collect() == [
        (0,),
        (3,),
        (6,),
    ]
    query = "SELECT normalize(NULL), tokenize(NULL), hash_term(NULL, 2), minhash(NULL, 2), minhash(array(NULL, 'a'), 1)"
    (row,) = session.sql(query).collect()
    assert tuple(row) == (None, [], None, [], here("minhash", pa.array([["a"]]), pa.array([1]))[0])


def test_the_types_are_those_of_the_signatures(session: SparkSession) -> None:
    calls = {
        "normalize": "text", "tokenize": "text", "ngrams": "text, 1, 1", "hash_term": "text, 9",
        "minhash": "array(text), 3", "murmur3": "text", "lang": "text",
    }  # fmt: skip
    assert calls.keys() == FUNCTIONS.keys()
    for name, arguments in calls.items():
        (field,) = session.sql(f"SELECT {name}({arguments}) FROM texts").schema
        assert field.dataType.simpleString() == FUNCTIONS[name].returns


def test_terms_of_a_corpus_counted_in_sql_are_those_of_the_model(session: SparkSession) -> None:
    from models.features import FeatureConfig

    emails = corpus("emails.jsonl.gz").slice(0, 300)
    counts = FeatureConfig(ngrams=(1, 2)).count(emails["text"]).dictionary
    table = session.createDataFrame([(text,) for text in emails["text"].to_pylist()], "text string")
    table.createOrReplaceTempView("emails")
    found = session.sql(
        "SELECT term, count(DISTINCT id) AS df, count(*) AS cf FROM "
        "(SELECT monotonically_increasing_id() AS id, text FROM emails) "
        "LATERAL VIEW explode(ngrams(text, 1, 2)) AS term GROUP BY term"
    ).collect()
    expected = zip(counts.terms.to_pylist(), counts.df.tolist(), counts.cf.tolist(), strict=True)
    assert {tuple(row) for row in found} == set(expected)


def test_hash_term_is_that_of_sparks_hashing_tf(session: SparkSession) -> None:
    texts = [text for text in NASTY if text]
    judge = HashingTF(numFeatures=1000)
    found = session.sql("SELECT text, hash_term(text, 1000) FROM texts WHERE text <> ''").collect()
    assert dict(map(tuple, found)) == {text: judge.indexOf(text) for text in texts}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ngrams(text, 1, id)", "most is 0 and 1: give one number for all rows"),
        ("ngrams(text, 2, 1)", "n-grams of 2 to 1 tokens"),
        ("ngrams(text, 1, 1.5)", "most is 1.5: give one number for all rows"),
        ("hash_term(text, 0)", "size is 0: give a number from 1 to 2147483647"),
        ("minhash(array(text), NULL)", "count is None: give one number for all rows"),
        ("minhash(array(text), -1)", "count is -1: give a number from 1 on"),
        ("tokenize(text, 1)", "2 arguments are given, not 1: tokenize(text string) -> array<struct<"),
        ("tokenize(id)", "text is of type int"),
    ],
)
def test_a_wrong_argument_is_told(session: SparkSession, call: str, said: str) -> None:
    with pytest.raises(Exception, match="ValueError") as told:
        session.sql(f"SELECT {call} FROM (SELECT * FROM texts ORDER BY id LIMIT 2)").collect()
    assert said in str(told.value)


def test_a_configuration_holds_for_all_functions(spark: SparkSession) -> None:
    child = spark.newSession()
    config = TextConfig(lowercase=False, tokenizer="jieba", user_dict=(("云计算", None),))
    register(child, config)
    (row,) = child.sql("SELECT normalize('A 云计算'), tokenize('A 云计算').token, ngrams('A 云计算', 1, 2)").collect()
    assert list(row) == ["A 云计算", ["A", "云计算"], ngrams(pa.array(["A 云计算"]), 1, 2, config)[0].as_py()]


# What a user's script does, in a session that the arguments ask for.
SCRIPT = """
import sys
from pyspark.sql import SparkSession

sys.path.insert(0, sys.argv[1])
from udfs.spark import register

builder = SparkSession.builder
spark = (builder.remote if sys.argv[2] == "remote" else builder.master)(sys.argv[3]).getOrCreate()
register(spark)
register(spark)  # again
query = "SELECT ngrams('A b. 数据', 1, 2), size(minhash(array('a'), 3)) FROM range(20)"
print([list(row) for row in spark.sql(query).distinct().collect()])
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["master local-cluster[1,1,1024]", "remote local[1]"])
def test_executors_need_nothing_of_textmill(kind: str, tmp_path: Path) -> None:
    """The script is run elsewhere, so that no worker finds the code by its folder."""
    if kind.startswith("remote"):
        pytest.importorskip("grpc", reason="the client of Spark Connect needs pyspark[connect]")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": f"--conf {NO_UI} pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT, *kind.split()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[[['a', 'a b', 'b', '数', '数 据', '据'], 3]]"], done.stderr[-3000:]
