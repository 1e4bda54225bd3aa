"""The shipped corpora: their size and fields, and that no header, address, telephone number or name is left in them."""

import gzip
import hashlib
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DATA = Path(__file__).resolve().parent / "data"
MODULES = {"sbasic", "scalc", "schart", "sdatabase", "sdraw", "simpress", "smath", "swriter"}
HEADER = re.compile(
    r"^[>|\s]*(?:received|from|to|cc|bcc|subject|date|message-id|in-reply-to|references|reply-to|return-path|sender"
    r"|delivered-to|mime-version|content-[\w-]+|list-[\w-]+|x-[\w-]+)[ \t]?:(?!//)",
    re.I | re.M,
)
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+")
PHONE = re.compile(
    r"(?<![\w$.,/=?&#%-])(?:(?:\+?1[ .-])?\(?\d{3}\)?[ .-]{1,2}\d{3}[.-]\d{4}|\+\d{1,3}[ ()\d-]{8,}\d|\d{3}-\d{4})"
    r"(?![\w:])"
)


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def emails() -> list[dict[str, Any]]:
    return rows("emails.jsonl.gz")


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """make_corpora.py, which lies among the data and is no package."""
    spec = importlib.util.spec_from_file_location("make_corpora", DATA / "make_corpora.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def digests() -> frozenset[bytes]:
    data = gzip.decompress((DATA / "names.sha256.gz").read_bytes())
    return frozenset(data[i : i + 8] for i in range(0, len(data), 8))


def names_in(text: str, digests: frozenset[bytes], builder: ModuleType) -> set[str]:
    """The full names of the raw corpus in a text: as two words in either order, initials between, or run together."""
    words, pairs = builder.words_and_pairs(text)
    keys = [builder.key(word[0]) for word in words]
    found = {f"{keys[a]} {keys[b]}" for i, j in pairs for a, b in ((i, j), (j, i))}
    found |= {f"{w[:i]} {w[i:]}" for w in {*keys} if len(w) >= 8 for i in range(3, len(w) - 2)}
    return {name for name in found if builder.digest(name) in digests}


def test_sizes() -> None:
    sizes = {
        path: path.stat().st_size for path in DATA.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    assert sum(sizes.values()) < 5_000_000
    assert max(sizes.values()) < 2_000_000


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.name)
def test_gzip_holds_no_time_and_no_name(path: Path) -> None:
    header = path.read_bytes()[:10]
    assert header[3] == 0  # flags: no file name
    assert header[4:8] == bytes(4)  # mtime


@pytest.mark.parametrize(
    ("name", "labels", "least"),
    [("emails.jsonl.gz", {"ham", "spam"}, 800), ("libreoffice_help_zh.jsonl.gz", MODULES, 20)],
)
def test_fields_and_labels(name: str, labels: set[str], least: int) -> None:
    documents = rows(name)
    assert all(row.keys() == {"id", "text", "label"} for row in documents)
    assert all(isinstance(value, str) and value for row in documents for value in row.values())
    assert len({row["id"] for row in documents}) == len(documents)
    assert len({row["text"] for row in documents}) == len(documents)
    counts = Counter(row["label"] for row in documents)
    assert counts.keys() == labels
    assert min(counts.values()) >= least


def test_counts(emails: list[dict[str, Any]]) -> None:
    assert 2500 <= len(emails) <= 3000
    spam = sum(row["label"] == "spam" for row in emails)
    assert spam / len(emails) == pytest.approx(1896 / 6046, abs=0.01)  # as in the source
    assert len(rows("libreoffice_help_zh.jsonl.gz")) > 1000


def test_help_is_chinese() -> None:
    assert all(
        re.search(r"[\u4e00-\u9fff]", line)
        for row in rows("libreoffice_help_zh.jsonl.gz")
        for line in row["text"].split("\n")
    )


@pytest.mark.parametrize("pattern", [HEADER, ADDRESS, PHONE], ids=["header", "address", "phone"])
def test_emails_hold_no_header_address_or_phone(pattern: re.Pattern[str], emails: list[dict[str, Any]]) -> None:
    assert [row["id"] for row in emails if pattern.search(row["text"])] == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (HEADER, "> Message-Id: <1>"),
        (HEADER, "text\nReceived: from x by y"),
        (ADDRESS, "write to jo.doe@example.org"),
        (PHONE, "call (212) 555-0123"),
        (PHONE, "call 1-800-555-0123 now"),
        (PHONE, "+49 30 12345678"),
    ],
)
def test_patterns_find_what_they_are_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


