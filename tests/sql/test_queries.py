"""Query files: what is read of them, what is refused, and that no value of a parameter becomes more than a value."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.queries import Parameter, Query, as_table, hive_literal, pieces, read_query
from tests.sql.examples import QUERIES, SQL, example

EVERY = sorted(SQL.rglob("*.sql"))


def write(folder: Path, text: str) -> Path:
    path = folder / "q.sql"
    path.write_text(text, "utf-8")
    return path


def query(folder: Path, text: str) -> Query:
    return read_query(write(folder, text))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.relative_to(SQL).as_posix())
def test_a_file_says_what_it_does_and_holds_what_runs_on_both_engines(path: Path) -> None:
    found = read_query(path)
    text = path.read_text("utf-8")
    assert found.about
    assert not re.search(r"(?<![\w_])hash\(", text), "hash() differs between engines"
    for kind, piece in pieces(found.text):
        assert kind != "quoted" or "\\" not in piece
    if path.parent.name != "ddl":
        assert "In:" in found.about
        assert "Out:" in found.about
    if path in QUERIES:
        shown = example(path)
        values = found.values(shown.settings)
        assert set(found.tables(values)) == set(shown.tables), "the example has other tables than the query reads"


def test_a_header_declares_parameters_with_defaults_bounds_and_choices(tmp_path: Path) -> None:
    found = query(
        tmp_path,
        "-- What it does.\n-- param: t identifier db.t\n-- param: n int 3 (1 to 5)\n-- param: x double -1e-3\n"
        "-- param: s string 'it''s :n'\n-- param: w string a (a|b)\n-- param: q string\n"
        "SELECT ':n', `:n`, a::int, -- :other\n :n, :x, /* :more */ :s, :w, :q FROM :t;\n",
    )
    assert found.parameters == (
        Parameter("t", "identifier", "db.t"),
        Parameter("n", "int", 3, 1.0, 5.0),
        Parameter("x", "double", -0.001),
        Parameter("s", "string", "it's :n"),
        Parameter("w", "string", "a", choices=("a", "b")),
        Parameter("q", "string"),
    )
    values = found.values({"q": "猫", "n": "5"})
    text, bound = found.for_spark(values)
    assert " ".join(text.split()) == "SELECT ':n', `:n`, a::int, :n, :x, :s, :w, :q FROM `db`.`t`"
    assert bound == {"n": 5, "x": -0.001, "s": "it's :n", "w": "a", "q": "猫"}
    written = " ".join(found.for_hive(values).split())
    assert written == (
        "SELECT ':n', `:n`, a::int, 5, cast('-0.001' AS double), decode(unhex('69742773203a6e'), 'UTF-8'), "
        "decode(unhex('61'), 'UTF-8'), decode(unhex('e78cab'), 'UTF-8') FROM `db`.`t`"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-- param: n\nSELECT :n", "is not NAME TYPE"),
        ("-- param: n float 1\nSELECT :n", "is not NAME TYPE"),
        ("-- param: N int 1\nSELECT :N", "is not NAME TYPE"),
        ("-- param: n int x\nSELECT :n", "give a whole number"),
        ("-- param: n int 7 (1 to 5)\nSELECT :n", "give a whole number from 1 to 5"),
        ("-- param: n int x (1 to 1000000)\nSELECT :n", "is 'x': give a whole number from 1 to 1000000"),
        ("-- param: n double 2 (0 to 0.5)\nSELECT :n", "give a number from 0 to 0.5"),
        ("-- param: n int 1\n-- param: n int 2\nSELECT :n", "declared twice"),
        ("-- param: n int 1\nSELECT 1", "not used"),
        ("-- param: n int 1\nSELECT ':n' -- :n", "not used"),
        ("SELECT :n", "not declared"),
        ("SELECT 1; DROP TABLE t", "more than one statement"),
        ("DROP TABLE t", "holds no query"),
        ("", "holds no query"),
        ("SELECT 'a", "does not end"),
        ("SELECT '${hiveconf:x}'", "engines replace"),
        ("SELECT a\\b", "a backslash"),
    ],
)
def test_a_file_that_is_no_query_is_refused_with_its_name(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        query(tmp_path, text)
    assert "q.sql" in str(error.value) or "parameter n" in str(error.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_bytes("SELECT 'é'".encode("latin-1"))
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_query(tmp_path / "q.sql")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "q needs parameter s (string): give --param s=…"),
        ({"s": "x", "z": "1"}, "q has no parameter z: its parameters are t, n, x, s, w"),
        ({"s": "x", "n": "1.5"}, "give a whole number"),
        ({"s": "x", "n": "9223372036854775808"}, "at most 64 bits"),
        ({"s": "x", "n": "١"}, "give a whole number"),
        ({"s": "x", "n": "1 OR 1=1"}, "give a whole number"),
        ({"s": "x", "x": "nan"}, "give a number"),
        ({"s": "x", "x": "1e999"}, "give a number"),
        ({"s": "x", "x": "1)--"}, "give a number"),
        ({"s": "x", "w": "c"}, "choose one of a, b"),
        ({"s": "\ud800"}, "not UTF-8"),
        *(
            ({"s": "x", "t": name}, "give NAME or DATABASE.NAME")
            for name in (
                "", "a b", "a`b", "`a`", "a;b", "a--", "a.b.c", "a.", ".a", "1a", "a'b", "${a}", "tаble", "ｔ", "a\n",
                "a\0", "x" * 129, "a" * 100_000,
            )
        ),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_before_anything_runs(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    found = query(
        tmp_path,
        "-- param: t identifier t\n-- param: n int 1\n-- param: x double 1\n-- param: s string\n"
        "-- param: w string a (a|b)\nSELECT :n, :x, :s, :w FROM :t",
    )
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        found.values(given)
    assert len(str(error.value)) < 300


@given(st.text(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_in_hives_query_is_one_literal_whatever_it_holds(text: str, number: int, share: float) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    literal = re.fullmatch(r"decode\(unhex\('([0-9a-f]*)'\), 'UTF-8'\)", hive_literal(text))
    assert literal
    assert bytes.fromhex(literal[1]).decode() == text
    assert re.fullmatch(r"[0-9]+|\(-[0-9]+\)", hive_literal(number))
    assert int(hive_literal(number).strip("()")) == number
    written = re.fullmatch(r"cast\('([-+.e0-9]+)' AS double\)", hive_literal(share))
    assert written
    assert float(written[1]) == share


def test_rows_are_shown_in_columns_that_line_up_on_a_terminal() -> None:
    shown = as_table(["id", "term", "n"], [("a", "猫", 1), ("b\n", None, 20), ("c", "x" * 90, 3)])
    lines = shown.split("\n")
    assert lines[0].split() == ["id", "term", "n"]
    assert lines[2] == "a   猫" + " " * 59 + "   1"
    assert lines[3].startswith("b�  NULL")
    assert lines[4] == "c   " + "x" * 60 + "…   3"


def test_a_hive_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    """Thrift would log its own traceback."""
    path = write(tmp_path, "SELECT 1 AS a")
    root = SQL.parent
    command = [sys.executable, root / "jobs" / "query.py", path, "--engine", "hive", "--url", "hive2://127.0.0.1:1"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --url hive2://127.0.0.1:1: HiveServer2 does not let us in (")
