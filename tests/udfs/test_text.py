"""The text functions: their definitions by example, and the laws that hold for any text."""

from __future__ import annotations

import logging
import marshal
import os
import re
import tempfile
import time
import unicodedata
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from udfs import chinese, segment, unicode_tables
from udfs.text import Spans, TextConfig, ngrams, normalize, spans, stop_words, tokenize, tokens, user_words

DEFAULT = TextConfig()
TRICKY = (
    "aZßıIİiΣσςοΟ'’.,:;!?_-\"«»“”()[]0123٣४ \t\n\r\x0b\x1c\x85\xa0\u2028\u3000"
    "\u0300\u0301\u0304\u0307\u0308\u0315\u0316\u0323\u031b\u0327\u0345\u034f\u05b0\u064b\u0651\u093c\u094d\u09be\u0dcf"
    "\u200b\u200c\u200d\u2060\u00ad\ufeff\ufe0f\u180e\u115f\u1160\u3164\uffa0"
    "אבश क्षডাරශسमക്മᠠကក가각힣각ㄱあアｱﾞー々中文。、！？．"
    "\uff9e\u202f\u200dℹ"
    "🇩🇪🇫👩👍🏽❤ⓂℹK\u212bﬁŉǅ①½²Å\u1e9b\u0958\u2adc\ufb1d\U0001d15e\U0001d6ba\U0001e900\u0000\ufffd"
)
EMOJI = "👩🚀❤☝ⓂⓜℹA©#1🏽🏴🇩🇪\u200d\ufe0f\ufe0e\u20e3\U000e0067\U000e007f\u200b↔\u0338 "
ADDRESSES = ["http://", "HTTPS://", "ftp://", "www.", "a", "é", "1", "@", ".cc", *".:/?#[]()'-_,!% 中，。\u0308"]
addresses = st.lists(st.sampled_from(ADDRESSES), max_size=12).map("".join)
texts = (
    st.text(st.sampled_from(TRICKY) | st.characters(codec="utf-8"), max_size=30)
    | st.text(st.sampled_from("क\u094d\u200d\u200c\u034f\u093cष\u0308س Σ'"), max_size=12)
    | st.text(st.sampled_from(EMOJI), max_size=12)
    | addresses
)
OWN = (("क्ष", None), ("1/2 a", 5), ("中文", 0), ("文中", 9), ("a σ", None))
configs = st.builds(
    TextConfig,
    st.sampled_from(["NFC", "NFKC", "none"]),
    st.booleans(),
    st.sampled_from(["word", "whitespace", "sklearn"]),
) | st.sampled_from(
    [
        TextConfig(tokenizer="regex", pattern=r"(?:^|\W)(\w*)|[.]"),
        TextConfig(strip_accents=True),
        TextConfig("NFKC", False, strip_accents=True),
        TextConfig(keep_urls=True),
        TextConfig(emoji=True),
        TextConfig("NFKC", False, strip_accents=True, keep_urls=True, emoji=True),
        TextConfig("none", keep_urls=True, emoji=True),
        TextConfig(tokenizer="jieba"),
        TextConfig("NFKC", False, "jieba", user_dict=OWN),
    ]
)
few = settings(deadline=None, max_examples=300)


def normal(text: str, config: TextConfig = DEFAULT) -> str:
    return normalize(pa.array([text]), config).to_pylist()[0]


def cut(text: str, config: TextConfig = DEFAULT) -> list[str]:
    return tokenize(pa.array([text]), config).to_pylist()[0]


def known(text: str) -> str:
    """Without the characters that Python's Unicode or ours lacks."""
    ours = unicode_tables.tables().properties
    return "".join(c for c in text if ours[ord(c)] & unicode_tables.ASSIGNED and unicodedata.category(c) != "Cn")


def sentences(text: str) -> list[list[str]]:
    """The tokens of each sentence."""
    found = tokens(pa.array([text])).to_pylist()[0]
    out: list[list[str]] = [[] for _ in range(max(found["sentence"], default=-1) + 1)]
    for number, token in zip(found["sentence"], found["token"], strict=True):
        out[number].append(token)
    return out


