"""The benchmarks' Parquet corpora: a share of the documents of JSONL files, mixed by the hashes of their ids."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string()), ("label", pa.string())])
FILES = 10
ROWS = 1024  # in a row group


@dataclass(frozen=True)
class Sample:
    """A folder of Parquet files, how many documents it holds and how many bytes of text."""

    folder: Path
    documents: int
    bytes: int


def sample(sources: list[Path], folder: Path, share: float) -> Sample:
    """Write the documents whose hash is in the lowest `share`, in order of the hash, unless `folder` holds them.

    So the vocabulary grows to the end, and a smaller sample is the beginning of a larger one.
    """
    note = folder / "_sample.json"
    if not note.is_file() or note.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(json.dumps(_write(sources, folder, share)))
    documents, size = json.loads(note.read_text())
    return Sample(folder, documents, size)


def _write(sources: list[Path], folder: Path, share: float) -> tuple[int, int]:
    size = 0
    files = [source.open("rb") for source in sources]
    places = sorted(place for number, file in enumerate(files) for place in _places(file, number) if place[0] < share)
    for part in range(FILES):
        rows = []
        for _, number, offset in places[len(places) * part // FILES : len(places) * (part + 1) // FILES]:
            files[number].seek(offset)
            record = json.loads(files[number].readline())
            rows.append({name: record[name] for name in SCHEMA.names})
            size += len(record["text"].encode())
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        pq.write_table(table, folder / f"part-{part}.parquet", compression="snappy", row_group_size=ROWS)
    for file in files:
        file.close()
    return len(places), size


def _places(file: BinaryIO, number: int) -> list[tuple[float, int, int]]:
    """For each line its document's hash as a fraction, the file's number and the line's offset."""
    places, offset = [], 0
    for line in file:
        digest = hashlib.blake2b(json.loads(line)["id"].encode(), digest_size=8).digest()
        places.append((int.from_bytes(digest, "big") / 2**64, number, offset))
        offset += len(line)
    return places
