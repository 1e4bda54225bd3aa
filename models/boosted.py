"""Boosted trees by XGBoost (tree_method hist): the same bytes for any number of ranks and any division of the rows.

What would differ between divisions is done here instead: cuts come from a sample chosen by content; gradients are
multiples of a power of two so coarse that every sum of them is exact, in whatever order XGBoost adds; rows are drawn by
hashes of their content; log-loss is a sum of whole numbers. Training goes in chunks, and a run that goes on from the
bytes at the end of one is the run that was not interrupted.

Legend: N rows of this rank, F features, K outputs (margins) of a row.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_matrix, vstack
from scipy.special import expit, softmax

from models.rows import Outputs, Rows, first_not_finite
from udfs.compiled import kernel
from udfs.hashing import fmix64

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before XGBoost: else its idle threads burn a core each
import xgboost
from xgboost import collective

ENTRIES = 1 << 22  # that a summary aims at: 12 bytes each
MOST_OF_A_FEATURE = 4096  # values that a summary keeps of one feature
MERGED_AT = 1 << 22  # entries of rows that are summarised at once
MINIMAL_SLICE = 1 << 14  # rows whose gradients are worth a thread
HUGE = np.float32(1e37)  # no value is as large
LEAST_SHARE = 1e-6  # of a class, in the margins that boosting starts from


def _check(name: str, value: float, low: float, high: float, whole: bool = False, above: bool = False) -> None:
    kind = int if whole else (int, float)
    if (
        isinstance(value, bool)
        or not isinstance(value, kind)
        or not (low < value if above else low <= value)
        or (value > high)
    ):
        limits = f"{'above' if above else 'from'} {low:g}{f' to {high:g}' if high < math.inf else ' on'}"
        raise ValueError(f"{name} is {value}: give a {'whole ' if whole else ''}number {limits}")


@dataclass(frozen=True)
class BoostedConfig:
    """How trees are boosted; raises ValueError for a value outside its limits.

    early_stopping: rounds without a better log-loss of the validation part after which training ends (0: none; the
    model then keeps its best round in both cases where there is a validation part). checkpoint_every: rounds of a
    chunk; with colsample below 1 the model depends on it.
    """

    rounds: int = 150
    depth: int = 3
    eta: float = 0.5
    max_bin: int = 8
    min_child_weight: float = 1.0
    l2: float = 1.0
    subsample: float = 1.0
    colsample: float = 1.0
    early_stopping: int = 0
    checkpoint_every: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        _check("rounds", self.rounds, 1, 1_000_000, whole=True)
        _check("depth", self.depth, 1, 16, whole=True)
        _check("eta", self.eta, 0, 1, above=True)
        _check("max_bin", self.max_bin, 2, 65_535, whole=True)
        _check("min_child_weight", self.min_child_weight, 0, math.inf)
        _check("l2", self.l2, 0, math.inf)
        _check("subsample", self.subsample, 0, 1, above=True)
        _check("colsample", self.colsample, 0, 1, above=True)
        _check("early_stopping", self.early_stopping, 0, 1_000_000, whole=True)
        _check("checkpoint_every", self.checkpoint_every, 1, 1_000_000, whole=True)
        _check("seed", self.seed, 0, 2**31 - 1 - 1_000_000, whole=True)


# -- cuts -------------------------------------------------------------------------------------------------------------


class Summary(NamedTuple):
    """Of each feature its `size` values with the smallest (hash of the row's content, value): a sample free of order.

    indptr: int64 [F + 1]; hashes: uint64, ascending within a feature; values: float32, never 0.
    """

    indptr: np.ndarray
    hashes: np.ndarray
    values: np.ndarray


def summary_size(features: int, max_bin: int) -> int:
    """How many values a summary keeps of each feature."""
    return max(max_bin, min(MOST_OF_A_FEATURE, ENTRIES // max(features, 1)))


def summarise(rows: Rows, features: int, size: int) -> Summary:
    """A summary of a rank's rows."""
    found = _no_rows(features)
    hashes = _mixed(rows.keys)
    begin, group, entries = 0, [], 0
    for number, part in enumerate(rows.parts):
        group.append(part)
        entries += part.nnz
        if entries >= MERGED_AT or number == len(rows.parts) - 1:
            count = sum(each.shape[0] for each in group)
            one = _summary_of(group, hashes[begin : begin + count], features)
            found = merge_summaries([found, one], size)
            begin, group, entries = begin + count, [], 0
    return found


def _no_rows(features: int) -> Summary:
    return Summary(np.zeros(features + 1, np.int64), np.empty(0, np.uint64), np.empty(0, np.float32))


def _summary_of(parts: Sequence[csr_matrix], hashes: np.ndarray, features: int) -> Summary:
    counts = np.zeros(features + 1, np.int64)
    for part in parts:
        _count_entries(part.indices, part.data, counts)
    indptr = np.cumsum(counts)
    into = (np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], np.float32))
    at, begin = indptr[:-1].copy(), 0
    for part in parts:
        rows = hashes[begin : begin + part.shape[0]]
        _deal_entries(part.indptr, part.indices, part.data, rows, at, *into)
        begin += part.shape[0]
    _sort_features(indptr, *into)
    return Summary(indptr, *into)


