"""The text functions by their names in SQL: what each takes, gives and does, as columns of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from udfs.hashing import hash_term, minhash, murmur3
from udfs.language import lang
from udfs.text import TextConfig, ngrams, normalize, tokens


@dataclass(frozen=True)
class Function:
    """A text function of SQL.

    arguments: name and SQL type of each; one of type int must be the same in all rows. apply: a configuration and the
    arguments, columns as Arrow arrays and int ones as numbers, to the column of results.
    """

    name: str
    arguments: dict[str, str]
    returns: str
    description: str
    apply: Callable[..., pa.Array]

    @property
    def signature(self) -> str:
        """Name, arguments and result."""
        arguments = ", ".join(f"{name} {kind}" for name, kind in self.arguments.items())
        return f"{self.name}({arguments}) -> {self.returns}"

    def __call__(self, config: TextConfig, *columns: pa.Array) -> pa.Array:
        """The results for columns of equal length; ValueError for other arguments than those of the signature."""
        if len(columns) != len(self.arguments):
            raise ValueError(f"{len(columns)} arguments are given, not {len(self.arguments)}: {self.signature}")
        given = zip(self.arguments.items(), columns, strict=True)
        return self.apply(
            config, *(self._constant(name, column) if kind == "int" else column for (name, kind), column in given)
        )

    def _constant(self, name: str, column: pa.Array) -> int:
        if not len(column):
            return 1  # for no rows
        values = pc.unique(column)
        value = values[0].as_py()
        if len(values) > 1 or not isinstance(value, int):
            several = f"{value} and {values[1]}" if len(values) > 1 else value
            raise ValueError(f"{name} is {several}: give one number for all rows: {self.signature}")
        return value


def _token_structs(config: TextConfig, text: pa.Array) -> pa.Array:
    """The columns of TOKENS as a list of structs."""
    lists = tokens(text, config)
    names = [field.name for field in lists.type]
    structs = pa.StructArray.from_arrays([lists.field(name).flatten() for name in names], names)
    return pa.ListArray.from_arrays(lists.field("token").offsets, structs)


FUNCTIONS = {
    function.name: function
    for function in (
        Function(
            "normalize",
            {"text": "string"},
            "string",
            "The text in its normal form, by default NFC and lower case without invisible characters. NULL stays NULL.",
            lambda config, text: normalize(text, config),
        ),
        Function(
            "tokenize",
            {"text": "string"},
            "array<struct<sentence:int,position:int,token:string,begin_at:int,end_at:int>>",
            "The tokens of the normalised text, each with its sentence and its position, counted from 0, and where it "
            "begins and ends in the normalised text, in code points. NULL has none.",
            _token_structs,
        ),
        Function(
            "ngrams",
            {"text": "string", "least": "int", "most": "int"},
            "array<string>",
            "The terms of the text in its order: n-grams of `least` to `most` tokens, joined by a space, that cross no "
            "end of a sentence. NULL has none.",
            lambda config, text, least, most: ngrams(text, least, most, config),
        ),
        Function(
            "hash_term",
            {"term": "string", "size": "int"},
            "int",
            "The index of the term, from 0 to `size` - 1, as featurize --hash and Spark ML's HashingTF have it: "
            "MurmurHash3 of 32 bits, seed 42. NULL stays NULL.",
            lambda _, term, size: hash_term(term, size),
        ),
        Function(
            "murmur3",
            {"term": "string"},
            "int",
            "MurmurHash3 of 32 bits, seed 42, as a signed number: pmod of it by `size` is hash_term. NULL stays NULL.",
            lambda _, term: murmur3(term),
        ),
        Function(
            "lang",
            {"text": "string"},
            "string",
            "The language that the text is most likely in, as a code of ISO 639 such as zh or en, by its first 2,000 "
            "characters. NULL where nothing tells one.",
            lambda _, text: lang(text),
        ),
        Function(
            "minhash",
            {"terms": "array<string>", "count": "int"},
            "array<bigint>",
            "The MinHash signature of the set of terms, `count` numbers: the share of numbers that two signatures have "
            "in common at the same place estimates the Jaccard similarity of the sets. Of no terms, and of NULL, it is "
            "empty.",
            lambda _, terms, count: minhash(terms, count),
        ),
    )
}


def compile_kernels(config: TextConfig) -> None:
    """Compile what the functions need, unless it is there already; ValueError where they refuse the configuration."""
    some = {"string": pa.array(["Ça va? 数据\u200d"]), "int": pa.array([1]), "array<string>": pa.array([["a"]])}
    for function in FUNCTIONS.values():
        function(config, *(some[kind] for kind in function.arguments.values()))
