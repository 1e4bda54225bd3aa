"""The command line of featurize.py, and what its fitting options mean as a FeatureConfig."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NoReturn

from jobs.session import Mistake, mistakes
from models.features import FeatureConfig, FeatureModel, sklearn_preset
from models.splits import FORMS, Split
from udfs.text import CHARACTERS, TextConfig, stop_words, user_words

FORMATS = ("auto", "parquet", "orc", "jsonl", "csv", "text", "files")
SAME = (  # in FeatureConfig
    "features", "ngrams", "ngram_span", "min_df", "max_df", "sublinear_tf", "idf", "norm", "bm25_k1", "bm25_b",
)  # fmt: skip
FITTING = (
    *SAME,
    "hash",
    "hash_report",
    "tokenizer",
    "pattern",
    "user_dict",
    "keep_urls",
    "emoji",
    "stop_words",
    "max_features",
    "preset",
    "unicode",
    "no_lowercase",
    "strip_accents",
)


def ngram_range(text: str) -> tuple[int, int]:
    """MIN,MAX, or N for N,N."""
    parts = [int(part) for part in text.split(",")]
    if len(parts) not in (1, 2):
        raise ValueError
    return parts[0], parts[-1]


def df_limit(text: str) -> int | float:
    """A number of documents, or a share of them when written with a point."""
    return float(text) if "." in text else int(text)


def how_many(text: str) -> int:
    """A number of at least 1, or none: 0."""
    number = 0 if text == "none" else int(text)
    if number < (text != "none"):
        raise ValueError
    return number


def percentage(text: str) -> float:
    """A percentage, as a share: 1% or 0.01."""
    share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise ValueError
    return share


def size(text: str) -> int:
    """A number of bytes, with KB, MB or GB (1024) if wanted; 1 GB at most, since Java's arrays end at 2."""
    match = re.fullmatch(r"(\d+)([KMG]B)?", text)
    bytes = int(match[1]) << {None: 0, "KB": 10, "MB": 20, "GB": 30}[match[2]] if match else -1
    if not 1 <= bytes <= 1 << 30:
        raise ValueError
    return bytes