# Definitions.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café NAÏVE e\u0301\u0302x", "cafe naive ex"),
        ("Ἀθῆναι Ωμέγα Ё Йод", "αθηναι ωμεγα е иод"),
        ("İstanbul Łódź ø", "istanbul łodz ø"),
        ("한국 ガ が हिन्दी בָּ مُحَمَّد", "한국 ガ が हिन्दी בָּ مُحَمَّد"),
        ("5\u0301 .\u0301 \u0301", "5\u0301 .\u0301 \u0301"),
        ("क\u0301é\u0301", "क\u0301e"),
    ],
)
def test_accents_go_from_latin_greek_and_cyrillic_letters_alone(text: str, expected: str) -> None:
    for form in ("NFC", "NFKC"):
        assert normal(text, TextConfig(form, strip_accents=True)) == unicodedata.normalize(form, expected)


def test_accents_of_a_compatibility_form_go_from_each_of_its_letters() -> None:
    assert normal("ǆ ǅ", TextConfig("NFC", strip_accents=True)) == "ǆ ǆ"
    assert normal("ǆ ǅ", TextConfig("NFKC", strip_accents=True)) == "dz dz"


def test_every_letter_loses_the_marks_that_pythons_tables_know() -> None:
    points = [chr(c) for c in range(0x250) if chr(c).isalpha()] + [chr(c) for c in range(0x370, 0x530)]
    points = [c for c in points + [chr(c) for c in range(0x1E00, 0x2000)] if known(c) and c.isalpha()]
    for lowercase in (True, False):
        found = normalize(pa.array(points), TextConfig("NFC", lowercase, strip_accents=True)).to_pylist()
        whole = normalize(pa.array(points), TextConfig("NFC", lowercase)).to_pylist()
        bare = [
            "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c)) for text in whole
        ]
        assert found == [unicodedata.normalize("NFC", text) for text in bare]


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        ("char", ["a", "b", " ", "é", "中", "\n", "c", " "]),
        ("char_wb", [" ", "a", "b", " ", " ", "é", "中", " ", " ", "c", " "]),
    ],
)
def test_characters_are_tokens_with_white_space_as_scikit_learn_has_it(tokenizer: str, expected: list[str]) -> None:
    config = TextConfig(tokenizer=tokenizer)
    assert cut("ab \t\u3000e\u0301中\nC\r\n", config) == expected
    assert tokenize(pa.array(["", None, " ", "x"]), config).to_pylist() == [
        [],
        [],
        [" "] if tokenizer == "char" else [],
        ["x"] if tokenizer == "char" else [" ", "x", " "],
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("ΟΔΥΣΣΕΥΣ'", "οδυσσευς'"),
        ("ΟΔΟΣ’ΑΒ", "οδοσ'αβ"),
        ("Σ", "σ"),
        ("ΑΣ.Β", "ασ.β"),
        ("ΑΣ. Β", "ας. β"),
        ("Α\u00adΣ", "ας"),
        ("Α\u0301Σ\u0301", "ά" + "ς\u0301"),
        ("İI", "i\u0307i"),
        ("I\u0307", "i\u0307"),
        ("A\u030a", "å"),
        ("\u212b", "å"),
        ("don’t", "don't"),
        ("co\u00adop\ufeff \u200b\u2060x\ufe0f", "coop x"),
        ("a\u0315\u034f\u0316", "a\u0316\u0315"),
        ("e\u034f\u0301", "é"),
        ("ﬁ½", "ﬁ½"),
        ("ẞß", "ßß"),
        ("", ""),
    ],
)
def test_normal_form(text: str, expected: str) -> None:
    assert normal(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("র\u200d\u09cdয", "র\u200d\u09cdয"),
        ("ශ\u0dca\u200dරී", "ශ\u0dca\u200dරී"),
        ("क\u094d\u200d\u200dष", "क\u094d\u200dष"),
        ("क\u094d\u200c\u200dष", "क\u094d\u200cष"),
        ("क\u094d\u200d\u00adष", "क\u094d\u200dष"),
        ("क\u094d\u200d", "क\u094d"),
        ("क\u200d ष", "क ष"),
        ("\u200dष", "ष"),
        ("a\u200db", "ab"),
        ("a\u200dष", "aष"),
        ("👩\u200d👧", "👩👧"),
    ],
)
def test_joiners_stay_only_between_letters_of_scripts_that_need_them(text: str, expected: str) -> None:
    assert normal(text) == expected