def merge_summaries(summaries: Sequence[Summary], size: int) -> Summary:
    """The summary of all rows that the summaries, each of at least `size`, are of."""
    found = _no_rows(len(summaries[0].indptr) - 1)
    for other in summaries:
        both = np.minimum(np.diff(found.indptr) + np.diff(other.indptr), size)
        indptr = np.concatenate([[0], np.cumsum(both)])
        into = (np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], np.float32))
        _merge_features(*found, *other, indptr, *into)
        found = Summary(indptr, *into)
    return found


def cut_values(summary: Summary, max_bin: int) -> csr_matrix:
    """At most `max_bin` lower bounds of bins for each feature, as the column of a matrix: float32 [<= max_bin + 1, F].

    XGBoost makes of this matrix exactly these bins. It ends the last one at twice the largest entry; a value above that
    would be predicted as if it were absent. So HUGE comes last, where it costs no bin or larger values may be. Zero is
    no value here: it is what is absent.
    """
    counts = np.empty(len(summary.indptr) - 1, np.int64)
    bounds = np.empty(len(summary.values) + len(counts), np.float32)
    size = summary_size(len(counts), max_bin)
    _choose_bounds(summary.indptr, summary.values, max_bin, size, counts, bounds)
    features = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    rows = np.arange(len(features)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.repeat(summary.indptr[:-1] + np.arange(len(counts)), counts)
    values = bounds[begin + rows]
    height = int(counts.max(initial=0))
    return csr_matrix((values, (rows, features)), shape=(height, len(counts)), dtype=np.float32)


def reduced_bytes(cuts: csr_matrix, config: BoostedConfig, outputs: Outputs) -> int:
    """How many bytes of histograms two ranks or more add up: cuts x 16 B x 2^(depth - 1) x trees."""
    bins = np.minimum(np.bincount(cuts.indices, minlength=cuts.shape[1]), config.max_bin).sum()
    return int(bins) * 16 * 2 ** (config.depth - 1) * config.rounds * outputs.margins


@kernel
def _count_entries(indices, data, counts):  # type: ignore[no-untyped-def]
    for k in range(len(indices)):
        if data[k] != 0:
            counts[indices[k] + 1] += 1


@kernel
def _deal_entries(indptr, indices, data, hashes, at, into_hashes, into_values):  # type: ignore[no-untyped-def]
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            if data[k] != 0:
                place = at[indices[k]]
                into_hashes[place] = hashes[row]
                into_values[place] = data[k]
                at[indices[k]] += 1


@kernel
def _sort_features(indptr, hashes, values):  # type: ignore[no-untyped-def]
    for feature in range(len(indptr) - 1):
        begin, end = indptr[feature], indptr[feature + 1]
        order = np.argsort(hashes[begin:end], kind="mergesort")
        hashes[begin:end] = hashes[begin:end][order]
        values[begin:end] = values[begin:end][order]
        k = begin
        while k < end:  # equal content: by value
            after = k + 1
            while after < end and hashes[after] == hashes[k]:
                after += 1
            if after > k + 1:
                values[k:after] = np.sort(values[k:after])
            k = after


@kernel
def _merge_features(indptr_a, hashes_a, values_a, indptr_b, hashes_b, values_b, indptr, hashes, values):  # type: ignore[no-untyped-def]
    for feature in range(len(indptr) - 1):
        a, b = indptr_a[feature], indptr_b[feature]
        end_a, end_b = indptr_a[feature + 1], indptr_b[feature + 1]
        for k in range(indptr[feature], indptr[feature + 1]):
            if b == end_b or (
                a < end_a and (hashes_a[a] < hashes_b[b] or (hashes_a[a] == hashes_b[b] and values_a[a] <= values_b[b]))
            ):
                hashes[k], values[k] = hashes_a[a], values_a[a]
                a += 1
            else:
                hashes[k], values[k] = hashes_b[b], values_b[b]
                b += 1


@kernel
def _choose_bounds(indptr, values, max_bin, size, counts, bounds):  # type: ignore[no-untyped-def]
    """All distinct values of a feature if they are few, else those at equal steps of its sample, one place apart."""
    for feature in range(len(indptr) - 1):
        ordered = np.sort(values[indptr[feature] : indptr[feature + 1]])
        begin = indptr[feature] + feature
        n = len(ordered)
        distinct = 0
        for k in range(n):
            if k == 0 or ordered[k] != ordered[k - 1]:
                distinct += 1
        found = 0
        if distinct <= max_bin:
            for k in range(n):
                if k == 0 or ordered[k] != ordered[k - 1]:
                    bounds[begin + found] = ordered[k]
                    found += 1
        else:
            for step in range(max_bin):
                value = ordered[step * n // max_bin]
                if found == 0 or value != bounds[begin + found - 1]:
                    bounds[begin + found] = value
                    found += 1
        if found == max_bin or n >= size:
            bounds[begin + found] = HUGE
            found += 1
        counts[feature] = found


@kernel
def _mixed(keys):  # type: ignore[no-untyped-def]
    found = np.empty(len(keys), np.uint64)
    for k in range(len(keys)):
        found[k] = fmix64(keys[k])
    return found


# -- training ---------------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """One round's log-loss, a mean over the weighted rows (and labels); validation is None without such rows."""

    number: int
    train: float
    validation: float | None


def train(
    config: BoostedConfig,
    outputs: Outputs,
    rows: Rows,
    cuts: csr_matrix,
    *,
    validation: Rows | None = None,
    resume: bytes | None = None,
    on_round: Callable[[Round], None] = lambda found: None,
    on_checkpoint: Callable[[bytes, int], None] = lambda model, rounds: None,
    cache: Path | None = None,
    threads: int = 1,
    communicator: Mapping[str, Any] | None = None,
) -> tuple[BoostedModel, list[Round]]:
    """Boost on the rows of all ranks; each rank gets the same model, of the best round of validation, and all rounds.

    rows: this rank's, perhaps none; validation: given on all ranks or none. cuts: of `cut_values`, the same on each.
    resume: bytes of a checkpoint, the same on each. on_checkpoint: gets the bytes so far and their number of rounds.
    cache: a folder for the binned rows, which then stay out of memory. communicator: arguments of
    xgboost.collective.CommunicatorContext; None: there is one rank. Warns where there is one class only; raises
    ValueError where no rank has rows of weight.

    XGBoost: Chen and Guestrin, KDD 2016.
    """
    binned = partial(_binned, cuts=cuts, max_bin=config.max_bin, threads=threads)
    # The reference is made by each rank alone: inside the communicator XGBoost would merge the sketches of the ranks.
    reference = xgboost.QuantileDMatrix(cuts, missing=0.0, max_bin=config.max_bin, nthread=threads)
    with collective.CommunicatorContext(**communicator) if communicator else nullcontext():
        facts = _Facts.of(outputs, rows)
        objective = _Objective(outputs, rows, facts, threads)
        matrix = binned(rows, reference, cache and cache / "train")
        judged = judge = None
        if validation is not None:
            judge = _Objective(outputs, validation, _Facts.of(outputs, validation), threads, gradients=False)
            judged = _sparse(validation, cuts.shape[1], cache and cache / "validation", threads)
        params = _parameters(config, outputs, threads)
        model = resume or _prior(params, facts, outputs, cuts.shape[1])
        rounds = [Round(*each) for each in json.loads(_booster(params, model).attr("rounds") or "[]")]
        booster: xgboost.Booster | None = None
        while len(rounds) < config.rounds and not _stopped(rounds, config.early_stopping):
            chunk = len(rounds) // config.checkpoint_every
            # XGBoost draws columns by a generator that no checkpoint holds, so that each chunk starts a new one. Else
            # the booster stays: a new one predicts all rows by all trees again.
            if booster is None or config.colsample < 1:
                booster = xgboost.Booster(
                    params | {"seed": config.seed + chunk},
                    cache=[each for each in (matrix, judged) if each is not None],
                    model_file=bytearray(model),
                )
                objective(_margins(booster, matrix), config, len(rounds))
            for number in range(len(rounds), min(config.rounds, (chunk + 1) * config.checkpoint_every)):
                booster.boost(matrix, iteration=number, grad=objective.grad, hess=objective.hess)
                loss = objective(_margins(booster, matrix), config, number + 1)
                other = judge(_margins(booster, judged), config, 0) if judge and judged is not None else None
                rounds.append(Round(number + 1, loss, other))
                on_round(rounds[-1])
                if _stopped(rounds, config.early_stopping):
                    break
            booster.set_attr(rounds=json.dumps(rounds))
            model = bytes(booster.save_raw("ubj"))
            on_checkpoint(model, len(rounds))
    best = _booster(params, model)[: _best(rounds)]
    best.set_attr(rounds=None, outputs=json.dumps(outputs))
    return BoostedModel(best, outputs), rounds


class _Facts(NamedTuple):
    """What is known of the rows of all ranks, exactly: counts and class sums are whole numbers."""

    rows: int
    scale: float  # the least power of two that is not below a weight
    weights: int  # sum, in units
    classes: np.ndarray  # int64 [classes]: the weights of each class's rows, in units

    @property
    def unit(self) -> float:
        """What a weight of 1 in `weights` stands for: a power of two."""
        return self.scale * 2.0**-30

    @classmethod
    def of(cls, outputs: Outputs, rows: Rows) -> _Facts:
        most = collective.allreduce(np.array([rows.weights.max(initial=0)], np.float64), collective.Op.MAX)[0]
        if most == 0:
            raise ValueError("no row has a weight above 0")
        scale = float(2.0 ** math.ceil(math.log2(most)))
        units = np.rint(rows.weights.astype(np.float64) / (scale * 2.0**-30)).astype(np.int64)
        classes = np.zeros(max(outputs.classes, 2), np.int64)
        if outputs.kind == "labels":
            classes[:] = [units[rows.labels[:, number] != 0].sum() for number in range(outputs.classes)]
        else:
            np.add.at(classes, rows.labels, units)
        sums = collective.allreduce(np.array([len(rows), units.sum(), *classes], np.int64), collective.Op.SUM)
        return cls(int(sums[0]), scale, int(sums[1]), sums[2:])


class _Objective:
    """Log-loss of a rank's rows, with gradients that are multiples of a power of two: any sum of them is exact.

    XGBoost adds float32 gradients up in float64; with at most 24 bits each, and the number of rows on top within 53
    bits, no sum is rounded, and none depends on the order of rows.
    """

    def __init__(self, outputs: Outputs, rows: Rows, facts: _Facts, threads: int, gradients: bool = True) -> None:
        self.labels, self.weights, self.keys = rows.labels, rows.weights, rows.keys
        if outputs.kind == "binary":
            self.labels = self.labels.astype(np.uint8).reshape(-1, 1)
        self.kernel = _softmax if outputs.kind == "classes" else _logistic
        shape = (max(len(rows), 1) if gradients else 0, outputs.margins)  # an empty rank has one row of no weight
        self.grad, self.hess = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        bits = max(-24, math.ceil(math.log2(facts.rows)) - 53)
        self.quantum = facts.scale * 2.0**bits
        self.unit = facts.scale * 2.0**-24  # of the losses' sum
        self.mean = self.unit / (facts.weights * facts.unit * (outputs.classes if outputs.kind == "labels" else 1))
        step = max(MINIMAL_SLICE, -(-len(rows) // threads))
        self.slices = [slice(begin, min(begin + step, len(rows))) for begin in range(0, len(rows), step)]
        self.threads = threads

    def __call__(self, margins: np.ndarray, config: BoostedConfig, number: int) -> float:
        """The mean log-loss over all ranks' rows; sets grad and hess for round `number`. margins: float32 [N, K]."""
        salt = np.uint64((config.seed << 32) + number + 1)
        below = np.uint64(min(int(config.subsample * 2.0**64), 2**64 - 1))

        def part(of: slice) -> int:
            into = (self.grad[of], self.hess[of])
            rows = (margins[of], self.labels[of], self.weights[of], self.keys[of])
            return int(self.kernel(*rows, salt, below, 1 / self.quantum, self.quantum, 1 / self.unit, *into))

        with ThreadPoolExecutor(self.threads) as pool:
            loss = sum(pool.map(part, self.slices))
        return float(collective.allreduce(np.array([loss], np.int64), collective.Op.SUM)[0]) * self.mean


class _Batches(xgboost.DataIter):
    def __init__(self, parts: Sequence[csr_matrix], cache: Path | None) -> None:
        self.parts, self.at = parts, 0
        super().__init__(cache_prefix=None if cache is None else str(cache), on_host=False)

    def next(self, input_data: Callable[..., None]) -> bool:
        if self.at == len(self.parts):
            return False
        input_data(data=self.parts[self.at])
        self.at += 1
        return True

    def reset(self) -> None:
        self.at = 0


def _binned(
    rows: Rows, reference: xgboost.DMatrix, cache: Path | None, *, cuts: csr_matrix, max_bin: int, threads: int
) -> xgboost.DMatrix:
    if cache is not None:
        cache.parent.mkdir(parents=True, exist_ok=True)
    parts = rows.parts or [csr_matrix((1, cuts.shape[1]), dtype=np.float32)]
    kind = xgboost.QuantileDMatrix if cache is None else xgboost.ExtMemQuantileDMatrix
    return kind(_Batches(parts, cache), missing=0.0, max_bin=max_bin, nthread=threads, ref=reference)


def _sparse(rows: Rows, features: int, cache: Path | None, threads: int) -> xgboost.DMatrix:
    """Rows that are only predicted: of binned ones XGBoost would look up every feature of every row each round."""
    parts = rows.parts or [csr_matrix((1, features), dtype=np.float32)]
    if cache is not None:
        return xgboost.DMatrix(_Batches(parts, cache), missing=0.0, nthread=threads)
    matrix = csr_matrix(parts[0] if len(parts) == 1 else vstack(parts, "csr"))
    return xgboost.DMatrix(matrix, missing=0.0, nthread=threads)


def _parameters(config: BoostedConfig, outputs: Outputs, threads: int) -> dict[str, Any]:
    kinds = {"classes": {"objective": "multi:softprob", "num_class": outputs.classes},
             "labels": {"objective": "binary:logistic", "num_target": outputs.classes}}  # fmt: skip
    return {
        **kinds.get(outputs.kind, {"objective": "binary:logistic"}),
        "tree_method": "hist", "max_bin": config.max_bin, "max_depth": config.depth, "eta": config.eta,
        "min_child_weight": config.min_child_weight, "lambda": config.l2, "colsample_bytree": config.colsample,
        "nthread": threads, "seed": config.seed, "verbosity": 1,
    }  # fmt: skip


def _prior(params: dict[str, Any], facts: _Facts, outputs: Outputs, features: int) -> bytes:
    """A model without trees that predicts the classes' shares."""
    shares = facts.classes / facts.weights
    if outputs.kind != "labels" and shares.max() == 1:
        warnings.warn("all rows are of one class: the model predicts it always", stacklevel=3)
    shares = np.clip(shares, LEAST_SHARE, 1 - LEAST_SHARE)
    if outputs.kind == "binary":
        score = repr(float(shares[1]))
    else:
        start = np.log(shares) if outputs.kind == "classes" else shares
        score = "[" + ",".join(repr(float(each)) for each in start) + "]"
    booster = xgboost.Booster(params | {"base_score": score, "num_feature": features})
    return bytes(booster.save_raw("ubj"))


def _booster(params: dict[str, Any], model: bytes) -> xgboost.Booster:
    return xgboost.Booster(params, model_file=bytearray(model))


def _margins(booster: xgboost.Booster, matrix: xgboost.DMatrix) -> np.ndarray:
    margins = booster.predict(matrix, output_margin=True, training=True)  # from XGBoost's cache, but for the last trees
    return margins.reshape(len(margins), -1)


def _best(rounds: Sequence[Round]) -> int:
    """The number of the round with the least validation loss, the first of equals; the last without validation."""
    judged = [(found.validation, found.number) for found in rounds if found.validation is not None]
    return min(judged)[1] if judged else len(rounds)


def _stopped(rounds: Sequence[Round], patience: int) -> bool:
    return bool(patience and rounds) and len(rounds) - _best(rounds) >= patience


@kernel
def _logistic(margins, labels, weights, keys, salt, below, per_quantum, quantum, per_unit, grad, hess):  # type: ignore[no-untyped-def]
    """int: the rows' log-loss in units. margins: [n, K]; labels: uint8 [n, K]; grad, hess: [n, K] or empty."""
    total = 0
    for row in range(len(margins)):
        weight = np.float64(weights[row])
        drawn = below == np.uint64(0xFFFFFFFFFFFFFFFF) or fmix64(keys[row] ^ salt) < below
        for k in range(margins.shape[1]):
            margin = np.float64(margins[row, k])
            label = np.float64(labels[row, k])
            loss = np.log1p(np.exp(-abs(margin))) + max(margin, 0.0) - margin * label
            total += np.int64(np.rint(weight * loss * per_unit))
            if len(grad):
                p = 1 / (1 + np.exp(-margin))
                grad[row, k] = np.rint(weight * (p - label) * per_quantum) * quantum if drawn else 0
                hess[row, k] = np.rint(weight * p * (1 - p) * per_quantum) * quantum if drawn else 0
    return total


@kernel
def _softmax(margins, labels, weights, keys, salt, below, per_quantum, quantum, per_unit, grad, hess):  # type: ignore[no-untyped-def]
    """int: the rows' log-loss in units. margins: [n, K]; labels: int32 [n]; grad, hess: [n, K] or empty."""
    total = 0
    shares = np.empty(margins.shape[1], np.float64)
    for row in range(len(margins)):
        weight = np.float64(weights[row])
        drawn = below == np.uint64(0xFFFFFFFFFFFFFFFF) or fmix64(keys[row] ^ salt) < below
        top = np.float64(margins[row, 0])
        for k in range(1, len(shares)):
            top = max(top, np.float64(margins[row, k]))
        whole = 0.0
        for k in range(len(shares)):
            shares[k] = np.exp(np.float64(margins[row, k]) - top)
            whole += shares[k]
        loss = np.log(whole) + top - np.float64(margins[row, labels[row]])
        total += np.int64(np.rint(weight * loss * per_unit))
        if len(grad):
            for k in range(len(shares)):
                p = shares[k] / whole
                label = 1.0 if k == labels[row] else 0.0
                grad[row, k] = np.rint(weight * (p - label) * per_quantum) * quantum if drawn else 0
                hess[row, k] = np.rint(weight * 2 * p * (1 - p) * per_quantum) * quantum if drawn else 0
    return total


# -- the model --------------------------------------------------------------------------------------------------------


class BoostedModel:
    """Trees that give probabilities; as bytes it is XGBoost's own UBJSON."""

    def __init__(self, booster: xgboost.Booster, outputs: Outputs) -> None:
        self.booster, self.outputs = booster, outputs

    @property
    def features(self) -> int:
        """F."""
        return self.booster.num_features()

    def probabilities(self, rows: csr_matrix, threads: int = 1) -> np.ndarray:
        """float64 [N, classes] of csr_matrix float32 [N, F]; a value of 0 is the same stored or not.

        Each row adds up to 1, but for `labels`. Raises ValueError for another width or a value that is not finite.
        """
        if rows.shape[1] != self.features:
            raise ValueError(f"rows have {rows.shape[1]} features, the model has {self.features}: use its features")
        if found := first_not_finite(rows):
            raise ValueError(f"row {found[0]}, feature {found[1]}: {found[2]} is no finite number")
        if not rows.shape[0]:
            return np.empty((0, self.outputs.classes))
        self.booster.set_param({"nthread": threads})
        margins = self.booster.inplace_predict(rows, missing=0.0, predict_type="margin").astype(np.float64)
        margins = margins.reshape(len(margins), -1)
        if self.outputs.kind == "classes":
            return softmax(margins, axis=1)
        found = expit(margins)
        return found if self.outputs.kind == "labels" else np.hstack([1 - found, found])[:, : self.outputs.classes]

    def importance(self) -> dict[int, float]:
        """The mean gain of the splits on each feature that has any, by its index."""
        gains = cast(dict[str, float], self.booster.get_score(importance_type="gain"))
        return dict(sorted((int(name[1:]), gain) for name, gain in gains.items()))

    def to_bytes(self) -> bytes:
        return bytes(self.booster.save_raw("ubj"))

    @classmethod
    def from_bytes(cls, data: bytes) -> BoostedModel:
        """Raises ValueError for bytes that are no such model.

        XGBoost may end the process over bytes that were cut off or changed: check their hash first.
        """
        try:
            if not data.startswith(b"{"):
                raise TypeError("it is no UBJSON")
            booster = xgboost.Booster(model_file=bytearray(data))
            return cls(booster, Outputs(*json.loads(booster.attr("outputs") or "[]")))
        except (xgboost.core.XGBoostError, TypeError) as error:
            raise ValueError(f"no model of boosted trees: {str(error).splitlines()[0]}") from error