def converts(convert: Callable[[str], Any], wanted: str) -> Callable[[str], Any]:
    """What argparse converts an option's value with; its error says what is wanted."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None

    return converted


MIN_MAX = converts(ngram_range, "a range MIN,MAX such as 1,2")
DF_LIMIT = converts(df_limit, "a number of documents such as 2, or a share of them with a point such as 0.5")
HOW_MANY = converts(how_many, "a number of at least 1, or none")
PERCENTAGE = converts(percentage, "a percentage from 0% to 100%, or a share from 0 to 1")
SIZE = converts(size, "a size from 1 to 1GB such as 64KB or 16MB")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other mistake is said."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            typed = [word.split("=")[0] for word in message.split() if word.startswith("-")]
            near = [close for word in typed for close in get_close_matches(word, self._option_string_actions, 1, 0.7)]
            if near:
                raise Mistake(f"{message}: did you mean {', '.join(near)}?")
        raise Mistake(f"{message} (--help lists the options)")


def parser() -> argparse.ArgumentParser:
    """All options. Those that shape the model default to None, so that --apply can refuse them."""
    p = Parser(
        "featurize.py", description="Text to sparse features, and the model that gives them.", allow_abbrev=False
    )
    p.add_argument(
        "--input", required=True, metavar="PATH", help="a file or folder, taken literally; or table:DATABASE.NAME"
    )
    p.add_argument("--glob", action="store_true", help="take --input for a pattern: * ? [a-z] {a,b}")
    p.add_argument("--where", metavar="CONDITION", help="of a table, only these rows: a condition in SQL")
    p.add_argument(
        "--output", required=True, metavar="DIR", help="where the features go: a folder; or table:DATABASE.NAME"
    )
    p.add_argument("--model", metavar="DIR", help="where the fitted model goes")
    p.add_argument("--apply", metavar="DIR", help="use this model instead of fitting one")
    p.add_argument("--overwrite", action="store_true", help="replace --output, --model and --tokens if they exist")
    p.add_argument(
        "--keep-counts", action="store_true", default=None, help="keep every term's counts in --model, to merge models"
    )
    p.add_argument(
        "--partition-by",
        metavar="COLUMN",
        help="write folders COLUMN=VALUE; into an --output that exists with --apply: only these are replaced",
    )
    p.add_argument(
        "--format",
        choices=FORMATS,
        default="auto",
        help="text: a document a line; files: a document a file (default: by the names of the files)",
    )
    for role, what in (
        ("text", "the text"),
        ("id", "the id, if there is one"),
        ("label", "the label, if there is one"),
    ):
        p.add_argument(f"--{role}", metavar="COLUMN", help=f"the column with {what} (default: {role})")
    p.add_argument(
        "--max-rejects", type=PERCENTAGE, default=0.01, metavar="SHARE", help="fail above this (default: 1%%)"
    )
    p.add_argument(
        "--max-document-bytes", type=SIZE, default=16 << 20, metavar="SIZE", help="reject above (default: 16MB)"
    )
    p.add_argument(
        "--salvage", action="store_true", help="of a damaged .gz, .bz2 or .zst keep the records before the damage"
    )
    p.add_argument(
        "--split",
        metavar="HOW",
        help=f"train, validation and test as a column, and --model fitted on train alone: {FORMS}",
    )
    p.add_argument("--check-ids", action="store_true", help="fail if an id occurs twice")
    p.add_argument(
        "--engine",
        choices=("kernel", "explode"),
        default="kernel",
        help="explode: count and look up terms by Spark's joins, with no vocabulary in a worker (default: kernel)",
    )
    p.add_argument("--tokens", metavar="DIR", help="where the token table goes, a row a token (default: not kept)")
    p.add_argument("--log-json", action="store_true", help="log lines and the summary as JSON objects, one a line")
    f = p.add_argument_group("features (not with --apply)")
    f.add_argument("--features", choices=("onehot", "count", "tfidf", "bm25"), help="default: tfidf")
    add_text_options(f)
    f.add_argument("--min-df", type=DF_LIMIT, metavar="N|SHARE", help="fewest documents a term is in (default: 1)")
    f.add_argument("--max-df", type=DF_LIMIT, metavar="N|SHARE", help="most documents a term is in (default: 1.0)")
    f.add_argument("--max-features", type=HOW_MANY, metavar="N|none", help="largest vocabulary (default: 1048576)")
    f.add_argument("--hash", type=int, metavar="N", help="no vocabulary: a term's index is its hash, below N")
    f.add_argument(
        "--hash-report", action="store_true", default=None, help="with --hash: write which terms share an index"
    )
    f.add_argument("--sublinear-tf", action="store_true", default=None, help="1 + ln(tf) for tf")
    f.add_argument("--idf", choices=("smooth", "plain", "ml"), help="default: smooth")
    f.add_argument("--norm", choices=("l2", "l1", "none"), help="default: l2 for tfidf, else none")
    f.add_argument("--bm25-k1", type=float, metavar="K1", help="how soon tf saturates (default: 1.2)")
    f.add_argument("--bm25-b", type=float, metavar="B", help="how much a document's length counts (default: 0.75)")
    return p


def add_text_options(f: argparse._ArgumentGroup) -> None:
    """The options that shape terms and their counts, before any is left out."""
    f.add_argument("--ngrams", type=MIN_MAX, metavar="MIN,MAX", help="tokens in a term (default: 1,1)")
    f.add_argument(
        "--ngram-span", choices=("sentence", "document"), help="what n-grams stay within (default: sentence)"
    )
    f.add_argument(
        "--tokenizer",
        choices=("word", "whitespace", "regex", "char", "char_wb", "jieba"),
        help="default: word (UAX #29)",
    )
    f.add_argument("--pattern", metavar="REGEX", help="what a token is, for --tokenizer regex")
    f.add_argument("--user-dict", metavar="FILE", help="words to keep whole, for --tokenizer jieba, in its format")
    f.add_argument("--keep-urls", action="store_true", default=None, help="URLs and e-mail addresses are tokens")
    f.add_argument("--emoji", action="store_true", default=None, help="emoji are tokens")
    f.add_argument(
        "--stop-words", metavar="LANG|FILE", help="language codes such as en or zh,en, or a file, a word a line"
    )
    f.add_argument("--preset", choices=("sklearn",), help="tokens and n-grams of scikit-learn's vectorizers")
    f.add_argument("--unicode", choices=("NFC", "NFKC"), help="normal form (default: NFC)")
    f.add_argument("--no-lowercase", action="store_true", default=None, help="keep capitals")
    f.add_argument("--strip-accents", action="store_true", default=None, help="of Latin, Greek and Cyrillic letters")


def check_options(options: argparse.Namespace) -> None:
    """Raise Mistake for options that are empty or exclude each other."""
    refuse_empty(options)
    if options.apply:
        fitting = [name for name in ("model", "keep_counts", *FITTING) if getattr(options, name) is not None]
        if fitting:
            names = ", ".join("--" + name.replace("_", "-") for name in fitting)
            raise Mistake(f"--apply uses a model as it is: leave out {names}")
    elif not options.model:
        raise Mistake("give --model DIR, where the fitted model goes, or --apply DIR, a model to use")
    if options.hash_report and options.hash is None:
        raise Mistake("--hash-report tells which terms share an index: give --hash N, or leave it out")
    check_text_options(options)


def asked_split(options: argparse.Namespace, model: FeatureModel | None) -> Split | None:
    """The split of --split, or None; raises Mistake for what is none.

    Where the model of --apply was fitted on a split by the same times, it is that one, with its cutoffs.
    """
    if options.split is None:
        return None
    try:
        split = Split.parse(options.split)
    except ValueError as error:
        raise Mistake(f"--split {error}") from None
    fitted = model.fitted_on if model else None
    return fitted if fitted and replace(fitted, cutoffs=()) == split else split


def refuse_empty(options: argparse.Namespace) -> None:
    """Raise Mistake for an option without a value."""
    empty = [name for name, value in vars(options).items() if value == ""]
    if empty:
        raise Mistake(f"--{empty[0].replace('_', '-')} is empty: give a value, or leave the option out")


def check_text_options(options: argparse.Namespace) -> None:
    """Raise Mistake for options of `add_text_options` that exclude each other."""
    if options.user_dict and options.tokenizer != "jieba":
        raise Mistake("--user-dict is for --tokenizer jieba: choose that, or leave it out")
    if options.preset:
        settled = ["pattern", "unicode", "strip_accents", "keep_urls", "emoji", "ngram_span"] + ["tokenizer"] * (
            options.tokenizer not in CHARACTERS
        )
        own = [name for name in settled if getattr(options, name) is not None]
        if own:
            names = ", ".join("--" + name.replace("_", "-") for name in own)
            raise Mistake(f"--preset {options.preset} settles {names}: leave out one or the other")


def refuse_character_tokens(options: argparse.Namespace, config: FeatureConfig) -> None:
    """Raise Mistake where --tokens would keep characters, which are no tokens with a place in the text."""
    if options.tokens and config.text.tokenizer in CHARACTERS:
        raise Mistake(
            f"--tokens keeps words and their places, which tokenizer {config.text.tokenizer} has not: leave it out, "
            "or choose another --tokenizer"
        )


def feature_config(options: argparse.Namespace) -> FeatureConfig:
    """The FeatureConfig that the fitting options ask for; raises Mistake for a bad value or combination."""
    given = {name: getattr(options, name) for name in SAME if getattr(options, name) is not None}
    if options.hash is not None:
        given["hash_size"] = options.hash
    if options.max_features is not None:
        given["max_features"] = options.max_features or None
    with mistakes():
        text = TextConfig(
            unicode=options.unicode or "NFC",
            lowercase=not options.no_lowercase,
            tokenizer=options.tokenizer or "word",
            pattern=options.pattern,
            strip_accents=bool(options.strip_accents),
            keep_urls=bool(options.keep_urls),
            emoji=bool(options.emoji),
        )
        if options.user_dict is not None:
            text = replace(text, user_dict=user_words(options.user_dict, text))
        config = FeatureConfig(text=text, **given)
        if options.preset == "sklearn":
            config = sklearn_preset(config)
        if options.stop_words is not None:
            config = replace(config, stop_words=tuple(stop_words(options.stop_words, config.text)))
        return config
