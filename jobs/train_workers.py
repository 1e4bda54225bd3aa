"""What train.py runs in Spark's Python workers: rows of features to cells, the ranks that train, the evaluation."""

from __future__ import annotations

import json
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from jobs.barrier import Rank
from jobs.workers import to_bytes
from models import linear
from models.classifier import Classifier
from models.evaluation import Tally
from models.linear import LinearConfig
from models.rows import Outputs, Rows, csr_of
from models.splits import content_heads
from udfs.records import Unreadable

CELL_ROWS = 1024  # that go to one rank together
ENTRY_BYTES = 8  # that a binned entry takes in memory


def pack_rows(batches: Iterator[pa.RecordBatch], partition: int, settings: str) -> Iterator[pa.RecordBatch]:
    """Rows of id, part, label, content, indices, values and perhaps weight as cells, dealt by turns to the ranks.

    settings: JSON of classes, many, width, keys (of the ranks) and weights (of the classes, or null). A cell holds rows
    of one part: label is the number of the class or a list of them, null labels of a list are those not known; weight
    is float32. Raises Unreadable naming the document of an entry that is no finite number or lies outside the width.
    """
    given = json.loads(settings)
    keys, number = given["keys"], partition
    for batch in batches:
        whole = pa.Table.from_batches([batch])
        _check_entries(whole, given["width"])
        for part in np.unique(whole["part"].to_numpy()):
            rows = whole.filter(pc.equal(whole["part"], int(part)))
            for begin in range(0, len(rows), CELL_ROWS):
                cell = _with_codes(rows.slice(begin, CELL_ROWS), given)
                yield pa.record_batch({"rank": pa.array([keys[number % len(keys)]], pa.int32()), "cell": [cell]})
                number += 1


def _with_codes(rows: pa.Table, given: dict[str, Any]) -> bytes:
    label = rows["label"].combine_chunks()
    classes = pa.array(given["classes"], pa.string())
    weights = rows["weight"].to_numpy() if "weight" in rows.column_names else np.ones(len(rows))
    if given["many"]:
        codes = pc.index_in(label.flatten(), classes)
        code = pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), _ends(label)]), codes)
    else:
        code = pc.index_in(label, classes)
        if given["weights"]:
            weights = weights * np.array(given["weights"])[code.to_numpy()]
    columns = {name: rows[name] for name in ("part", "content", "indices", "values")}
    return to_bytes(pa.table({**columns, "label": code, "weight": pa.array(weights, pa.float32())}))


def _ends(lists: pa.ListArray) -> pa.Array:
    return pa.array(np.cumsum(pc.list_value_length(lists).to_numpy()), pa.int32())


def _check_entries(rows: pa.Table, width: int) -> None:
    """Raise Unreadable for the first row whose indices and values are no sparse row of this width."""
    indices, values = rows["indices"].combine_chunks(), rows["values"].combine_chunks()
    lengths = pc.list_value_length(indices)
    if indices.null_count or values.null_count or not lengths.equals(pc.list_value_length(values)):
        raise Unreadable("has rows whose indices and values are null or differ in length: give what featurize wrote")
    column, value = indices.flatten(), values.flatten()
    fine = pc.and_(pc.and_(pc.greater_equal(column, 0), pc.less(column, width)), pc.is_finite(value))
    if pc.all(fine).as_py() is not False and not fine.null_count:
        return
    at = pc.index(pc.fill_null(fine, False), False).as_py()
    row = int(np.searchsorted(np.cumsum(lengths.to_numpy()), at, side="right"))
    raise Unreadable(
        f"holds, in document {rows['id'][row].as_py()!r}, {value[at].as_py()} as feature {column[at].as_py()}: "
        f"features are finite numbers at 0 to {width - 1}"
    )


# -- ranks ------------------------------------------------------------------------------------------------------------


def rank_rows(batches: list[pa.RecordBatch], part: int, outputs: Outputs, width: int) -> Rows:
    """The rows of one part (0 train, 1 validation) in a rank's batches, whose entries stay where they are."""
    mine = [batch for batch in batches if batch["part"][0].as_py() == part]
    labels = [_labels(batch["label"], outputs) for batch in mine]
    empty = np.empty((0, outputs.classes), np.uint8) if outputs.kind == "labels" else np.empty(0, np.int32)
    return Rows(
        [csr_of(batch["indices"], batch["values"], width) for batch in mine],
        np.concatenate([empty, *labels]),
        np.concatenate([np.empty(0, np.uint64), *(content_heads(batch["content"]) for batch in mine)]),
        np.concatenate([np.empty(0, np.float32), *(batch["weight"].to_numpy() for batch in mine)]),
    )


def _labels(codes: pa.Array, outputs: Outputs) -> np.ndarray:
    if outputs.kind != "labels":
        return codes.to_numpy()
    found = np.zeros((len(codes), outputs.classes), np.uint8)
    code = codes.flatten()
    row = np.repeat(np.arange(len(codes)), pc.list_value_length(codes).to_numpy())[code.is_valid().to_numpy(False)]
    found[row, code.drop_null().to_numpy()] = 1
    return found


