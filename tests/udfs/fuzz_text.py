"""Throw strings at the text layer: python -m tests.udfs.fuzz_text --count 1000000 --seed 1.

Asserts for each that the normal form is valid UTF-8 and its own normal form, that the quick way and the full one agree,
and that tokens, offsets and sentence numbers agree with one another. Stops at the first string that fails, with its
column's seed.
"""

from __future__ import annotations

import argparse
import itertools
import random

import numpy as np
import pyarrow as pa

from tests.udfs.test_text import ADDRESSES, EMOJI, TRICKY
from udfs import segment, unicode_tables
from udfs.text import TextConfig, normalize, spans, tokenize, tokens

CONFIGS = [
    *itertools.starmap(
        TextConfig, itertools.product(("NFC", "NFKC", "none"), (True, False), ("word", "whitespace", "sklearn"))
    ),
    *(TextConfig(form, lowercase, strip_accents=True) for form in ("NFC", "NFKC") for lowercase in (True, False)),
    *(
        TextConfig(form, lowercase, keep_urls=True, emoji=True)
        for form in ("NFC", "NFKC", "none")
        for lowercase in (True, False)
    ),
    TextConfig(strip_accents=True, emoji=True),
    TextConfig(tokenizer="jieba"),
    TextConfig(tokenizer="jieba", user_dict=(("क्ष", None), ("1, 2", 5), ("中文", 0), ("a σ", None))),
]
COLUMN = 1000
ASCII = "".join(map(chr, range(128)))
JOINERS = "क\u094d\u200d\u200c\u034f\u093cष\u0308س\u064b Σ'"
MARKS = "a" + "".join(map(chr, range(0x300, 0x370)))


def string(random_: random.Random) -> str:
    """One string of up to 40 characters from one or several of the pools."""
    pools = random_.sample([ASCII, TRICKY, JOINERS, MARKS, EMOJI, ADDRESSES, None], random_.choice([1, 1, 2, 3]))
    characters = []
    for _ in range(random_.choice([0, 1, 2, 4, 8, 16, 40])):
        pool = random_.choice(pools)
        if pool is None:
            point = random_.randrange(random_.choice([0x250, 0x3000, 0x10000, 0x110000]))
            characters.append(chr(point) if not 0xD800 <= point < 0xE000 else "\u0301")
        else:
            characters.append(random_.choice(pool))
    return "".join(characters)


def check(column: list[str], config: TextConfig) -> None:
    """Every law for every string of a column."""
    text = pa.array(column)
    form = normalize(text, config)
    form.validate(full=True)
    assert normalize(form, config).equals(form), "not idempotent"
    table = unicode_tables.normalizer(config.unicode, config.lowercase, config.strip_accents, config.emoji)
    settings = (config.unicode != "none", config.lowercase, config.strip_accents, config.emoji)
    strings = form.to_pylist()
    for source, whole in zip(column, strings, strict=True):
        points = np.array([ord(character) for character in source], np.int32)
        full = segment.normalize_points(points, table, *settings)
        assert "".join(map(chr, full)) == whole, f"the quick way differs: {source!a}"
    cut = tokenize(text, config)
    cut.validate(full=True)
    found = tokens(text, config).to_pylist()
    ends = spans(text, config)
    assert ends.data.tobytes() == "".join(strings).encode()
    for whole, parts, row in zip(strings, cut.to_pylist(), found, strict=True):
        at = list(zip(row["begin_at"], row["end_at"], strict=True))
        assert [whole[begin:end] for begin, end in at] == parts == row["token"], f"offsets: {whole!a}"
        assert all(begin < end for begin, end in at), f"empty token: {whole!a}"
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(at)), f"overlap: {whole!a}"
        assert row["sentence"] == sorted(row["sentence"]), f"sentences: {whole!a}"
        if config.tokenizer == "whitespace":
            assert parts == whole.split(), f"white space: {whole!a}"
        own = {word for word, _ in config.user_dict}
        assert not any(c.isspace() for part in parts if part not in own for c in part), f"white space: {whole!a}"


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="strings to try")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for number in range(-(-arguments.count // COLUMN)):
        random_ = random.Random(f"{arguments.seed}-{number}")
        column = [string(random_) for _ in range(min(COLUMN, arguments.count - number * COLUMN))]
        try:
            check(column, CONFIGS[number % len(CONFIGS)])
        except AssertionError as error:
            raise SystemExit(f"seed {arguments.seed}-{number}, {CONFIGS[number % len(CONFIGS)]}: {error}") from error
    print(f"{arguments.count} strings, seed {arguments.seed}: all laws hold")  # noqa: T201


if __name__ == "__main__":
    main()
