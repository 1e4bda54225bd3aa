"""Counting, adding up and finding terms, against plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.counts import BlockCounts, TermCounts, TermTable, count_terms, deal_counts, join_counts, merge_counts
from udfs.hashing import hash64
from udfs.text import Spans

few = settings(deadline=None, max_examples=200)
Documents = list[list[list[str]]]  # documents of sentences of tokens


def spans_of(documents: Documents) -> Spans:
    """The tokens as spans of a text that holds them in that order, each followed by a space."""
    data, begin, end, document, sentence, text = bytearray(), [], [], [0], [], [0]
    for sentences in documents:
        for number, tokens in enumerate(sentences):
            for token in tokens:
                begin.append(len(data))
                data += token.encode()
                end.append(len(data))
                sentence.append(number)
                data += b" "
        document.append(len(begin))
        text.append(len(data))
    return Spans(
        np.frombuffer(bytes(data), np.uint8),
        np.array(begin, np.int64),
        np.array(end, np.int64),
        np.array(document, np.int64),
        np.array(sentence, np.int32),
        np.array(text, np.int64),
    )


def plain(sentences: list[list[str]], ngrams: tuple[int, int], stop: set[str], through: bool) -> list[str]:
    """All n-grams of a document, the definition."""
    found = []
    for tokens in sentences:
        runs: list[list[str]] = [[]]
        for token in tokens:
            if token not in stop:
                runs[-1].append(token)
            elif not through:
                runs.append([])
        for run in runs:
            for n in range(ngrams[0], ngrams[1] + 1):
                found += [" ".join(run[i : i + n]) for i in range(len(run) - n + 1)]
    return found


def rows(counts: BlockCounts) -> list[dict[str, int]]:
    terms = counts.dictionary.terms.to_pylist()
    ends = counts.indptr
    return [
        {terms[i]: int(tf) for i, tf in zip(counts.ids[a:b], counts.tf[a:b], strict=True)}
        for a, b in zip(ends, ends[1:], strict=False)
    ]


def totals(counts: TermCounts) -> dict[str, tuple[int, int]]:
    """Term to (df, cf); each term once."""
    found = {
        term: (int(df), int(cf)) for term, df, cf in zip(counts.terms.to_pylist(), counts.df, counts.cf, strict=True)
    }
    assert len(found) == len(counts.terms)
    return found


def check(
    documents: Documents, ngrams: tuple[int, int] = (1, 1), stop: set[str] | None = None, through: bool = True
) -> BlockCounts:
    """Count, and compare everything with a plain counter."""
    stop = stop or set()
    table = TermTable.build(pa.array(sorted(stop), pa.string())) if stop else None
    counts = count_terms(spans_of(documents), ngrams, table, through)
    expected = [Counter(plain(sentences, ngrams, stop, through)) for sentences in documents]
    assert rows(counts) == expected
    df = Counter(term for row in expected for term in row)
    cf: Counter[str] = Counter()
    for row in expected:
        cf.update(row)
    assert totals(counts.dictionary) == {term: (df[term], cf[term]) for term in cf}
    kept = [sum(token not in stop for tokens in sentences for token in tokens) for sentences in documents]
    assert counts.lengths.tolist() == kept
    kinds = [counts.indptr, counts.ids, counts.tf, counts.lengths, counts.dictionary.df, counts.dictionary.cf]
    assert [array.dtype for array in kinds] == [np.int64, np.int32, np.int32, np.int32, np.int64, np.int64]
    assert counts.dictionary.terms.type == pa.large_string()
    counts.dictionary.terms.validate(full=True)
    return counts


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 2), (1, 3), (2, 4), (3, 3), (1, 10)])
def test_counts_are_those_of_a_plain_counter(ngrams: tuple[int, int]) -> None:
    check(
        [
            [["the", "cat", "sat", "the", "cat", "sat"], ["the", "cat"]],
            [],
            [["the"]],
            [["a", "a", "a", "a", "a"], ["a"]],
            [["the", "cat", "sat", "on", "a", "mat"]],
        ],
        ngrams,
    )


def test_terms_and_entries_are_in_order_of_first_use() -> None:
    counts = check([[["b", "a", "b"]], [["c", "b"]]])
    assert counts.dictionary.terms.to_pylist() == ["b", "a", "c"]
    assert counts.ids.tolist() == [0, 1, 2, 0]
    assert counts.tf.tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize("documents", [[], [[]], [[], [[]], []]])
@pytest.mark.parametrize("ngrams", [(1, 1), (1, 3)])
def test_no_tokens_are_no_terms(documents: Documents, ngrams: tuple[int, int]) -> None:
    counts = check(documents, ngrams)
    assert len(counts.dictionary.terms) == 0
    assert counts.indptr.tolist() == [0] * (len(documents) + 1)


def test_a_document_shorter_than_n_has_no_ngram() -> None:
    counts = check([[["a", "b"]], [["a", "b", "c"]]], (3, 5))
    assert counts.dictionary.terms.to_pylist() == ["a b c"]


def test_ngrams_end_with_the_sentence_and_with_the_document() -> None:
    counts = check([[["a", "b"], ["c"]], [["d"]]], (2, 2))
    assert counts.dictionary.terms.to_pylist() == ["a b"]


@pytest.mark.parametrize(("through", "bigrams"), [(True, ["cat on", "on mat", "mat dog"]), (False, ["on mat"])])
def test_ngrams_reach_across_a_stop_word_only_if_asked(through: bool, bigrams: list[str]) -> None:
    documents = [[["the", "cat", "the", "the", "on", "mat", "the", "dog", "the"]]]
    counts = check(documents, (2, 2), {"the"}, through)
    assert counts.dictionary.terms.to_pylist() == bigrams


def test_only_stop_words_leave_an_empty_row() -> None:
    counts = check([[["the", "a"]], [["cat"]], [["a"]]], (1, 2), {"the", "a"})
    assert counts.lengths.tolist() == [0, 1, 0]


def test_a_token_that_only_begins_like_a_stop_word_stays() -> None:
    check([[["th", "the", "then", "thethethe", "thethethet"]]], (1, 2), {"the", "thethethe"})


def test_tokens_that_share_their_first_bytes_are_told_apart() -> None:
    prefix = "a" * 40
    tokens = [prefix[:k] for k in range(1, 41)] + [prefix[:k] + "b" for k in range(40)] + ["b" + prefix]
    check([[tokens], [tokens[::-1]], [tokens[::3]]], (1, 2))


@pytest.mark.parametrize("size", [7, 8, 9, 15, 16, 17, 24, 25, 300, 70_000])
def test_tokens_of_any_length(size: int) -> None:
    first, last = "x" + "é" * (size // 2), "é" * (size // 2) + "x"
    check([[[first, last, first]], [[last]], [[first[:-1]]]], (1, 2))


def test_zero_bytes_are_part_of_a_token() -> None:
    check([[["a", "a\0", "a\0\0", "\0", "\0a", "a\0b\0c\0d\0e", "a\0b\0c\0d\0"]]], (1, 2))


def test_the_same_ngram_from_other_tokens_is_one_dictionary_entry_each_way() -> None:
    """Tokens hold no space by construction of the tokenizers; n-grams of different tokens then differ as text."""
    check([[["a", "b", "a", "b", "a"]], [["b", "a", "b"]]], (1, 4))


@pytest.mark.parametrize("ngrams", [(1, 1), (1, 2), (2, 3)])
def test_tables_grow_within_one_document_and_across_documents(ngrams: tuple[int, int]) -> None:
    one = [[[f"w{i}" for i in range(40_000)]]]
    many = [[[f"{d}-{i}" for i in range(300)] + ["again"] * 3] for d in range(150)]
    check(one + many + one + [[["again", "w7"]]], ngrams)


def test_counts_survive_growth_in_the_middle() -> None:
    """Terms seen before a table grows are found again after it."""
    small = [[["early", "bird", f"x{i}", "early"]] for i in range(20)]
    big = [[[f"token-number-{i}" for i in range(30_000)]]]
    check(small + big + small, (1, 3), {"bird"})


def colliding(words: int, length: int) -> list[bytes]:
    """Words of `length` (8 or 16) ASCII bytes, equal but for the last 8, whose hash64 agree in tag and lowest 15 bits.

    The last step of the hash can be undone: words are computed from the hashes that they are to have.
    """
    odd, factor, full = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, (1 << 64) - 1
    inverse = pow(factor, -1, 1 << 64)
    before = (length * odd) & full
    if length == 16:
        head = int.from_bytes(b"sameHead", "little")
        before = (before ^ head) * factor & full
        before ^= before >> 32
    slot = 0x1234
    for tag in range(1, 1 << 20):
        middle = np.arange(1 << 17, dtype=np.uint64) << np.uint64(15)
        h = np.uint64(tag << 32 | slot) | middle
        h ^= h >> np.uint64(32)
        word = (h * np.uint64(inverse)) ^ np.uint64(before)
        graphic = word.view(np.uint8).reshape(-1, 8)
        good = ((graphic > 32) & (graphic < 127)).all(axis=1)
        if good.sum() >= words:
            tails = [w.tobytes() for w in word[good][:words]]
            return [b"sameHead" * (length // 8 - 1) + tail for tail in tails]
    raise AssertionError("no collision found")


@pytest.mark.parametrize("length", [8, 16])
def test_words_with_the_same_slot_and_tag_are_told_apart(length: int, tmp_path: Path) -> None:
    words = colliding(6, length)
    data = np.frombuffer(b"".join(words), np.uint8)
    hashes = [int(hash64(data, i * length, (i + 1) * length)) for i in range(len(words))]
    assert len({(h >> 32, h & 0x7FFF) for h in hashes}) == 1  # they do collide
    assert len(set(hashes)) == len(words)
    texts = [word.decode("ascii") for word in words]
    check([[texts + texts[::-1]], [texts[2:4]], [texts[5:]]], (1, 2))
    check([[texts]], (1, 2), set(texts[1:3]), False)
    table = TermTable.build(pa.array(texts[:4]))
    assert table.find(pa.array(texts)).tolist() == [0, 1, 2, 3, -1, -1]
    parts = [TermCounts(pa.array([text], pa.large_string()), np.ones(1, int), np.ones(1, int)) for text in texts * 2]
    assert totals(merge_counts(parts)) == dict.fromkeys(texts, (2, 2))


words = st.sampled_from(["a", "b", "ab", "the", "é", "中", "longer-than-eight", "longer-than-eighteen"]) | st.text(
    st.characters(codec="utf-8", exclude_characters=" "), min_size=1, max_size=20
)
documents_of_words = st.lists(st.lists(st.lists(words, max_size=12), max_size=4), max_size=6)
ranges = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@few
@given(documents_of_words, ranges, st.sets(words, max_size=3), st.booleans())
def test_law_counts_are_those_of_a_plain_counter(
    documents: Documents, ngrams: tuple[int, int], stop: set[str], through: bool
) -> None:
    check(documents, ngrams, stop, through)


@few
@given(documents_of_words, ranges, st.integers(0, 6))
def test_law_two_blocks_add_up_to_one(documents: Documents, ngrams: tuple[int, int], at: int) -> None:
    whole = count_terms(spans_of(documents), ngrams)
    parts = [count_terms(spans_of(part), ngrams) for part in (documents[:at], documents[at:])]
    assert rows(parts[0]) + rows(parts[1]) == rows(whole)
    assert totals(merge_counts([part.dictionary for part in parts])) == totals(whole.dictionary)


# Sums of counts.


def term_counts(values: dict[str, tuple[int, int]]) -> TermCounts:
    df, cf = (np.array([pair[k] for pair in values.values()], np.int64) for k in (0, 1))
    return TermCounts(pa.array(list(values), pa.large_string()), df, cf)


@few
@given(st.lists(st.dictionaries(words | st.just(""), st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 60)))))
def test_law_merged_counts_are_the_sum_of_counters(parts: list[dict[str, tuple[int, int]]]) -> None:
    merged = merge_counts([term_counts(part) for part in parts])
    df: Counter[str] = Counter()
    cf: Counter[str] = Counter()
    for part in parts:
        df.update({term: pair[0] for term, pair in part.items()})
        cf.update({term: pair[1] for term, pair in part.items()})
    assert totals(merged) == {term: (df[term], cf[term]) for part in parts for term in part}
    assert merged.terms.to_pylist() == list(dict.fromkeys(term for part in parts for term in part))


@few
@given(st.lists(st.dictionaries(words | st.just(""), st.tuples(st.integers(0, 99), st.integers(0, 99)))))
def test_law_sums_of_shards_are_the_shards_of_the_sum(parts: list[dict[str, tuple[int, int]]]) -> None:
    counts = [term_counts(part) for part in parts]
    dealt = [deal_counts(part, 8) for part in counts]
    together = deal_counts(join_counts(counts), 8)
    for number in range(8):
        merged = merge_counts([shards[number] for shards in dealt])
        assert totals(merged) == totals(merge_counts([together[number]]))
    assert sum(len(shard.terms) for shard in together) == sum(map(len, parts))


def test_terms_are_dealt_evenly() -> None:
    counts = term_counts({f"term{number}": (1, 1) for number in range(64_000)})
    sizes = [len(shard.terms) for shard in deal_counts(counts, 64)]
    assert 850 < min(sizes) <= max(sizes) < 1150  # 1000 on average, five standard deviations


def test_nothing_merged_is_nothing() -> None:
    merged = merge_counts([])
    assert (len(merged.terms), len(merged.df), len(merged.cf)) == (0, 0, 0)


def test_slices_of_counts_are_merged_as_they_are() -> None:
    whole = pa.array(["zero", "one", "two", "three"], pa.large_string())
    parts = [TermCounts(whole[k:], np.arange(k, 4), np.arange(k, 4) * 10) for k in range(4)]
    expected = {"zero": (0, 0), "one": (2, 20), "two": (6, 60), "three": (12, 120)}
    assert totals(merge_counts(parts)) == expected


# The hash table of terms.


@few
@given(st.lists(words | st.just(""), unique=True, max_size=60), st.lists(words, max_size=20))
def test_law_a_table_finds_what_it_holds_and_nothing_else(terms: list[str], others: list[str]) -> None:
    table = TermTable.build(pa.array(terms, pa.string()))
    assert table.find(pa.array(terms, pa.string())).tolist() == list(range(len(terms)))
    place = {term: i for i, term in enumerate(terms)}
    assert table.find(pa.array(others, pa.large_string())).tolist() == [place.get(term, -1) for term in others]
    assert table.find(pa.array(others, pa.string())).dtype == np.int32


def test_a_large_table_finds_all_its_terms() -> None:
    terms = pa.array([f"term {i}" for i in range(100_000)])
    assert np.array_equal(TermTable.build(terms).find(terms), np.arange(100_000))
    assert set(TermTable.build(terms).find(pa.array([f"no term {i}" for i in range(1000)])).tolist()) == {-1}


@pytest.mark.parametrize("repeated", ["a", "", "longer than eight bytes"])
def test_a_repeated_term_is_refused(repeated: str) -> None:
    with pytest.raises(ValueError, match="occurs twice") as raised:
        TermTable.build(pa.array(["x", repeated, "y", repeated]))
    assert repr(repeated) in str(raised.value)


@pytest.mark.parametrize("terms", [[], ["a"], [""], ["", "é", "中文", "a b c", "longer than eight bytes"]])
def test_a_saved_table_is_the_same_when_opened(terms: list[str], tmp_path: Path) -> None:
    weights = np.linspace(0.5, 9.5, len(terms))
    table = TermTable.build(pa.array(terms, pa.string()), weights)
    table.save(tmp_path / "table")
    opened = TermTable.open(tmp_path / "table")
    assert opened.find(pa.array([*terms, "absent"])).tolist() == [*range(len(terms)), -1]
    assert np.array_equal(opened.weights, weights)
    assert all(isinstance(part.base, np.memmap | np.ndarray) for part in (opened.slots, opened.weights))
    assert not opened.slots.flags.writeable
    opened.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "table").read_bytes()


def test_a_slice_of_a_longer_column_is_saved_alone(tmp_path: Path) -> None:
    column = pa.array(["not this", "one", "two", "nor this"])
    TermTable.build(column[1:3]).save(tmp_path / "table")
    assert TermTable.open(tmp_path / "table").find(column).tolist() == [-1, 0, 1, -1]
    assert b"this" not in (tmp_path / "table").read_bytes()


def saved(folder: Path) -> bytes:
    TermTable.build(pa.array([f"term {i}" for i in range(20)])).save(folder / "table")
    return (folder / "table").read_bytes()


@pytest.mark.parametrize("keep", [0, 1, 23, 24, 25, 500, -1])
def test_a_table_cut_short_is_refused(keep: int, tmp_path: Path) -> None:
    whole = saved(tmp_path)
    (tmp_path / "cut").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match="not a whole term table") as raised:
        TermTable.open(tmp_path / "cut")
    assert "cut" in str(raised.value)


def test_a_table_with_more_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(saved(tmp_path) + b"\0")
    with pytest.raises(ValueError, match="not a whole term table"):
        TermTable.open(tmp_path / "long")


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("value", [0, -1, 7, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_a_table_with_a_damaged_head_is_refused(number: int, value: int, tmp_path: Path) -> None:
    whole = saved(tmp_path)
    head = np.frombuffer(whole[:24], np.int64).copy()
    head[number] = value
    (tmp_path / "damaged").write_bytes(head.tobytes() + whole[24:])
    with pytest.raises(ValueError, match="not a whole term table"):
        TermTable.open(tmp_path / "damaged")


def test_a_missing_table_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        TermTable.open(tmp_path / "absent")
