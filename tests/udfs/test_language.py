"""The language of texts: real ones in several scripts, and none where nothing tells one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from udfs.language import lang


@pytest.mark.parametrize(("name", "codes"), [("emails", {"en"}), ("chinese", {"zh", "wuu", "yue"})])
def test_real_documents_are_in_their_language(name: str, codes: set[str], request: pytest.FixtureRequest) -> None:
    found = lang(request.getfixturevalue(name)["text"].combine_chunks().slice(0, 300)).to_pylist()
    assert sum(code in codes for code in found) > 0.97 * len(found)


def test_sentences_in_several_scripts() -> None:
    texts = {
        "hi": "बिल्ली चटाई पर बैठी है।",
        "de": "Die Katze saß auf der Matte",
        "ja": "こんにちは世界",
        "ru": "Это кошка",
        "fr": "le chat est là",
        "zh": "这只猫坐在垫子上。",
    }
    assert lang(pa.array(texts.values())).to_pylist() == list(texts)


def test_nothing_tells_the_language_of_digits_emoji_and_nothing() -> None:
    assert lang(pa.array(["", "123 !?", "😀", None, "\n"], pa.string())).to_pylist() == [None] * 5


def test_a_batch_gives_what_single_texts_give() -> None:
    texts = ["The cat sat on the mat", "猫" * 5000, None, "Der Hund " * 1000]
    for kind in (pa.string(), pa.large_string()):
        assert lang(pa.array(texts, kind)).to_pylist() == [lang(pa.array([text], kind))[0].as_py() for text in texts]
    assert lang(pa.array([], pa.string())).to_pylist() == []
    assert lang(pa.nulls(2)).to_pylist() == [None, None]


def test_bytes_that_are_no_utf8_do_no_harm() -> None:
    broken = pa.array([b"The cat sat on the \xff mat \xe7\x8c"])
    assert lang(pa.Array.from_buffers(pa.string(), 1, broken.buffers())).to_pylist() == ["en"]
