"""What users of other libraries ran into (tests/data/cases.jsonl, area token), each as a test of its whole kind."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from udfs.text import TextConfig, normalize, tokenize, tokens, user_words

DEFAULT = TextConfig()
FILE = Path(__file__).parents[1] / "data/cases.jsonl"
CASES: dict[str, Any] = {
    case["id"]: case for case in map(json.loads, FILE.open(encoding="utf-8")) if case["id"][:3] == "tok"
}


def cut(texts: list[str | None], config: TextConfig = DEFAULT) -> list[list[str]]:
    found: list[list[str]] = tokenize(pa.array(texts, pa.string()), config).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CASES["tok-01"]["input"]["text"], CASES["tok-01"]["expected"]["tokens"]),
        ("ভাষা শিক্ষা", ["ভাষা", "শিক্ষা"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("ഭാഷ പഠിക്കുന്നു", ["ഭാഷ", "പഠിക്കുന്നു"]),
        ("العَرَبِيَّة لُغَة", ["العَرَبِيَّة", "لُغَة"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("nai\u0308ve cafe\u0301", ["naïve", "café"]),
        ("ශ්‍රී ලංකාව", ["ශ්‍රී", "ලංකාව"]),
    ],
)
def test_combining_vowel_signs_stay_in_their_word(text: str, expected: list[str]) -> None:
    assert cut([text]) == [[unicodedata.normalize("NFC", word) for word in expected]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *zip(CASES["tok-03"]["input"]["texts"], CASES["tok-03"]["expected"]["texts"], strict=True),
        ("ÀÉÎÕÜ ÇŞŁØ", "àéîõü çşłø"),
        ("ĐẶNG THỊ", "đặng thị"),
        ("ЙОД Ё", "йод ё"),
        ("한국어", "한국어"),
        ("ΆΈΉ", "άέή"),
        ("İSTANBUL I", "i\u0307stanbul i"),
        ("ভাষা", "ভাষা"),
    ],
)
def test_lower_casing_takes_no_accent_away(text: str, expected: str) -> None:
    assert normalize(pa.array([text])).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("text", "token", "begin", "end"),
    [
        (
            CASES["tok-04"]["input"]["text"],
            CASES["tok-04"]["input"]["token"].lower(),
            CASES["tok-04"]["expected"]["start"],
            CASES["tok-04"]["expected"]["end"],
        ),
        ("𝒳 é 中 NLP", "nlp", 6, 9),
        ("👍🏽👍🏽 x", "x", 5, 6),
        ("🇩🇪 DE", "de", 3, 5),
        ("𐐀𐐁 deseret", "deseret", 3, 10),
        ("İİ x", "x", 5, 6),
        ("e\u0301e\u0301 x", "x", 3, 4),
    ],
)
def test_offsets_are_code_points_of_the_normalised_text(text: str, token: str, begin: int, end: int) -> None:
    found = tokens(pa.array([text])).to_pylist()[0]
    at = found["token"].index(token)
    assert (found["begin_at"][at], found["end_at"][at]) == (begin, end)
    assert normalize(pa.array([text])).to_pylist()[0][begin:end] == token


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *zip(CASES["tok-06"]["input"]["texts"], CASES["tok-06"]["expected"]["tokens"], strict=True),
        ("Straße über", ["straße", "über"]),
        ("Привет, мир", ["привет", "мир"]),
        ("Ελλάδα!", ["ελλάδα"]),
        ("٣٤ ४५", ["٣٤", "४५"]),
    ],
)
def test_a_regex_knows_letters_beyond_ascii(text: str, expected: list[str]) -> None:
    assert cut([text], TextConfig(tokenizer="regex", pattern=r"\w+")) == [expected]
    assert cut([text], TextConfig(tokenizer="regex", pattern=r"[^\W]+")) == [expected]


SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@pytest.mark.parametrize("tokenizer", ["word", "whitespace"])
def test_every_space_separates_and_nothing_is_an_empty_token(tokenizer: str) -> None:
    config = TextConfig(tokenizer=tokenizer)
    case = CASES["tok-07"]
    found = cut(case["input"]["lines"], config)
    assert list(map(len, found)) == case["expected"]["n_tokens_per_line"]
    counted = [token for line in found for token in line]
    assert {token: counted.count(token) for token in counted} == case["expected"]["counts"]
    assert cut([f"x{space}y" for space in SPACES], config) == [["x", "y"]] * len(SPACES)
    assert cut([*SPACES, SPACES, "", None], config) == [[]] * (len(SPACES) + 3)
    assert cut([f"{space}x{space * 2}" for space in SPACES], config) == [["x"]] * len(SPACES)


def test_no_tokenizer_gives_an_empty_token_for_an_empty_document() -> None:
    for config in (
        TextConfig(tokenizer="sklearn"),
        TextConfig(tokenizer="regex", pattern=r"\w*"),
        TextConfig(tokenizer="regex", pattern=r"(\s*)"),
    ):
        assert not any(re.fullmatch("", token) for row in cut(["", None, "  ", "a  b"], config) for token in row)
        assert cut(["", None], config) == [[], []]


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        *(
            (CASES["tok-09"]["input"]["user_words"], text, expected)
            for text, expected in zip(
                CASES["tok-09"]["input"]["texts"],
                [["加入", "3/4杯", "水"], ["in", "New York"], ["作者", "安娜·贝尔", "到", "了"], ["tokenizer"]],
                strict=True,
            )
        ),
        (["ken"], "ken Ken KEN's ken。token kenя", ["ken", "ken", "ken", "s", "ken", "token", "ken", "я"]),
        (["c++", ".net"], "C++11, c++ 和.NET或asp.net", ["c++", "11", "c++", "和", ".net", "或", "asp", ".net"]),
        (["a/b", "a/b c 1", "b c 1"], "a/b c a/b cd ab c", ["a/b c", "a/b", "cd", "ab", "c"]),
        (["T恤"], "买T恤和XT恤", ["买", "t恤", "和", "xt", "恤"]),
        (["3/4"], "13/4 3/4 3/45", ["13", "4", "3/4", "3", "45"]),
        (["café au lait 1"], "un Cafe\u0301 au lait", ["un", "café au lait"]),
        (
            ["云计算 5", "李小福 2 nr", "创新办 3 i", "easy_install 3 eng"],
            "李小福是创新办主任也是云计算方面的专家",
            ["李小福", "是", "创新办", "主任", "也", "是", "云计算", "方面", "的", "专家"],
        ),
    ],
)
def test_a_user_word_stays_whole_and_cuts_no_longer_one(
    words: list[str], text: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\n".join(words), "utf-8")
    config = TextConfig(tokenizer="jieba")
    config = TextConfig(tokenizer="jieba", user_dict=user_words(str(path), config))
    assert cut([text], config) == [[part.lower() for part in expected]]


URLS = CASES["tok-10"]


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        *zip(URLS["input"]["texts"], URLS["expected"]["urls"], strict=True),
        (
            "http://a.b ftp://a.b/c www.a.b WWW.A.B HTTPS://A",
            ["http://a.b", "ftp://a.b/c", "www.a.b", "www.a.b", "https://a"],
        ),
        ("“http://a.b”，《www.a.b》、http://a.b。", ["http://a.b", "www.a.b", "http://a.b"]),
        ("请看https://a.b/c?d=1%20#e吧，或www.a.b查询", ["https://a.b/c?d=1%20#e", "www.a.b"]),
        ("링크http://a.b에서 ดูที่http://a.bที่นี่", ["http://a.b", "http://a.b"]),
        ("http://a.b... http://a.b?! http://a.b; 'http://a.b' *http://a.b*", ["http://a.b"] * 5),
        ('[x](http://a.b/(c)[d]) <http://a.b> "http://a.b" {http://a.b}', ["http://a.b/(c)[d]"] + ["http://a.b"] * 3),
        ("http://a.b/(c http://a.b/( http://a.b/)c", ["http://a.b/(c", "http://a.b/", "http://a.b/"]),
        (
            "http://user:pw@a.b:80/~x/y.html;z=1 http://[::1]:80/x",
            ["http://user:pw@a.b:80/~x/y.html;z=1", "http://[::1]:80/x"],
        ),
        (
            "https://de.wikipedia.org/wiki/K\u00e4se http://пример.рф/я",
            ["https://de.wikipedia.org/wiki/käse", "http://пример.рф/я"],
        ),
        (
            "git+https://a.b see.http://a.b _http://a.b_ mailto:a@b.cc",
            ["https://a.b", "http://a.b", "http://a.b", "a@b.cc"],
        ),
        ("xhttp://a.b wwww.a 1www.a éwww.a http:// http://. www. www.。 http:a https:/a h f w", []),
        ("联系john.q+x@mail.a-b.example。谢谢a_b%c@d.ee吧", ["john.q+x@mail.a-b.example", "a_b%c@d.ee"]),
        (
            "Ann@A.com, <bob@b.org>. 'c@c.net' ...d@d.com- jörg@käse.de",
            ["ann@a.com", "bob@b.org", "c@c.net", "d@d.com", "jörg@käse.de"],
        ),
        ("a@b @b.cc a@ a@.bc a@b.c 5@3.50 a@@b.cc @ a@b..cc a@-b.cc", []),
        ("a@b.cc@d.ee a@b.cc.5 a@b.com.cn.", ["a@b.cc", "a@b.cc", "a@b.com.cn"]),
    ],
)
def test_a_url_or_address_is_one_token_without_closing_punctuation(text: str, urls: list[str]) -> None:
    found = cut([text, f"x {text}"], TextConfig(keep_urls=True))
    assert [token for token in found[0] if re.search(r"://|^www\.|@", token)] == [url.lower() for url in urls]
    assert found[1] == ["x", *found[0]]