def boosted_rank(rank: Rank, settings: str) -> None:
    """Train boosted trees with the other ranks, on the cuts that the driver makes of all ranks' summaries.

    settings: JSON of config, outputs, width and memory. The first rank tells rounds, checkpoints and the model.
    """
    from xgboost.tracker import RabitTracker

    from models.boosted import BoostedConfig, Round, Summary, summarise, summary_size, train

    given = json.loads(settings)
    config, outputs, width = BoostedConfig(**given["config"]), Outputs(*given["outputs"]), given["width"]
    rows, validation = (rank_rows(list(rank.rows), part, outputs, width) for part in (0, 1))
    summary: Summary = summarise(rows, width, summary_size(width, config.max_bin))
    known = {
        "train": len(rows),
        "validation": len(validation),
        "bytes": _binned_bytes(rows) + _binned_bytes(validation),
    }
    # The tracker lives in a rank, whose end is its own: where ranks were lost it may end its process.
    tracker = RabitTracker(rank.count, rank.link.host, sortby="task") if rank.count > 1 and rank.number == 0 else None
    if tracker:
        tracker.start()
    communicator = tracker.worker_args() if tracker else None
    start = rank.link.gather("start", {**known, "communicator": communicator}, *(array.tobytes() for array in summary))
    data, indices, indptr, resume = start.parts
    cuts = csr_matrix(
        (np.frombuffer(data, np.float32), np.frombuffer(indices, np.int32), np.frombuffer(indptr, np.int32)),
        shape=(start.values["height"], width),
    )
    communicator = start.values["communicator"]

    def tell_round(found: Round) -> None:
        if rank.number == 0:
            rank.link.tell("round", found._asdict())

    def tell_checkpoint(model: bytes, rounds: int) -> None:
        if rank.number == 0:
            rank.link.tell("checkpoint", {"rounds": rounds}, model)

    with telling(rank):
        model, rounds = train(
            config,
            outputs,
            rows,
            cuts,
            validation=validation if start.values["validation"] else None,
            resume=resume or None,
            on_round=tell_round,
            on_checkpoint=tell_checkpoint,
            cache=rank.scratch if start.values["bytes"] > given["memory"] else None,
            threads=given["threads"],
            communicator=communicator and communicator | {"dmlc_task_id": f"{rank.number:08}"},
        )
    if tracker:
        tracker.wait_for()
    if rank.number == 0:
        counts = {name: start.values[name] for name in ("train", "validation")}
        rank.link.tell("model", counts, model.to_bytes(), json.dumps(rounds).encode())


def _binned_bytes(rows: Rows) -> int:
    return ENTRY_BYTES * sum(part.nnz for part in rows.parts)


def linear_rank(rank: Rank, settings: str) -> None:
    """Train a linear classifier in the only rank. settings: as of `boosted_rank`."""
    given = json.loads(settings)
    outputs, width = Outputs(*given["outputs"]), given["width"]
    rows, validation = (rank_rows(list(rank.rows), part, outputs, width) for part in (0, 1))
    with telling(rank):
        model = linear.train(LinearConfig(**given["config"]), outputs, rows, width, validation)
    rank.link.tell("model", {"train": len(rows), "validation": len(validation)}, model.to_bytes(), b"null")


@contextmanager
def telling(rank: Rank) -> Iterator[None]:
    """Around training: a ValueError ends the job as the user's mistake, warnings of the first rank are told."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except ValueError as error:
            if type(error) is not ValueError:  # XGBoost's own: another rank is lost
                raise
            rank.link.refuse(str(error))
    if rank.number == 0:
        for text in dict.fromkeys(str(each.message).splitlines()[0] for each in caught):
            rank.link.tell("warning", {"text": text})


# -- evaluation -------------------------------------------------------------------------------------------------------


@cache
def shipped_classifier(archive: str) -> Classifier:
    """The classifier in a zip that the driver shipped, loaded once in a process."""
    from pyspark import SparkFiles

    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(SparkFiles.get(archive)) as file:
        file.extractall(scratch)
        return Classifier.load(scratch)


def evaluate(batches: Iterator[pa.RecordBatch], partition: int, archive: str) -> Iterator[pa.RecordBatch]:
    """Predict rows of id, label, indices and values: one row, the tally as JSON."""
    classifier = shipped_classifier(archive)
    many = classifier.outputs.kind == "labels"
    tally = Tally(classifier.classes, many)
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        _check_entries(rows, classifier.model.features)
        matrix = csr_of(batch["indices"], batch["values"], classifier.model.features)
        tally.add(batch["label"].to_pylist(), classifier.probabilities(matrix))
    yield pa.record_batch({"tally": [json.dumps(tally.to_dict())]})