def test_compatibility_form_only_where_asked() -> None:
    nfkc = TextConfig(unicode="NFKC")
    assert normal("ＡＢＣ　ﬁ①½\U0001d6bak", nfkc) == "abc fi11⁄2σk"
    assert normal("Α\U0001d6ba", nfkc) == "ας"
    assert normal("ＡＢＣ\u3000①") == "ａｂｃ\u3000①"


def test_no_word_begins_with_white_space_where_joiners_stay() -> None:
    assert cut("a \u200dℹ", TextConfig(unicode="none")) == ["a", "ℹ"]


def test_none_leaves_all_but_capitals_alone() -> None:
    text = "A\u030a co\u00adop’s \u200d ﬁ\ufeff ΑΣ"
    assert normal(text, TextConfig(unicode="none", lowercase=False)) == text
    assert normal(text, TextConfig(unicode="none")) == text.lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Can't stop, won't stop: 3.14 or 1,000?", ["can't", "stop", "won't", "stop", "3.14", "or", "1,000"]),
        ("foo_bar __ _x x-y a.b a..b", ["foo_bar", "_x", "x", "y", "a.b", "a", "b"]),
        ("东京タワーとあ", ["东", "京", "タワー", "と", "あ"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("ภาษา", list("ภาษา")),
        ("צה\"ל ג'ירפה", ['צה"ל', "ג'ירפה"]),
        ("👍🏽 🇩🇪 … —", []),
        ("é x²", ["é", "x", "²"]),
        ("a\n\u0301b", ["a", "b"]),
        ("Bonjour\u202f! x\u202fy", ["bonjour", "x", "y"]),
        (" \uff9e ｶ\uff9e", ["ｶ\uff9e"]),
        ("ℹ ℹ\ufe0fx", ["ℹ", "ℹx"]),
        ("", []),
        (" \t\n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


def test_a_joiner_that_stays_makes_no_token_of_a_space() -> None:  # UAX #29 joins it to U+24C2, a letter to WB5
    text = "a \u200dⓂς \u200dℹ .\u200d🅰b"
    assert cut(text, TextConfig(unicode="none", lowercase=False)) == ["a", "Ⓜς", "ℹ", "🅰b"]
    assert cut(text, TextConfig(lowercase=False)) == ["a", "Ⓜς", "ℹ", "🅰b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", [["one"], ["two"], ["three"]]),
        ("One", [["one"]]),
        ("Pi is 3.14 or so", [["pi", "is", "3.14", "or", "so"]]),
        ("a.b.c d", [["a.b.c", "d"]]),
        ("Wait... what?! Yes", [["wait"], ["what"], ["yes"]]),
        ('He said "go." Then (he left.) Fine', [["he", "said", "go"], ["then", "he", "left"], ["fine"]]),
        ("他走了。她来了！“好。”他说", [list("他走了"), list("她来了"), ["好"], list("他说")]),
        ("中文。abc", [["中", "文", "abc"]]),
        ("one\ntwo", [["one", "two"]]),
        ("one\n\ntwo\r\n \t\r\nthree\r\rfour", [["one"], ["two"], ["three"], ["four"]]),
        ("one\r\ntwo", [["one", "two"]]),
        ("one.\n\n\n two", [["one"], ["two"]]),
        ("\n\n one", [["one"]]),
        ("हाँ। नहीं॥ ठीक", [["हाँ"], ["नहीं"], ["ठीक"]]),
        ("", []),
    ],
)
def test_sentence_ends(text: str, expected: list[list[str]]) -> None:
    assert sentences(text) == expected


def test_the_sentence_rule_is_one_for_all_tokenizers() -> None:
    text = pa.array(["Go on. Now you see\n\nit is done."])
    for config, expected in (
        (TextConfig(), [0, 0, 1, 1, 1, 2, 2, 2]),
        (TextConfig(tokenizer="whitespace"), [0, 0, 1, 1, 1, 2, 2, 2]),
        (TextConfig(tokenizer="sklearn"), [0, 0, 1, 1, 1, 2, 2, 2]),
        (TextConfig(tokenizer="regex", pattern=r"\w+"), [0, 0, 1, 1, 1, 2, 2, 2]),
    ):
        assert spans(text, config, sentences=True).sentence.tolist() == expected
    assert not spans(text).sentence.any()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\w+", ["né", "日本", "x1"]),
        (r"(\w)\w*", ["n", "日", "x"]),
        (r"x(\d)|(?:z)", ["1"]),
        (r"\w*", ["né", "日本", "x1"]),
        (r"(?=(\w\w))", ["né", "日本", "x1"]),
        (r"q", []),
    ],
)
def test_a_regex_matches_tokens(pattern: str, expected: list[str]) -> None:
    config = TextConfig(tokenizer="regex", pattern=pattern)
    assert cut("Né, 日本 😀 x1", config) == expected
    found = tokens(pa.array(["Né, 日本 😀 x1"]), config).to_pylist()[0]
    text = normal("Né, 日本 😀 x1")
    assert [text[b:e] for b, e in zip(found["begin_at"], found["end_at"], strict=True)] == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"unicode": "NFD"}, "'NFD': choose one of NFC, NFKC, none"),
        ({"tokenizer": "words"}, "'words': choose one of word, whitespace, regex, sklearn"),
        ({"lowercase": "yes"}, "'yes': choose True or False"),
        ({"tokenizer": "regex"}, "give a pattern with the regex tokenizer"),
        ({"pattern": "a"}, "and with no other"),
        ({"tokenizer": "regex", "pattern": "("}, "is no Python regular expression"),
        ({"tokenizer": "regex", "pattern": "(a)(b)"}, "2 capturing groups, at most 1"),
        ({"emoji": 1}, "emoji is 1: choose True or False"),
        ({"emoji": True, "tokenizer": "whitespace"}, "emoji has no meaning with tokenizer 'whitespace'"),
        ({"keep_urls": True, "tokenizer": "jieba"}, "keep-urls has no meaning with tokenizer 'jieba'"),
        ({"user_dict": (("a", 1),)}, "or choose jieba"),
        ({"user_dict": (("", 1),), "tokenizer": "jieba"}, "give a tuple of (word, frequency or None)"),
        ({"user_dict": (("a", -1),), "tokenizer": "jieba"}, "give a tuple of (word, frequency or None)"),
        ({"user_dict": [("a", 1)], "tokenizer": "jieba"}, "give a tuple of (word, frequency or None)"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_remedy(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TextConfig(**values)  # type: ignore[arg-type]


def test_a_column_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="int64: cast it to string"):
        normalize(pa.array([1]))


def test_stop_words_are_tokens() -> None:
    english = stop_words("en")
    assert {"the", "don't", "of"} <= set(english)
    assert english == sorted(set(english))
    assert set(stop_words("en, zh")) > set(english)
    assert all(cut(word) == [word] for word in stop_words("en,zh,de,fa,hi,el"))
    assert "don't" not in stop_words("en", TextConfig(tokenizer="sklearn"))
    assert "don" not in set(stop_words("en", TextConfig(tokenizer="sklearn"))) - set(english)


def test_stop_words_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffÜBER\r\n\nnew york\n don’t \nüber\n".encode())
    assert stop_words(str(path)) == ["don't", "über"]
    assert stop_words(str(path), TextConfig(lowercase=False)) == ["don't", "ÜBER", "über"]
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match="save the file as UTF-8"):
        stop_words(str(path))


