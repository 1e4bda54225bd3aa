"""Text functions on columns: normalise, tokenise, n-grams, and the spans of tokens that all features are made from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import stopwordsiso

from udfs import segment
from udfs.arrays import is_text, string_buffers
from udfs.chinese import Segmenter, UserWords, segmenter
from udfs.unicode_tables import SPACE, WORD, normalizer, tables, token_breaks

UNICODE = ("NFC", "NFKC", "none")
TOKENIZERS = ("word", "whitespace", "regex", "sklearn", "char", "char_wb", "jieba")
CHARACTERS = ("char", "char_wb")  # tokenizers whose n-grams are written without spaces between
_USER_WORD = re.compile("(.+?)(?: +([0-9]+))?(?: +[a-z]+)?")  # jieba's re_userdict


@dataclass(frozen=True)
class TextConfig:
    """How text is normalised and cut into tokens.

    unicode: "NFC", "NFKC", or "none": no normal form, no removal of ignorables, no mapping of U+2019.
    lowercase: full lower-casing of Unicode 15.0 without a locale. strip_accents: letters of Latin, Greek and Cyrillic
    without their combining marks.
    tokenizer: "word", UAX #29 segments that hold a letter or a number; "whitespace", maximal runs of anything but white
    space; "sklearn", scikit-learn's default pattern; "char", each character, with one space for white space of two or
    more; "char_wb", each character of the runs of anything but white space, with a space before and after these;
    "regex", with `pattern`, a Python `re` pattern that matches tokens (its one capturing group, if it has one, is the
    token); "jieba", what jieba cuts Chinese text into and that holds a letter or a number, with the words of
    `user_dict`, normalised as the text is, kept whole.
    Of the word tokenizer only: keep_urls, URLs and e-mail addresses are one token each (see `segment.addresses`);
    emoji, so are the emoji of UTS #51 (see `segment.emoji`), and what joins their characters stays in the normal form.
    ValueError for any other value.
    """

    unicode: str = "NFC"
    lowercase: bool = True
    tokenizer: str = "word"
    pattern: str | None = None
    strip_accents: bool = False
    keep_urls: bool = False
    emoji: bool = False
    user_dict: UserWords = ()

    def __post_init__(self) -> None:
        for name, choices in (("unicode", UNICODE), ("tokenizer", TOKENIZERS)):
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}: choose one of {', '.join(choices)}")
        for name in ("lowercase", "strip_accents", "keep_urls", "emoji"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}: choose True or False")
        if self.strip_accents and self.unicode == "none":
            raise ValueError("strip_accents needs a normal form: choose unicode NFC or NFKC, or leave it out")
        for name, tokenizer in (("keep_urls", "word"), ("emoji", "word"), ("user_dict", "jieba")):
            if getattr(self, name) and self.tokenizer != tokenizer:
                raise ValueError(
                    f"{name.replace('_', '-')} has no meaning with tokenizer {self.tokenizer!r}:"
                    f" leave it out, or choose {tokenizer}"
                )
        if (self.tokenizer == "regex") != (self.pattern is not None):
            raise ValueError(
                f"tokenizer {self.tokenizer!r} {'lacks a pattern' if self.pattern is None else 'takes no pattern'}:"
                " give a pattern with the regex tokenizer and with no other"
            )
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groups
            except (re.error, TypeError, OverflowError, RecursionError) as error:
                raise ValueError(f"pattern {self.pattern!r} is no Python regular expression: {error}") from error
            if groups > 1:
                raise ValueError(
                    f"pattern {self.pattern!r} has {groups} capturing groups, at most 1 is allowed:"
                    " write (?:…) for the others"
                )
        if not isinstance(self.user_dict, tuple) or not all(
            isinstance(word, str) and word and (count is None or (isinstance(count, int) and count >= 0))
            for word, count in self.user_dict
        ):
            raise ValueError(f"user-dict is {self.user_dict!r:.100}: give a tuple of (word, frequency or None)")

    @cached_property
    def segmenter(self) -> Segmenter:
        """What cuts Chinese text for the tokenizer jieba."""
        return segmenter(self.user_dict)


class Spans(NamedTuple):
    """Tokens as byte ranges of the normalised text of all documents."""

    data: npt.NDArray[np.uint8]  # the normalised text (for char and char_wb: its layout) in UTF-8, document by document
    begin: npt.NDArray[np.int64]  # [tokens] byte offsets into data
    end: npt.NDArray[np.int64]  # [tokens]
    document: npt.NDArray[np.int64]  # [documents + 1]: tokens document[i]:document[i + 1] belong to document i
    sentence: npt.NDArray[np.int32]  # [tokens] number of the sentence in its document, zeros unless asked for; for
    # char_wb always that of the word, negative where the token is a whole word
    text: npt.NDArray[np.int64]  # [documents + 1] byte offsets of each document in data


def normalize(text: pa.Array | pa.ChunkedArray, config: TextConfig = TextConfig()) -> pa.Array:
    """Each text in its normal form; null stays null. Idempotent.

    With NFC or NFKC (UAX #15): that form; without Default_Ignorable_Code_Point characters, save ZWJ and ZWNJ between
    letters of scripts that need them and, where asked for, those inside emoji; U+2019 as U+0027; full lower-casing with
    final sigma, no locale; where asked for, without the marks on letters of Latin, Greek and Cyrillic; the form again.
    With "none" only the lower-casing. All by Unicode 15.0. An invalid UTF-8 byte becomes U+FFFD.
    text: string, large_string or a dictionary of them, chunked or not. Returns string or large_string as `text` is.
    ValueError for any other type, or where the result of a string array would pass 2 GiB.
    """
    strings = _strings(text)
    data, offsets = _normalized(strings, config)
    validity = None
    if strings.null_count:
        validity = pa.py_buffer(np.packbits(np.asarray(strings.is_valid()), bitorder="little"))
    return _string_array(data, offsets, strings.type, validity)


def tokenize(text: pa.Array | pa.ChunkedArray, config: TextConfig = TextConfig()) -> pa.Array:
    """The tokens of each text after `normalize`, list<string>; null gives an empty list. Takes what `normalize` takes.

    ValueError where the tokens of one call would pass 2 GiB.
    """
    found = spans(text, config)
    return _lists(found.document, _token_strings(found))


def tokens(text: pa.Array | pa.ChunkedArray, config: TextConfig = TextConfig()) -> pa.StructArray:
    """Per text the columns of TOKENS as lists of equal length: sentence, position, token, begin_at, end_at.

    position counts the tokens of the document from 0; begin_at and end_at are code points into the normalised text.
    All int32, token string. Takes what `normalize` takes; null gives empty lists.
    """
    found = spans(text, config, sentences=True)
    begin, end = segment.code_points(found.data, found.text, found.document, found.begin, found.end)
    position = _count_up(np.diff(found.document))
    columns = {
        "sentence": pa.array(found.sentence),
        "position": pa.array(position.astype(np.int32)),
        "token": _token_strings(found),
        "begin_at": pa.array(begin),
        "end_at": pa.array(end),
    }
    return pa.StructArray.from_arrays([_lists(found.document, column) for column in columns.values()], list(columns))


def ngrams(
    text: pa.Array | pa.ChunkedArray, least: int = 1, most: int = 1, config: TextConfig = TextConfig()
) -> pa.Array:
    """The terms of each text in its order, list<string>: n-grams of `least` to `most` tokens within a sentence.

    By their first token, then by length; joined by a space, those of the tokenizers char and char_wb by nothing. With
    char_wb a word of fewer than `least` characters is one term. The counts of the main job count these. Takes what
    `normalize` takes; null gives an empty list. ValueError unless 1 <= least <= most.
    """
    if not 1 <= least <= most:
        raise ValueError(f"n-grams of {least} to {most} tokens: give two numbers from 1 on, the smaller one first")
    found = spans(text, config, sentences=most > 1, shortest=least)
    token = np.arange(len(found.begin))
    document = np.repeat(np.arange(len(found.document) - 1), np.diff(found.document))
    last = np.flatnonzero(np.append((np.diff(document) != 0) | (np.diff(found.sentence) != 0), True)[: len(token)])
    rest = np.repeat(last, np.diff(last, prepend=-1)) - token + 1  # tokens from here to the end of the sentence
    whole = found.sentence < 0
    shortest = np.where(whole, 1, least)
    begun = np.where(whole, 1, np.maximum(0, np.minimum(rest, most) - least + 1))  # n-grams that begin with a token
    first = np.repeat(token, begun)
    size = _count_up(begun) + np.repeat(shortest, begun)
    of_terms = np.repeat(first, size) + _count_up(size)
    parts = _token_strings(found).take(pa.array(of_terms))
    ends = np.append(0, np.cumsum(size)).astype(np.int64)
    words = pa.LargeListArray.from_arrays(pa.array(ends), parts)
    terms = pc.binary_join(words, "" if config.tokenizer in CHARACTERS else " ")
    return _lists(np.append(0, np.cumsum(begun))[found.document], terms)


def _count_up(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0, 1, … size - 1 for each size."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def spans(
    text: pa.Array | pa.ChunkedArray, config: TextConfig = TextConfig(), sentences: bool = False, shortest: int = 1
) -> Spans:
    """The tokens of each text after `normalize` as byte ranges, with sentence numbers where asked for.

    Takes what `normalize` takes; null is an empty document. For the rule of sentences see `segment.sentences`: it is
    one for all tokenizers. With char_wb, a word of fewer than `shortest` characters is one token (as in scikit-learn).
    """
    data, offsets = _normalized(_strings(text), config)
    properties = tables().properties
    if config.tokenizer == "char":
        return _characters(data, offsets, properties, sentences)
    if config.tokenizer == "char_wb":
        return _characters_of_words(data, offsets, properties, shortest)
    if config.tokenizer == "word" and (config.keep_urls or config.emoji):
        begin, end, document = _words_and_wholes(data, offsets, config)
    elif config.tokenizer == "word":
        begin, end, document = segment.words(data, offsets, token_breaks())
    elif config.tokenizer == "whitespace":
        begin, end, document = segment.runs(data, offsets, properties, SPACE, 0, 1)
    elif config.tokenizer == "sklearn":
        begin, end, document = segment.runs(data, offsets, properties, WORD, WORD, 2)
    elif config.tokenizer == "jieba":
        begin, end, document = _in_strings(data, offsets, config.segmenter.spans)
    else:
        pattern = re.compile(config.pattern or "")
        begin, end, document = _in_strings(data, offsets, lambda text: _matches(text, pattern))
    if sentences:
        sentence = segment.sentences(data, offsets, document, begin, properties)
    else:
        sentence = np.zeros(len(begin), np.int32)
    return Spans(data, begin, end, document, sentence, offsets)


def _characters(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], properties: npt.NDArray[np.uint32], sentences: bool
) -> Spans:
    """A span for each character, with one space for each run of two or more white space characters."""
    begin, end, _ = segment.runs(data, offsets, properties, SPACE, SPACE, 2)
    inside = np.zeros(len(data) + 1, np.int8)
    inside[begin + 1] += 1
    inside[end] -= 1
    kept = np.flatnonzero(np.cumsum(inside[:-1], dtype=np.int8) == 0)
    laid_out = data[kept]
    laid_out[np.searchsorted(kept, begin)] = ord(" ")
    text = np.searchsorted(kept, offsets)
    first = _first_bytes(laid_out)
    document = np.searchsorted(first, text)
    if sentences:
        sentence = segment.sentences(data, offsets, document, kept[first], properties)
    else:
        sentence = np.zeros(len(first), np.int32)
    return Spans(laid_out, first, np.append(first[1:], len(laid_out)), document, sentence, text)


def _characters_of_words(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], properties: npt.NDArray[np.uint32], shortest: int
) -> Spans:
    """A span for each character of each word with a space before and after, or for a short word as a whole."""
    begin, end, words = segment.runs(data, offsets, properties, SPACE, 0, 1)
    word = np.append(0, np.cumsum(end - begin + 2))
    letters = np.ones(word[-1], bool)
    letters[word[:-1]] = letters[word[1:] - 1] = False
    laid_out = np.full(word[-1], ord(" "), np.uint8)
    laid_out[letters] = segment.gather(data, begin, end)[0]
    first = _first_bytes(laid_out)
    ends = np.searchsorted(first, word)  # of words, in characters
    size = np.diff(ends)
    number = np.arange(1, len(size) + 1, dtype=np.int32) - np.repeat(words[:-1], np.diff(words)).astype(np.int32)
    whole = size < shortest
    kept = ~np.repeat(whole, size)
    kept[ends[:-1]] = True
    begin = first[kept]
    document = np.append(0, np.cumsum(np.where(whole, 1, size)))[words]
    sentence = np.repeat(np.where(whole, -number, number), np.where(whole, 1, size)).astype(np.int32)
    return Spans(laid_out, begin, np.append(begin[1:], len(laid_out)), document, sentence, word[words])


def _first_bytes(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where each code point begins."""
    return np.flatnonzero(data & 0xC0 != 0x80)


@lru_cache
def _languages() -> frozenset[str]:
    return frozenset(stopwordsiso.langs())


def stop_words(spec: str, config: TextConfig = TextConfig()) -> list[str]:
    """Stop words as the tokenizer would give them: sorted, unique.

    spec: language codes of the stopwordsiso package, separated by commas, or the path of a UTF-8 file of one word a
    line. An entry that is not exactly one token after normalisation (of several words, or cut by the tokenizer) is left
    out, since no token could equal it. ValueError for an unknown language or a file that is not UTF-8.
    """
    codes = [code.strip() for code in spec.split(",")]
    unknown = [code for code in codes if code not in _languages()]
    if not unknown:
        entries = sorted(set().union(*(stopwordsiso.stopwords(code) for code in codes)))
    elif os.path.isfile(spec):  # False for what can't be a name, too
        entries = _lines(spec, "file of stop words")
    else:
        raise ValueError(
            f"stop words {spec[:50]!r}: {unknown[0]!r} is neither a file nor a language with stop words:"
            f" give the path of a file, or choose among {', '.join(sorted(_languages()))}"
        )
    column = pa.array([entry.strip() for entry in entries], pa.string())
    whole = normalize(column, config).to_pylist()
    found = tokenize(column, config).to_pylist()
    return sorted({entry for entry, parts in zip(whole, found, strict=True) if parts == [entry]})


def user_words(path: str, config: TextConfig = TextConfig()) -> UserWords:
    """The words of a user dictionary, normalised, each with its frequency or None, in order of the file.

    path: a file in jieba's format: UTF-8, a line for each word; behind it, after spaces, a frequency and a tag of small
    letters if wanted (the tag is left aside). ValueError for a file that is missing or not UTF-8.
    """
    if not os.path.isfile(path):
        raise ValueError(f"the user dictionary {path} is no file: give a UTF-8 file, a word a line")
    matches = [_USER_WORD.fullmatch(line.strip()) for line in _lines(path, "user dictionary")]
    found = [(match[1].strip(), match[2]) for match in matches if match]
    words = normalize(pa.array([word for word, _ in found], pa.string()), config).to_pylist()
    counts = (int(count) if count else None for _, count in found)
    return tuple((word, count) for word, count in zip(words, counts, strict=True) if word)


def _lines(path: str, what: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"the {what} {path} is not UTF-8 ({error}): save the file as UTF-8") from error


def _strings(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """`text` as plain strings."""
    kind = text.type
    if pa.types.is_dictionary(kind):
        text = text.cast(kind.value_type)
    elif pa.types.is_null(kind):
        text = text.cast(pa.string())
    if not is_text(text.type):
        raise ValueError(f"text is of type {kind}: cast it to string or large_string")
    return text


def _normalized(
    strings: pa.Array | pa.ChunkedArray, config: TextConfig
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    data, offsets = string_buffers(strings)
    data.flags.writeable = False  # as Arrow's own buffers are, else an empty column would compile the kernel anew
    table = normalizer(config.unicode, config.lowercase, config.strip_accents, config.emoji)
    return segment.normalize_all(
        data, offsets, table, config.unicode != "none", config.lowercase, config.strip_accents, config.emoji
    )


def _string_array(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: pa.DataType, validity: pa.Buffer | None = None
) -> pa.Array:
    if pa.types.is_string(kind):
        if offsets[-1] > np.iinfo(np.int32).max:
            raise ValueError(f"the strings hold {offsets[-1]} bytes, at most 2147483647 fit: pass fewer texts a call")
        offsets = offsets.astype(np.int32)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def _token_strings(found: Spans) -> pa.Array:
    data, offsets = segment.gather(found.data, found.begin, found.end)
    return _string_array(data, offsets, pa.string())


def _lists(ends: npt.NDArray[np.int64], values: pa.Array) -> pa.Array:
    if len(values) > np.iinfo(np.int32).max:
        raise ValueError(f"there are {len(values)} tokens, at most 2147483647 fit: pass fewer documents a call")
    return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values)


def _in_strings(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], find: Callable[[str], Iterable[tuple[int, int]]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """What `find` finds in each document, in code points: begin, end, document as `segment.words` gives them."""
    # Byte offsets of all code points, to turn what `find` returns into bytes.
    starts = np.append(_first_bytes(data), len(data))
    bases = np.searchsorted(starts, offsets)
    found: list[tuple[int, int]] = []
    document = np.zeros(len(offsets), np.int64)
    for d in range(len(offsets) - 1):
        string = data[offsets[d] : offsets[d + 1]].tobytes().decode()
        found.extend((bases[d] + begin, bases[d] + end) for begin, end in find(string))
        document[d + 1] = len(found)
    points = np.array(found, np.int64).reshape(-1, 2)
    return starts[points[:, 0]], starts[points[:, 1]], document


def _matches(text: str, pattern: re.Pattern[str]) -> Iterable[tuple[int, int]]:
    """The non-empty matches of a pattern, or of its group."""
    spans = (match.span(pattern.groups) for match in pattern.finditer(text))
    return ((begin, end) for begin, end in spans if begin < end)


def _words_and_wholes(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], config: TextConfig
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """URLs, addresses and emoji, as far as asked for, and the words between them, as `segment.words` returns them."""
    properties = tables().properties
    begin = end = np.empty(0, np.int64)
    if config.keep_urls:
        begin, end = segment.addresses(data, offsets, properties)
    if config.emoji:
        more, more_end = segment.emoji(data, np.sort(np.concatenate([offsets, begin, end])), properties)
        outside = np.searchsorted(begin, more, "right") == np.searchsorted(end, more, "right")  # of all addresses
        begin, end = (np.sort(np.append(*both)) for both in ((begin, more[outside]), (end, more_end[outside])))
    pieces = np.unique(np.concatenate([offsets, begin, end]))
    first, last, piece = segment.words(data, pieces, token_breaks())
    outside = np.repeat(~np.isin(pieces[:-1], begin), np.diff(piece))
    begin, end = (np.sort(np.append(*both)) for both in ((begin, first[outside]), (end, last[outside])))
    return begin, end, np.searchsorted(begin, offsets)
