"""The language that a text is in."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from py3langid.langid import MODEL_FILE, RAW_FLOOR, LanguageIdentifier

LOOKED_AT = 2000  # code points of a text: more of it seldom changes the answer


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE)


def lang(text: pa.Array) -> pa.Array:
    """The language of each text (any string array) by py3langid, string: a code of ISO 639, such as zh or en.

    Null for null, and for a text without anything that tells one, such as digits. By its first LOOKED_AT code points.
    Row by row; of a text of few words it is a guess. (Lui and Baldwin 2012.)
    """
    rows = text.cast(pa.large_binary()).to_pylist()  # which need not be UTF-8
    return pa.array([None if row is None else _language(row) for row in rows], pa.string())


def _language(utf8: bytes) -> str | None:
    code, score = _identifier().classify(utf8[: 4 * LOOKED_AT].decode(errors="replace")[:LOOKED_AT])
    return None if score <= RAW_FLOOR else code