def test_an_unknown_language_is_named_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'xx' is neither a file nor a language.*\ben\b.*\bzh\b"):
        stop_words("en,xx")


def test_user_words_are_read_in_jiebas_format_and_normalised(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    lines = [
        "\ufeff云计算 5\r",
        "",
        " 李小福 2 nr",
        "Easy Install 3",
        "new york",
        "New York",
        "Ｂ’s  7",
        "\u200b",
        "中 0",
    ]
    path.write_bytes("\n".join(lines).encode())
    words = [
        ("云计算", 5),
        ("李小福", 2),
        ("easy install", 3),
        ("new", None),
        ("new york", None),
        ("ｂ's", 7),
        ("中", 0),
    ]
    assert user_words(str(path)) == tuple(words)
    assert user_words(str(path), TextConfig("NFKC", False))[-2] == ("B's", 7)
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match="save the file as UTF-8"):
        user_words(str(path))
    with pytest.raises(ValueError, match="is no file"):
        user_words(str(tmp_path))


@pytest.mark.parametrize("dictionary", ["", "单元格区域\n工作表 1 n\n格式 0\n李小福 2 nr\n帮助文件 99999\n"])
def test_words_of_jieba_are_those_of_jieba(dictionary: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its own load_userdict judges user words of Chinese characters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    jieba.setLogLevel(logging.ERROR)
    judge = jieba.Tokenizer()
    judge.tmp_dir = str(tmp_path)
    path = tmp_path / "words.txt"
    path.write_text(dictionary, "utf-8")
    some = request.getfixturevalue("chinese")["text"].slice(0, 100)
    found = tokenize(some, TextConfig(tokenizer="jieba", user_dict=user_words(str(path))))
    forced = jieba.finalseg.Force_Split_Words
    before = set(forced)
    try:
        judge.load_userdict(str(path))
        cuts = [list(judge.cut(text)) for text in normalize(some).to_pylist()]
    finally:
        forced.clear()
        forced.update(before)
    expected = [[word for word in row if any(unicodedata.category(c)[0] in "LN" for c in word)] for row in cuts]
    assert found.to_pylist() == expected
    assert any("格式" in row for row in expected) != ("格式 0" in dictionary)


def test_jieba_leaves_no_file_in_the_temporary_directory_and_believes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where it would keep its dictionary lies one of a single word."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trap = tmp_path / "jieba.cache"
    trap.write_bytes(marshal.dumps(({"北": 0, "北京": 0, "北京清": 1}, 1)))
    os.utime(trap, (2e9, 2e9))
    chinese._dictionary.cache_clear()
    chinese.segmenter.cache_clear()
    assert cut("北京清华大学", TextConfig(tokenizer="jieba")) == ["北京", "清华大学"]
    assert list(tmp_path.iterdir()) == [trap]
    assert capfd.readouterr() == ("", "")


def test_long_runs_of_unknown_chinese_characters_take_linear_time() -> None:
    """Four times the text takes about four times the time; in jieba's own search twelve times."""
    config = TextConfig(tokenizer="jieba")
    seconds = []
    for size in (10_000, 40_000):
        text = "龥" * size
        start = time.process_time()
        assert "".join(cut(text, config)) == text
        seconds.append(time.process_time() - start)
    assert seconds[1] < 7 * seconds[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I 😀😀 NLP", ["i", "😀", "😀", "nlp"]),
        ("👩🏽\u200d🚀👩\u200d👩\u200d👧 👍🏽", ["👩🏽\u200d🚀", "👩\u200d👩\u200d👧", "👍🏽"]),
        ("🇩🇪🇫🇷🇩 🇩x", ["🇩🇪", "🇫🇷", "x"]),
        ("🏴\U000e0067\U000e0062\U000e007f🏴\U000e0067", ["🏴\U000e0067\U000e0062\U000e007f", "🏴"]),
        ("© ® ™ # * 1 ❤ ☺ ↔ ℹ", ["1", "ℹ"]),
        ("©\ufe0f#\ufe0f1\ufe0f❤\ufe0f", ["©\ufe0f", "#\ufe0f", "1\ufe0f", "❤\ufe0f"]),
        ("21\ufe0f\u20e3a #\u20e3", ["2", "1\ufe0f\u20e3", "a", "#\u20e3"]),
        ("⌚\ufe0e ⌚ ⌚\ufe0f ❤\ufe0e", ["⌚", "⌚\ufe0f"]),
        ("Ⓜ\ufe0f Ⓜ Σ\ufe0f", ["Ⓜ\ufe0f", "σ"]),
        ("a\ufe0fb\u200dc क\u094d\u200dष👩", ["abc", "क\u094d\u200dष", "👩"]),
        ("😀🏽☝🏽☝\ufe0f", ["😀", "🏽", "☝🏽", "☝\ufe0f"]),
        ("文👍文end👍.http://a.b👍x@y.zz👍", ["文", "👍", "文", "end", "👍", "http", "a.b", "👍", "x", "y.zz", "👍"]),
    ],
)
def test_emoji_are_tokens_where_asked_for(text: str, expected: list[str]) -> None:
    assert cut(text, TextConfig(emoji=True)) == expected
    assert normal(text) == normal(normal(text, TextConfig(emoji=True)))
    both = cut(text, TextConfig(emoji=True, keep_urls=True))
    assert [part for part in both if part in ("http://a.b", "x@y.zz")] == ["http://a.b", "x@y.zz"] * ("http" in text)


