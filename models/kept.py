"""Kept counts: df and cf of every term of a model's documents, so that models can be added and subtracted exactly.

Terms are dealt to shards by hash, and shards are taken one after the other: of each model one is held at a time. On
disk they are Parquet files, a row group for each shard that has terms, in order of term.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from models.counts import (
    SHARDS,
    TermCounts,
    deal_counts,
    join_counts,
    merge_counts,
    row_hashes,
    sort_counts,
    take_counts,
)
from udfs.hashing import hash_sum

if TYPE_CHECKING:
    from models.features import FeatureConfig

COUNTS = pa.schema([("shard", pa.int32()), ("term", pa.large_string()), ("df", pa.int64()), ("cf", pa.int64())])


@dataclass(frozen=True)
class KeptCounts:
    """The counts of all `terms` terms of n documents with n_tokens tokens; iterating gives them shard by shard.

    content_hash: sum of the hashes of all (term, df, cf), as 32 hex digits. source: the counts in memory, a local
    folder of Parquet files, or None where they lie elsewhere. name: what messages call the model.
    """

    config: FeatureConfig
    n: int
    n_tokens: int
    shards: int
    terms: int
    content_hash: str
    source: TermCounts | Path | None
    name: str = ""

    @classmethod
    def of(cls, config: FeatureConfig, n: int, n_tokens: int, counts: TermCounts) -> KeptCounts:
        """Counts in memory."""
        return cls(config, n, n_tokens, SHARDS, len(counts.df), hex_sum(counts_hash(counts)), counts)

    @property
    def summary(self) -> dict[str, Any]:
        """What the model's manifest says of them."""
        return {"shards": self.shards, "terms": self.terms, "content_hash": self.content_hash}

    def __iter__(self) -> Iterator[TermCounts]:
        """The counts of each shard; raises ValueError, at the end at the latest, if a file is not as it was written."""
        if isinstance(self.source, TermCounts):
            yield from deal_counts(self.source, self.shards)
            return
        if self.source is None or not self.source.is_dir():
            raise ValueError(f"{self.name} has no counts/, which its manifest names: copy the whole model folder")
        terms = total = 0
        try:
            groups = _row_groups(self.source)
            for shard in range(self.shards):
                counts = _read(groups.get(shard, []))
                if len(deal_counts(counts, self.shards)[shard].df) < len(counts.df):
                    break  # terms of another shard: counted as missing
                terms += len(counts.df)
                total += counts_hash(counts)
                yield counts
        except (pa.ArrowException, OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            said = str(error).replace(str(self.source), f"{self.name}/counts")
            raise ValueError(
                f"{self.name}: counts/ is damaged ({type(error).__name__}: {said}): fit the model again with "
                "--keep-counts"
            ) from None
        if (terms, hex_sum(total)) != (self.terms, self.content_hash):
            raise ValueError(
                f"{self.name}: counts/ was changed since it was written: fit the model again with --keep-counts"
            )

    def save(self, folder: Path) -> None:
        """Write them to a new local folder, or copy their files; nothing if they lie elsewhere."""
        if isinstance(self.source, TermCounts):
            save_counts(self, folder)
        elif self.source is not None and self.source.is_dir():
            shutil.copytree(self.source, folder)


def counts_hash(counts: TermCounts) -> int:
    """The sum of the hashes of all (term, df, cf)."""
    return hash_sum(row_hashes(counts.terms, counts.df, counts.cf))


def hex_sum(total: int) -> str:
    """A sum of 128-bit hashes as 32 hex digits."""
    return f"{total % (1 << 128):032x}"


def shard_table(shard: int, counts: TermCounts) -> pa.Table:
    """The rows of a shard in order of term, as COUNTS."""
    ordered = sort_counts(counts)
    columns = [np.full(len(ordered.df), shard, np.int32), ordered.terms, ordered.df, ordered.cf]
    return pa.table(columns, schema=COUNTS)


def save_counts(shards: Iterable[TermCounts], folder: Path) -> tuple[int, int]:
    """Write the counts of each shard to a new local folder; returns how many terms there are and their hashes' sum."""
    folder.mkdir()
    terms = total = 0
    # As jobs/workers.py writes them: statistics tell a row group's shard.
    with pq.ParquetWriter(folder / "counts.parquet", COUNTS, compression="zstd", use_dictionary=False) as file:
        for shard, counts in enumerate(shards):
            if len(counts.df):
                file.write_table(shard_table(shard, counts), row_group_size=len(counts.df))
                terms += len(counts.df)
                total += counts_hash(counts)
    return terms, total


def _row_groups(folder: Path) -> dict[int, list[tuple[Path, int]]]:
    """The file and number of each shard's row groups."""
    groups: dict[int, list[tuple[Path, int]]] = {}
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                shard = file.metadata.row_group(number).column(0).statistics.min
                groups.setdefault(shard, []).append((path, number))
    return groups


def _read(groups: list[tuple[Path, int]]) -> TermCounts:
    parts = []
    for path, number in groups:
        with pq.ParquetFile(path) as file:
            # One thread: a process that ends while those of Arrow's pool still do may abort (arrow issue 34314).
            table = file.read_row_group(number, COUNTS.names, use_threads=False).cast(COUNTS).combine_chunks()
        df, cf = (pc.fill_null(table[name], -1).to_numpy() for name in ("df", "cf"))
        parts.append(TermCounts(pa.concat_arrays(table["term"].chunks), df, cf))
    return join_counts(parts)


def check(added: Sequence[KeptCounts], subtracted: Sequence[KeptCounts] = ()) -> tuple[int, int]:
    """The number of documents and tokens left; raises ValueError, before any count is read, for what can't be added."""
    first, *others = added[0], *added[1:], *subtracted
    for number, other in enumerate(others, 2):
        ours, theirs = first.name or "model 1", other.name or f"model {number}"
        for (name, a), b in zip(_settings(first).items(), _settings(other).values(), strict=True):
            if repr(a) != repr(b):  # 1 document is not a share of 1.0
                raise ValueError(
                    f"{name.replace('_', '-')} is {a!r:.60} in {ours} and {b!r:.60} in {theirs}: only models "
                    "of the same settings can be merged; fit one of them again"
                )
        if first.shards != other.shards:
            raise ValueError(
                f"{ours} has its counts in {first.shards} shards, {theirs} in {other.shards}: another version wrote "
                "one of them; fit it again"
            )
    n, n_tokens = (
        sum(getattr(kept, name) for kept in added) - sum(getattr(kept, name) for kept in subtracted)
        for name in ("n", "n_tokens")
    )
    if n < 0 or n_tokens < 0:
        what, less = ("documents", n) if n < 0 else ("tokens", n_tokens)
        raise ValueError(f"{-less} more {what} are subtracted than added: subtract only models that were added")
    if n == 0:
        raise ValueError("no documents are left: subtract fewer models than were added")
    first.config.df_limits(n)
    return n, n_tokens


def _settings(kept: KeptCounts) -> dict[str, Any]:
    values = asdict(kept.config)
    return values.pop("text") | values


def combine(
    added: Sequence[KeptCounts], subtracted: Sequence[KeptCounts] = (), folder: Path | None = None
) -> KeptCounts:
    """The counts of the documents of `added` without those of `subtracted`, in memory or in a new local folder.

    Raises ValueError if settings differ, or what is subtracted was not added.
    """
    n, n_tokens = check(added, subtracted)
    config, shards = added[0].config, _sums(added, subtracted, n)
    if folder is None:
        return KeptCounts.of(config, n, n_tokens, join_counts(list(shards)))
    terms, total = save_counts(shards, folder)
    return KeptCounts(config, n, n_tokens, added[0].shards, terms, hex_sum(total), folder)


def _sums(added: Sequence[KeptCounts], subtracted: Sequence[KeptCounts], n: int) -> Iterator[TermCounts]:
    """The counts of each shard; raises ValueError at the end if any cannot be of n documents.

    Not before, since then all files have been checked: what looks like a wrong subtraction may be a changed file.
    """
    wrong: tuple[str, int, int] | None = None
    for parts in zip(*added, *subtracted, strict=True):
        if not any(len(counts.df) for counts in parts):
            yield parts[0]
            continue
        less = [TermCounts(counts.terms, -counts.df, -counts.cf) for counts in parts[len(added) :]]
        counts = merge_counts([*parts[: len(added)], *less])
        df, cf = counts.df, counts.cf
        bad = np.flatnonzero((df < 0) | (df > n) | (cf < df) | ((df == 0) & (cf > 0)))
        if len(bad) and wrong is None:
            wrong = counts.terms[bad[0]].as_py(), int(df[bad[0]]), int(cf[bad[0]])
        yield take_counts(counts, np.flatnonzero(df))
    if wrong:
        term, df, cf = wrong
        raise ValueError(
            f"{term!r} would be left {cf} times in {df} of {n} documents: subtract only models that were added"
        )
