"""Splits: the same content in the same part, shares that hold, time in order with its ties together, clear refusals."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.splits import PARTS, Split, content_heads, contents, sortable

GOLDEN = [
    "128d8d111c092d1b29c8228c9d7840e5",
    "d3c044f1047b7bdf4b8fad293c82c98a",
    "b54f2a18d59b39fa88ad247eb8d09c76",
    "5c54e08755b16d15ba04e1cf3f082e29",
    "00000000000000000000000000000000",
]
GOLDEN_PARTS = ["train", "test", "test", "train", "train"]
HASH = Split.parse("hash:0.8,0.1,0.1")


def parts(split: Split, **columns: Any) -> list[str]:
    return [PARTS[code] for code in split.of(pa.table(columns))]


def test_hash_parts_have_their_shares() -> None:
    content = contents(pa.array([f"document {number}" for number in range(20_000)]))
    found = Counter(parts(HASH, content=content))
    assert abs(found["train"] - 16_000) < 250
    assert abs(found["test"] - 2_000) < 180
    assert sum(found.values()) == 20_000
    assert {*parts(Split.parse("hash:0.5,0.5"), content=content)} == {"train", "test"}


def test_parts_of_known_texts_never_change() -> None:
    """Of another machine, day or version: a moved document would be trained on and tested on."""
    texts = ["Cats sleep.", "猫在睡觉。", "बिल्ली सोती है", "😀", ""]
    content = contents(pa.array(texts))
    assert [value.hex() for value in content.to_pylist()] == GOLDEN
    assert parts(Split.parse("hash:0.5,0.25,0.25"), content=content) == GOLDEN_PARTS


@given(st.lists(st.text(max_size=20), max_size=30))
def test_equal_normalised_texts_are_one_content(texts: list[str]) -> None:
    whole = contents(pa.array(texts, pa.string()))
    assert all(contents(pa.array([text]))[0] == each for text, each in zip(texts, whole, strict=True))
    half = whole.slice(len(texts) // 2)
    assert content_heads(half).tolist() == content_heads(whole).tolist()[len(texts) // 2 :]
    assert contents(pa.array(["CAFE\u0301"])) == contents(pa.array(["café"]))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.sampled_from(["hash:0.6,0.4", "hash:0.2,0.3,0.5"]))
def test_a_document_keeps_its_part_whatever_else_is_there(numbers: list[int], spec: str) -> None:
    split = Split.parse(spec)
    content = contents(pa.array([str(number) for number in numbers]))
    assert parts(split, content=content) == [parts(split, content=content.slice(k, 1))[0] for k in range(len(numbers))]


def test_times_of_any_type_are_cut_in_order() -> None:
    day = datetime.date(2024, 1, 1)
    for times, cutoffs in (
        ([1, 5, 9], (5, 9)),
        ([day, day.replace(day=5), day.replace(month=2)], (19727, 19754)),
        ([datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 3)],
         (86_400_000_000, 172_800_000_000)),
        ([0.5, 1.5, 2.5], (1.5, 2.5)),
        ([Decimal("0.5"), Decimal("1.5"), Decimal("2.5")], (1.5, 2.5)),
        (["2023-12-31", "2024-01-01", "2024-01-02"], ("2024-01-01", "2024-01-02")),
    ):  # fmt: skip
        split = replace(Split.parse("time:at,0.8,0.1,0.1"), cutoffs=cutoffs)
        assert parts(split, at=pa.array(times)) == list(PARTS)
        assert Split.from_dict(json.loads(json.dumps(split.to_dict()))) == split
    two = replace(Split.parse("time:at,0.8,0.2"), cutoffs=(5,))
    assert parts(two, at=[4, 5]) == ["train", "test"]


@pytest.mark.parametrize("times", [[1, None], [float("nan")], ["2024", None]])
def test_a_missing_time_is_refused(times: list[Any]) -> None:
    with pytest.raises(ValueError, match="a time is null"):
        sortable(pa.array(times))


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(TypeError, match="bool"):
        sortable(pa.array([True]))


def test_a_column_names_the_parts_and_nothing_else() -> None:
    split = Split.parse("column:fold")
    assert parts(split, fold=["test", "train", "validation"]) == ["test", "train", "validation"]
    for bad, shown in ((["train", None], "null"), (["Test"], "'Test'"), ([1], "'1'")):
        with pytest.raises(ValueError, match=f"{shown} is no part: its values must be train, validation, test"):
            split.of(pa.table({"fold": bad}))


@pytest.mark.parametrize(("text", "why"), [
    ("0.8,0.1,0.1", "give hash:"), ("random:0.8,0.2", "give hash:"), ("column:", "give hash:"),
    ("time:,0.8,0.2", "give hash:"),
    ("hash:0.8,0.1", "shares above 0 that add up to 1"), ("hash:1", "1 shares"), ("hash:1.0,0,0", "shares above 0"),
    ("hash:a,b", "no numbers"), ("hash:nan,0.5,0.5", "shares above 0"), ("time:at", "0 shares"),
])  # fmt: skip
def test_a_split_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Split.parse(text)