# Laws.


@few
@given(texts, configs)
def test_normalising_twice_is_normalising_once(text: str, config: TextConfig) -> None:
    once = normal(text, config)
    assert normal(once, config) == once


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("form", ["NFC", "NFKC", "none"])
def test_normalising_twice_is_normalising_once_for_every_character(form: str, lowercase: bool) -> None:
    config = TextConfig(form, lowercase)
    every = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    for context in ("{}", "a{}\u0316\u0301", "क{}\u200dष", "AΣ{}A"):
        some = every if context == "{}" else every[:0x20000]  # above there is little but Han
        once = normalize(pa.array([context.format(character) for character in some]), config)
        once.validate(full=True)
        assert normalize(once, config).equals(once)


@few
@given(texts)
def test_normal_form_is_the_definition_s(text: str) -> None:
    """Step by step with Python's own Unicode, for characters that it knows."""
    text = "".join(c for c in known(text) if c not in "\u200c\u200d")
    properties = unicode_tables.tables().properties
    for form in ("NFC", "NFKC"):
        expected = unicodedata.normalize(form, text)  # type: ignore[arg-type]
        expected = "".join(c for c in expected if not properties[ord(c)] & unicode_tables.IGNORABLE)
        expected = unicodedata.normalize(form, expected.replace("’", "'").lower())  # type: ignore[arg-type]
        assert normal(text, TextConfig(form)) == expected