def test_emails_hold_no_name_of_the_raw_corpus(
    emails: list[dict[str, Any]], digests: frozenset[bytes], builder: ModuleType
) -> None:
    assert len(digests) > 1000
    assert names_in("\n".join(row["text"] for row in emails), digests, builder) == set()


def test_an_unmasked_name_is_found_and_masked(builder: ModuleType) -> None:
    """The check and the mask on an invented message with invented people."""
    raw = b'From: "Doe-Smythe, Jo" <jds@example.org>\nTo: Quentin Xample <q@example.org>, Offers <o@example.org>\n\n'
    text = (
        "On Monday, Quentin Xample <q@example.org> wrote:\n> Dear Jo,\n> call me: (212) 555-0123\n> Quentin\n\n"
        "From: jds@example.org\nMessage-Id: <1@example.org>\n\nXAMPLE, Quentin said so. See quentin_xample.html and\n"
        "quentinxample.org, Quentin Q. Xample.\n\nRegards,\nJo Smythe\n"
    )
    names = builder.collect_names([raw], [text])
    assert ("quentin", "xample") in names.full
    digests = frozenset(builder.digest(" ".join(name)) for name in names.full)
    assert {"quentin xample", "jo smythe"} <= names_in(text, digests, builder)
    masked = builder.mask(text, names, builder.correspondents(raw))
    assert names_in(masked, digests, builder) == set()
    assert not any(pattern.search(masked) for pattern in (HEADER, ADDRESS, PHONE))
    assert not re.search(r"quentin|xample|smythe|\bjo\b", masked, re.I)
    assert "Regards,\nNAME" in masked
    assert "said so. See" in masked


def test_no_single_word_tells_ham_from_spam(emails: list[dict[str, Any]]) -> None:
    """A header or a mask left in would split the labels almost alone: the best word must not."""
    having: dict[str, Counter[str]] = {"ham": Counter(), "spam": Counter()}
    for row in emails:
        having[row["label"]].update({*re.findall(r"\w+", row["text"].lower())})
    spam = sum(row["label"] == "spam" for row in emails)
    ham = len(emails) - spam
    vocabulary = having["ham"] | having["spam"]
    right = {word: abs(having["spam"][word] - having["ham"][word]) for word in vocabulary}
    best = max(vocabulary, key=lambda word: right[word])
    accuracy = max(
        (having["spam"][best] + ham - having["ham"][best]) / len(emails),
        (having["ham"][best] + spam - having["spam"][best]) / len(emails),
    )
    assert accuracy < 0.85, best


def test_cases() -> None:
    cases = [json.loads(line) for line in (DATA / "cases.jsonl").read_bytes().split(b"\n") if line]
    assert cases
    assert all({"id", "source", "area", "title", "input", "expected", "why"} <= case.keys() for case in cases)
    assert len({case["id"] for case in cases}) == len(cases)


def test_every_file_has_its_licence_written_down() -> None:
    text = (DATA / "LICENCES.md").read_text(encoding="utf-8")
    missing = [
        path.name
        for path in DATA.iterdir()
        if path.is_file() and path.suffix not in {".py", ".md"} and path.name not in text
    ]
    assert missing == []


def test_digest_is_salted_and_short(builder: ModuleType) -> None:
    assert builder.digest("jo doe") == hashlib.sha256(b"textmill-names-1:jo doe").digest()[:8]
