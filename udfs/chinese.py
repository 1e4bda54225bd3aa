"""Chinese words by jieba, and a user's own, which stay whole where jieba would cut them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from udfs.unicode_tables import ACCENTED, CONTENT, tables

UserWords: TypeAlias = tuple[tuple[str, int | None], ...]  # words with their frequency in jieba's dictionary, or None

HAN = re.compile("[\u4e00-\u9fd5]+")  # what jieba knows words of
RUN = re.compile("[\u4e00-\u9fd5]{2000}")  # longer ones are cut: its search takes quadratic time for unknown words


class Segmenter:
    """jieba 0.42.1 with its hidden Markov model, and user words.

    A user word of Chinese characters joins jieba's dictionary, as by its load_userdict. Any other one jieba would cut
    before it looks it up: such a word is taken wherever it stands, from left to right, the longest first, unless it
    begins or ends within a run of letters and digits (Latin, Greek or Cyrillic).
    """

    def __init__(self, words: UserWords = ()) -> None:
        self._jieba = _tokenizer()
        frequencies, self._jieba.total = _dictionary()
        self._jieba.FREQ = frequencies.copy() if words else frequencies
        self._jieba.initialized = True
        # jieba's own set of them is one for the whole process.
        self._apart = {word for word, frequency in words if frequency == 0 and HAN.fullmatch(word)}
        self._whole: dict[str, bool] = {}  # the beginnings of words that jieba would cut; whether it is one of them
        for word, frequency in words:
            if frequency == 0:
                self._jieba.FREQ[word] = 0
            elif HAN.fullmatch(word):
                self._jieba.add_word(word, frequency)
            else:
                for end in range(1, len(word)):
                    self._whole.setdefault(word[:end], False)
                self._whole[word] = True
        self._first = re.compile("|".join({re.escape(word[0]) for word in self._whole}) or r"(?!)")
        table = tables()
        self._content = (table.word & CONTENT != 0).tobytes()
        joins = table.properties & ACCENTED != 0
        joins[ord("0") : ord("9") + 1] = True
        self._joins = joins.tobytes()

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The words of `text` that hold a letter or a number, from left to right: begin and end in code points."""
        end = 0
        for part in self.parts(text):
            begin, end = end, end + len(part)
            if any(self._content[ord(character)] for character in part):
                yield begin, end

    def parts(self, text: str) -> Iterator[str]:
        """`text` in pieces: words, and what stands between them."""
        last = 0
        for begin, end in self._own(text):
            yield from self._cut(text[last:begin])
            yield text[begin:end]
            last = end
        yield from self._cut(text[last:])

    def _own(self, text: str) -> Iterator[tuple[int, int]]:
        """Where user words stand that jieba would cut."""
        at = 0
        while match := self._first.search(text, at):
            begin, at = match.start(), match.start() + 1
            if self._joined(text, begin):
                continue
            stop, end = begin + 1, 0
            while stop <= len(text) and (whole := self._whole.get(text[begin:stop])) is not None:
                if whole and not self._joined(text, stop):
                    end = stop
                stop += 1
            if end:
                yield begin, end
                at = end

    def _joined(self, text: str, at: int) -> bool:
        """Whether letters or digits on both sides of a position make one run."""
        return 0 < at < len(text) and bool(self._joins[ord(text[at - 1])] and self._joins[ord(text[at])])

    def _cut(self, text: str) -> Iterator[str]:
        for begin, end in pairwise([0, *(run.end() for run in RUN.finditer(text)), len(text)]):
            for word in self._jieba.cut(text[begin:end]):
                yield from word if word in self._apart else (word,)


@lru_cache(maxsize=2)
def segmenter(words: UserWords) -> Segmenter:
    """The segmenter with these user words, made once a process."""
    return Segmenter(words)


@lru_cache(maxsize=1)
def _dictionary() -> tuple[dict[str, int], int]:
    """The frequencies of jieba's words, and their sum.

    Read from the package itself: jieba's own way keeps them in a file of the temporary directory under a name that
    anyone can guess, and trusts what it finds there.
    """
    reader = _tokenizer()
    frequencies, total = reader.gen_pfdict(reader.get_dict_file())
    return frequencies, total


def _tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pkg_resources, and of the escapes in its source
        import jieba  # here, since it takes a quarter of a second

    return jieba.Tokenizer()