@few
@given(texts, configs)
def test_offsets_slice_back_to_the_token(text: str, config: TextConfig) -> None:
    whole = normal(text, config)
    found = tokens(pa.array([text]), config).to_pylist()[0]
    assert [whole[b:e] for b, e in zip(found["begin_at"], found["end_at"], strict=True)] == found["token"]
    assert found["token"] == cut(text, config)
    assert found["position"] == list(range(len(found["token"])))
    assert found["sentence"] == sorted(found["sentence"])
    assert all(found["token"])
    if config.tokenizer != "regex":
        assert found["begin_at"] == sorted(found["begin_at"])
        own = {word for word, _ in config.user_dict}
        assert not any(c.isspace() for token in found["token"] if token not in own for c in token)


@few
@given(texts)
def test_a_word_is_a_segment_with_a_letter_or_a_number(text: str) -> None:
    text = known(text)
    data = normal(text).encode()
    ends = segment.boundaries(np.frombuffer(data, np.uint8), unicode_tables.token_breaks()).tolist()
    pieces = [data[b:e].decode() for b, e in zip(ends, ends[1:], strict=False)]

    def is_content(character: str) -> bool:
        return unicodedata.category(character)[0] in "LN" and character not in "\uff9e\uff9f"

    assert cut(text) == [piece for piece in pieces if any(is_content(c) for c in piece)]


@lru_cache
def address_patterns() -> tuple[re.Pattern[str], ...]:
    """How a URL begins, how it goes on, a mailbox before "@", a domain."""
    properties = unicode_tables.tables().properties

    def members(mask: int) -> str:
        return "".join(map(chr, np.flatnonzero(properties & mask))) + "0-9A-Za-z"

    letter, more = members(unicode_tables.ACCENTED), members(unicode_tables.ACCENTED | unicode_tables.MARK)
    label = rf"[{more}](?:[{more}-]*[{more}])?"
    return (
        re.compile(rf"(?<![{letter}])(?:[Hh][Tt][Tt][Pp][Ss]?://|[Ff][Tt][Pp]://|[Ww][Ww][Ww]\.)(?=[{letter}[])"),
        re.compile(rf"[{more}._~:/?#\[\]@!$&'()*+,;=%-]"),
        re.compile(rf"[{letter}][{letter}._%+-]*\Z"),
        re.compile(rf"@({label}(?:\.{label})*)"),
    )


