"""Texts that break SQL where a value is pasted into it, and the rows of LATERAL VIEW, for both engines."""

from __future__ import annotations

from typing import Any

VALUES = [
    "",
    "'",
    "''",
    "' OR '1'='1",
    "'; DROP TABLE victims; --",
    "\\",
    "\\'; DROP TABLE victims; --",
    '"',
    "`",
    "a`; DROP TABLE victims; --",
    "-- no comment",
    "/* nor this */",
    "*/ 1 /*",
    "${hiveconf:hive.execution.engine}",
    "${system:user.name}",
    "$HOME `id` $(id)",
    ":s",
    "%s %(x)s {0}",
    "decode(unhex('41'), 'UTF-8')",
    "line\nline\r\n\ttab",
    "\0\x01",
    "ＤＲＯＰ ʼ ′ ＇ ‘ ’",  # look-alikes of quotes and letters
    "猫 बिल्ली 🐈‍⬛ \u202e",
    "x" * 50_000,
]
WORDS: list[tuple[int, list[str | None] | None]] = [(1, ["a", "b"]), (2, []), (3, None), (4, [None])]
VIEWS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {  # of t (id int, w array<string>, m map<string, int>)
    "explode drops rows of null and empty arrays": (
        "SELECT t.id, e.x FROM :t t LATERAL VIEW explode(t.w) e AS x",
        [(1, "a"), (1, "b"), (4, None)],
    ),
    "outer keeps each row": (
        "SELECT t.id, e.x FROM :t t LATERAL VIEW OUTER explode(t.w) e AS x",
        [(1, "a"), (1, "b"), (2, None), (3, None), (4, None)],
    ),
    "outer keeps them where only the word is asked for": (
        "SELECT e.x FROM :t t LATERAL VIEW OUTER explode(t.w) e AS x",
        [("a",), ("b",), (None,), (None,), (None,)],
    ),
    "only the position tells an empty array from a null word": (
        "SELECT t.id, e.p, e.x FROM :t t LATERAL VIEW OUTER posexplode(t.w) e AS p, x",
        [(1, 0, "a"), (1, 1, "b"), (2, None, None), (3, None, None), (4, 0, None)],
    ),
    "a map gives its keys and values": (
        "SELECT t.id, e.k, e.v FROM :t t LATERAL VIEW explode(t.m) e AS k, v",
        [(1, "x", 1), (1, "y", 2)],
    ),
    "outer keeps a row without a map": (
        "SELECT t.id, e.k, e.v FROM :t t LATERAL VIEW OUTER explode(t.m) e AS k, v",
        [(1, "x", 1), (1, "y", 2), (2, None, None), (3, None, None), (4, None, None)],
    ),
    "chained views multiply": (
        "SELECT t.id, a.x, b.k FROM :t t LATERAL VIEW explode(t.w) a AS x LATERAL VIEW explode(t.m) b AS k, v",
        [(1, "a", "x"), (1, "a", "y"), (1, "b", "x"), (1, "b", "y")],
    ),
    "an outer view behind a plain one": (
        "SELECT t.id, a.x, b.k FROM :t t LATERAL VIEW explode(t.w) a AS x LATERAL VIEW OUTER explode(t.m) b AS k, v",
        [(1, "a", "x"), (1, "a", "y"), (1, "b", "x"), (1, "b", "y"), (4, None, None)],
    ),
    "documents are counted, not their words": (
        "SELECT count(DISTINCT t.id), count(e.x), count(*) FROM :t t LATERAL VIEW OUTER explode(t.w) e AS x",
        [(4, 2, 5)],
    ),
}
SPLITS: dict[str, tuple[str, list[str]]] = {  # by patterns of character classes, the same in every dialect
    "a|b": ("[|]", ["a", "b"]),
    "a s  b": ("[ ]+", ["a", "s", "b"]),
    "a.b": ("[.]", ["a", "b"]),
}