def wholes(text: str) -> list[tuple[int, int]]:
    """The URLs and addresses of a text by the definition of `segment.addresses`, in no hurry."""
    begins, goes_on, mailbox, domain = address_patterns()
    found: list[tuple[int, int]] = []
    i = 0
    while i < len(text):
        low = found[-1][1] if found else 0
        first = end = i
        if at := begins.match(text, i):
            end, depth = at.end(), 0
            while end < len(text) and goes_on.match(text[end]) and not (text[end] in ")]" and depth == 0):
                depth += (text[end] in "([") - (text[end] in ")]")
                end += 1
            end = at.end() + len(text[at.end() : end].rstrip("?!.,:;'*_~(["))
            end = end if end > at.end() else i
        elif (name := mailbox.search(text[low:i])) and (at := domain.match(text, i)):
            labels = at[1].split(".")
            while labels and (len(labels[-1]) < 2 or labels[-1][0] in "0123456789"):
                labels.pop()
            if len(labels) > 1:
                first, end = low + name.start(), i + 1 + len(".".join(labels))
        if end > i:
            found.append((first, end))
        i = max(end, i + 1)
    return found


@few
@given(addresses)
def test_urls_and_addresses_are_those_of_the_definition(text: str) -> None:
    text = normal(text, TextConfig(lowercase=False))
    expected: list[str] = []
    last = 0
    for begin, end in [*wholes(text), (len(text), len(text))]:
        expected += [*cut(text[last:begin], TextConfig("none", False)), *([text[begin:end]] if begin < end else [])]
        last = end
    assert cut(text, TextConfig("none", False, keep_urls=True)) == expected


@few
@given(texts)
def test_sklearn_tokens_are_those_of_its_pattern(text: str) -> None:
    text = known(text)
    expected = re.findall(r"(?u)\b\w\w+\b", text.lower())
    assert cut(text, TextConfig("none", True, "sklearn")) == expected


@few
@given(texts, st.booleans())
def test_white_space_tokens_are_those_of_str_split(text: str, lowercase: bool) -> None:
    config = TextConfig("none", lowercase, "whitespace")
    assert cut(text, config) == normal(text, config).split()


@few
@given(st.lists(st.none() | texts, max_size=8), configs)
def test_a_column_is_its_rows_one_by_one(rows: list[str | None], config: TextConfig) -> None:
    column = pa.array(rows, pa.string())
    alone = [None if row is None else normal(row, config) for row in rows]
    assert normalize(column, config).to_pylist() == alone
    one_by_one = [tokens(pa.array([row], pa.string()), config).to_pylist()[0] for row in rows]
    assert tokens(column, config).to_pylist() == one_by_one


def same(first: Spans, second: Spans) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@few
@given(st.lists(st.none() | texts, max_size=8), configs)
def test_every_layout_of_a_column_gives_the_same(rows: list[str | None], config: TextConfig) -> None:
    plain = pa.array(rows, pa.string())
    expected = spans(plain, config, sentences=True)
    padded = pa.array(["İX. \u0301", None, *rows, "y"], pa.string())
    layouts = [
        plain.cast(pa.large_string()),
        padded[2:-1],
        padded.cast(pa.large_string())[2:-1],
        plain.dictionary_encode(),
        pa.chunked_array([plain[:2], plain[:0], plain[2:]], pa.string()),
        pa.chunked_array([plain.dictionary_encode()]),
        pa.DictionaryArray.from_arrays(pa.array(range(len(rows)), pa.int32()), plain),
    ]
    for layout in layouts:
        assert same(spans(layout, config, sentences=True), expected)
        form = normalize(layout, config)
        form.validate(full=True)
        assert form.type == (pa.large_string() if layout.type == pa.large_string() else pa.string())
        assert form.to_pylist() == normalize(plain, config).to_pylist()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.null(), pa.dictionary(pa.int8(), pa.string())])
def test_an_empty_column_has_no_tokens(kind: pa.DataType) -> None:
    for column in (pa.array([], kind), pa.chunked_array([], kind)):
        assert len(normalize(column)) == len(tokenize(column)) == len(tokens(column)) == 0
        assert tokenize(column).type == pa.list_(pa.string())
    assert tokenize(pa.array([None, None], kind)).to_pylist() == [[], []]


@few
@given(st.lists(st.binary(max_size=12), max_size=4), configs)
def test_any_bytes_become_valid_text(rows: list[bytes], config: TextConfig) -> None:
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(rows))]
    column = pa.Array.from_buffers(pa.string(), len(rows), buffers)
    form = normalize(column, config)
    form.validate(full=True)
    tokenize(column, config).validate(full=True)
    for raw, text in zip(rows, form.to_pylist(), strict=True):
        if "\ufffd" not in raw.decode("utf-8", "replace"):
            assert text == normal(raw.decode(), config)


def test_a_long_document_outgrows_the_first_guess() -> None:
    # Ⱥ takes two bytes and its small letter three; each of the words is one byte.
    assert normal("Ⱥ" * 100_000) == "ⱥ" * 100_000
    assert normal("İ" * 100_000) == "i\u0307" * 100_000
    assert cut("a " * 100_000) == ["a"] * 100_000


def of_sentences(text: str | None, least: int, most: int, config: TextConfig) -> list[str]:
    """The n-grams of a text by their definition, for tokenizers of words."""
    lists = tokens(pa.array([text], pa.string()), config)[0].as_py()
    found = []
    for i in range(len(lists["token"])):
        for n in range(least, most + 1):
            if lists["sentence"][i : i + n] == [lists["sentence"][i]] * n:
                found.append(" ".join(lists["token"][i : i + n]))
    return found


ranges = st.sampled_from([(1, 1), (1, 2), (2, 2), (2, 4), (3, 3), (1, 9)])


@few
@given(st.lists(texts | st.none(), max_size=6), configs, ranges)
def test_law_ngrams_are_those_of_each_sentence_in_order(
    rows: list[str | None], config: TextConfig, sizes: tuple[int, int]
) -> None:
    found = ngrams(pa.array(rows, pa.string()), *sizes, config)
    found.validate(full=True)
    assert found.type == pa.list_(pa.string())
    assert found.to_pylist() == [of_sentences(row, *sizes, config) for row in rows]


@few
@given(
    st.lists(texts, max_size=6),
    configs | st.sampled_from([TextConfig(tokenizer="char"), TextConfig(tokenizer="char_wb")]),
    ranges,
)
def test_law_ngrams_are_what_the_main_job_counts(rows: list[str], config: TextConfig, sizes: tuple[int, int]) -> None:
    from models.features import FeatureConfig

    counted = FeatureConfig(text=config, ngrams=sizes).count(pa.array(rows, pa.string()))
    terms = counted.dictionary.terms.to_pylist()
    expected = [
        {terms[i]: tf for i, tf in zip(counted.ids[a:b].tolist(), counted.tf[a:b].tolist(), strict=True)}
        for a, b in zip(counted.indptr, counted.indptr[1:], strict=False)
    ]
    assert [Counter(row) for row in ngrams(pa.array(rows, pa.string()), *sizes, config).to_pylist()] == expected


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (2, 2)])
def test_ngrams_of_text_without_sentence_ends_are_those_of_scikit_learn(sizes: tuple[int, int]) -> None:
    rows = ["the cat sat on the mat the cat", "", "one", "数据 文本 数据 x9 and so on", "é è"]
    judge = CountVectorizer(ngram_range=sizes)
    counts = judge.fit_transform(rows).toarray()
    names = judge.get_feature_names_out()
    expected = [{name: count for name, count in zip(names, row, strict=True) if count} for row in counts.tolist()]
    found = ngrams(pa.array(rows), *sizes, TextConfig(tokenizer="sklearn", unicode="none")).to_pylist()
    assert [Counter(row) for row in found] == expected


@pytest.mark.parametrize("sizes", [(0, 1), (2, 1), (-1, -1)])
def test_a_wrong_range_of_ngrams_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"n-grams of {sizes[0]} to {sizes[1]} tokens: give two numbers from 1 on"):
        ngrams(pa.array(["a"]), *sizes)
