"""Boosted trees: the same bytes for any division of the rows, XGBoost's own quality, zeros, one class, bad values."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack
from sklearn.metrics import log_loss
from xgboost.tracker import RabitTracker

from models.boosted import (
    HUGE,
    BoostedConfig,
    BoostedModel,
    Round,
    cut_values,
    merge_summaries,
    reduced_bytes,
    summarise,
    summary_size,
    train,
)
from models.rows import Outputs, Rows, csr_of, first_not_finite

FEATURES = 12
CONFIG = BoostedConfig(rounds=7, depth=3, max_bin=8, checkpoint_every=3, seed=5)
KINDS = {"binary": Outputs("binary", 2), "classes": Outputs("classes", 3), "labels": Outputs("labels", 3)}


def data(outputs: Outputs, n: int = 400, seed: int = 1) -> Rows:
    """Rows whose labels follow their features, with weights, in two parts."""
    random = np.random.default_rng(seed)
    matrix = np.where(random.random((n, FEATURES)) < 0.4, random.normal(size=(n, FEATURES)), 0).astype(np.float32)
    scores = matrix[:, :3] + 0.3 * random.normal(size=(n, 3))
    labels = {
        "binary": (scores[:, 0] > 0.2).astype(np.int32),
        "classes": scores.argmax(axis=1).astype(np.int32),
        "labels": (scores > 0.2).astype(np.uint8),
    }[outputs.kind]
    keys = random.integers(0, 2**63, n).astype(np.uint64)
    weights = random.choice([1.0, 0.37, 2.5], n).astype(np.float32)
    return Rows([csr_matrix(matrix[: n // 3]), csr_matrix(matrix[n // 3 :])], labels, keys, weights)


def some(rows: Rows, chosen: np.ndarray, pieces: int = 1) -> Rows:
    """The chosen rows, in the order of their numbers."""
    matrix = csr_matrix(vstack(rows.parts))[chosen] if len(chosen) else csr_matrix((0, FEATURES), dtype=np.float32)
    parts = [csr_matrix(matrix[part]) for part in np.array_split(np.arange(len(chosen)), pieces)]
    return Rows(parts, rows.labels[chosen], rows.keys[chosen], rows.weights[chosen])


def cuts_of(ranks: list[Rows], config: BoostedConfig) -> csr_matrix:
    size = summary_size(FEATURES, config.max_bin)
    return cut_values(merge_summaries([summarise(rows, FEATURES, size) for rows in ranks], size), config.max_bin)


def train_ranks(
    config: BoostedConfig, outputs: Outputs, ranks: list[Rows], judged: list[Rows] | None = None, **options: Any
) -> tuple[bytes, list[Round]]:
    """Each rank in a thread of its own with XGBoost's communicator between them."""
    cuts = cuts_of(ranks, config)
    validation = judged or [None] * len(ranks)
    if len(ranks) == 1:
        model, rounds = train(config, outputs, ranks[0], cuts, validation=validation[0], **options)
        return model.to_bytes(), rounds
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=len(ranks), sortby="task")
    tracker.start()
    found: dict[int, tuple[bytes, list[Round]]] = {}

    def run(rank: int) -> None:
        communicator = tracker.worker_args() | {"dmlc_task_id": str(rank)}
        mine = {"validation": validation[rank], "communicator": communicator, **options}
        if mine.get("cache"):
            mine["cache"] = mine["cache"] / str(rank)
        model, rounds = train(config, outputs, ranks[rank], cuts, **mine)
        found[rank] = model.to_bytes(), rounds

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.wait_for()
    assert len(found) == len(ranks)
    assert len({model for model, _ in found.values()}) == 1
    return found[0]


SAMPLED = BoostedConfig(rounds=7, depth=3, checkpoint_every=3, seed=5, subsample=0.6, colsample=0.5)


@pytest.mark.parametrize("config", [CONFIG, SAMPLED], ids=["all", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_any_division_of_the_rows_gives_the_same_bytes(kind: str, config: BoostedConfig) -> None:
    outputs = KINDS[kind]
    rows, judged = data(outputs), data(outputs, 100, seed=2)
    model, rounds = train_ranks(config, outputs, [rows], [judged])
    order = np.random.default_rng(3).permutation(len(rows))
    divisions = [
        [order[:1], order[1:]],
        [order[:0], order[:170], order[170:]],
        [np.flatnonzero(rows.labels.reshape(len(rows), -1)[:, 0] == each) for each in np.unique(rows.labels)],
    ]
    for division in divisions:
        ranks = [some(rows, chosen, pieces=1 + number) for number, chosen in enumerate(division)]
        others = [some(judged, part) for part in np.array_split(np.arange(100)[::-1], len(division))]
        assert train_ranks(config, outputs, ranks, others, threads=2) == (model, rounds)
    assert rounds[-1].train < rounds[0].train * 0.8


@pytest.mark.parametrize("config", [CONFIG, SAMPLED], ids=["all", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_from_a_checkpoint_is_the_run_that_was_not_interrupted(
    kind: str, config: BoostedConfig
) -> None:
    outputs = KINDS[kind]
    rows, judged = data(outputs), data(outputs, 100, seed=2)
    saved: dict[int, bytes] = {}
    whole = train_ranks(config, outputs, [rows], [judged], on_checkpoint=lambda model, n: saved.update({n: model}))
    assert list(saved) == [3, 6, 7]
    halves = [some(rows, part) for part in np.array_split(np.arange(len(rows)), 2)]
    others = [some(judged, part) for part in np.array_split(np.arange(len(judged)), 2)]
    assert train_ranks(config, outputs, halves, others, resume=saved[3]) == whole
    assert train_ranks(config, outputs, [rows], [judged], resume=saved[7]) == whole


def test_rows_on_disk_give_the_bytes_of_rows_in_memory(tmp_path: Path) -> None:
    rows, judged = data(KINDS["classes"], 3000), data(KINDS["classes"], 200, seed=2)
    whole = train_ranks(SAMPLED, KINDS["classes"], [rows], [judged])
    many = some(rows, np.arange(3000), pieces=7)
    assert train_ranks(SAMPLED, KINDS["classes"], [many], [judged], cache=tmp_path / "one") == whole
    halves = [some(rows, part, pieces=3) for part in np.array_split(np.arange(len(rows)), 2)]
    others = [judged, some(judged, np.arange(0))]
    assert train_ranks(SAMPLED, KINDS["classes"], halves, others, cache=tmp_path / "two") == whole


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_loss_is_that_of_native_xgboost(kind: str) -> None:
    outputs = KINDS[kind]
    rows, judged = data(outputs, 2000), data(outputs, 1000, seed=2)
    config = BoostedConfig(rounds=20, depth=4, eta=0.3, max_bin=64)
    cuts = cuts_of([rows], config)
    model, _ = train(config, outputs, rows, cuts)
    _, rounds = train(config, outputs, rows, cuts, validation=judged)
    assert not np.array_equal(rows.weights, np.ones(2000))
    bins = xgboost.QuantileDMatrix(cuts, missing=0.0, max_bin=64)
    matrix, other = (
        xgboost.QuantileDMatrix(vstack(each.parts), each.labels, weight=each.weights, missing=0.0, max_bin=64, ref=bins)
        for each in (rows, judged)
    )
    objective = "multi:softprob" if kind == "classes" else "binary:logistic"
    params = {"objective": objective} | ({"num_class": 3} if kind == "classes" else {})
    params |= {"max_depth": 4, "eta": 0.3, "max_bin": 64, "tree_method": "hist"}
    native = xgboost.train(params, matrix, 20)
    ours, theirs = model.probabilities(csr_matrix(vstack(judged.parts))), native.predict(other)
    if kind == "labels":
        losses = [np.mean([log_loss(judged.labels[:, k], p[:, k], sample_weight=judged.weights, labels=[0, 1])
                           for k in range(3)]) for p in (ours, theirs)]  # fmt: skip
    else:
        losses = [log_loss(judged.labels, p, sample_weight=judged.weights) for p in (ours, theirs)]
    assert losses[0] == pytest.approx(rounds[-1].validation, rel=1e-5)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_a_row_is_predicted_as_it_was_trained_however_large_its_values(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bins end at twice the largest bound; the rows above would be taken for rows without the feature."""
    monkeypatch.setattr("models.boosted.MOST_OF_A_FEATURE", size)
    random = np.random.default_rng(4)
    values = np.exp(3 * random.normal(size=(2000, FEATURES))) * (random.random((2000, FEATURES)) < 0.4)
    labels = (values[:, 0] + values[:, 1] > 0).astype(np.int32)
    rows = Rows([csr_matrix(values.astype(np.float32))], labels, random.integers(0, 2**63, 2000).astype(np.uint64))
    model, rounds = train(CONFIG, KINDS["binary"], rows, cuts_of([rows], CONFIG))
    p = model.probabilities(rows.parts[0])
    assert log_loss(labels, p) == pytest.approx(rounds[-1].train, rel=1e-5)
    huge = rows.parts[0] * np.float32(1e6)
    assert log_loss(labels, model.probabilities(huge)) < 1.1 * rounds[-1].train


def test_training_ends_when_the_validation_gets_no_better_and_the_best_round_is_kept() -> None:
    outputs = KINDS["binary"]
    rows, judged = data(outputs, 60), data(outputs, 200, seed=2)
    config = BoostedConfig(rounds=200, depth=6, eta=1.0, early_stopping=4, min_child_weight=0, l2=0.0)
    model, rounds = train(config, outputs, rows, cuts_of([rows], config), validation=judged)
    losses = [each.validation for each in rounds]
    best = losses.index(min(losses)) + 1  # type: ignore[type-var]
    assert len(rounds) == best + 4 < 200
    assert model.booster.num_boosted_rounds() == best
    p = model.probabilities(csr_matrix(vstack(judged.parts)))
    assert log_loss(judged.labels, p, sample_weight=judged.weights) == pytest.approx(min(losses), rel=1e-5)  # type: ignore[type-var]


def test_a_zero_is_a_zero_stored_or_not() -> None:  # xgb-01
    f0 = np.repeat([0, 1, 1], 20).astype(np.float32)
    dense = np.column_stack([f0, np.ones(60, np.float32)])
    stored = csr_matrix((dense.ravel(), np.tile([0, 1], 60).astype(np.int32), np.arange(0, 121, 2)), shape=(60, 2))
    dropped = csr_matrix(dense)
    assert stored.nnz == 120
    assert dropped.nnz == 100
    keys, labels = np.arange(60, dtype=np.uint64), (f0 > 0).astype(np.int32)
    models = []
    for layout in (stored, dropped):
        rows = Rows([layout], labels, keys)
        config = BoostedConfig(rounds=20)
        size = summary_size(2, config.max_bin)
        cuts = cut_values(merge_summaries([summarise(rows, 2, size)], size), config.max_bin)
        models.append(train(config, Outputs("binary", 2), rows, cuts)[0])
    assert models[0].to_bytes() == models[1].to_bytes()
    query = np.array([[0, 1], [1, 1]], np.float32)
    sparse = csr_matrix(query)
    zeros = csr_matrix((query.ravel(), np.array([0, 1, 0, 1], np.int32), np.array([0, 2, 4])), shape=(2, 2))
    found = [models[0].probabilities(each) for each in (sparse, zeros)]
    assert np.array_equal(*found)
    assert found[0][0, 1] < 0.1
    assert found[0][1, 1] > 0.9
    native = models[0].booster.predict(xgboost.DMatrix(query, missing=0.0))
    assert np.allclose(native, found[0][:, 1], atol=1e-6)


@pytest.mark.parametrize("only", [0, 1])
def test_one_class_is_predicted_always_with_a_warning(only: int) -> None:  # xgb-03
    rows = Rows([csr_matrix(np.array([[2], [5], [7]], np.float32))], np.full(3, only, np.int32), np.arange(3))
    cuts = cut_values(summarise(rows, 1, 8), 8)
    with pytest.warns(UserWarning, match="all rows are of one class"):
        model, _ = train(CONFIG, Outputs("binary", 2), rows, cuts)
    found = model.probabilities(csr_matrix(np.array([[4], [0]], np.float32)))
    assert found.shape == (2, 2)
    assert (found[:, only] > 0.99).all()
    assert np.allclose(found.sum(axis=1), 1)


def test_a_single_known_class_has_one_column() -> None:
    rows = Rows([csr_matrix(np.array([[2], [5]], np.float32))], np.zeros(2, np.int32), np.arange(2))
    with pytest.warns(UserWarning, match="all rows are of one class"):
        model, _ = train(CONFIG, Outputs("binary", 1), rows, cut_values(summarise(rows, 1, 8), 8))
    assert model.probabilities(rows.parts[0]).shape == (2, 1)


def test_permuted_labels_score_at_chance() -> None:
    outputs = KINDS["binary"]
    rows, judged = data(outputs, 2000), data(outputs, 2000, seed=2)
    found = []
    for labels in (rows.labels, np.random.default_rng(0).permutation(rows.labels)):
        trained = Rows(rows.parts, labels, rows.keys)
        model, _ = train(BoostedConfig(rounds=30), outputs, trained, cuts_of([trained], CONFIG))
        p = model.probabilities(csr_matrix(vstack(judged.parts)))[:, 1]
        positive, negative = p[judged.labels == 1], p[judged.labels == 0]
        found.append(np.mean(positive[:, None] > negative) + np.mean(positive[:, None] == negative) / 2)  # ROC AUC
    assert found[0] > 0.75
    assert abs(found[1] - 0.5) < 0.06


def test_a_model_comes_back_from_its_bytes_and_junk_is_refused() -> None:
    rows = data(KINDS["classes"])
    model, _ = train(CONFIG, KINDS["classes"], rows, cuts_of([rows], CONFIG))
    again = BoostedModel.from_bytes(model.to_bytes())
    assert again.outputs == KINDS["classes"]
    assert again.features == FEATURES
    assert again.to_bytes() == model.to_bytes()
    assert np.array_equal(*(each.probabilities(rows.parts[0]) for each in (model, again)))
    assert 0 in model.importance()
    assert all(gain > 0 for gain in model.importance().values())
    foreign = bytes(xgboost.Booster({"num_feature": 2}).save_raw("ubj"))
    for junk in (b"", b"{}", b"PAR1", foreign):
        with pytest.raises(ValueError, match="no model of boosted trees"):
            BoostedModel.from_bytes(junk)
    with pytest.raises(ValueError, match="rows have 3 features, the model has 12"):
        model.probabilities(csr_matrix((1, 3), dtype=np.float32))
    assert model.probabilities(csr_matrix((0, FEATURES), dtype=np.float32)).shape == (0, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_by_row_and_feature(bad: float) -> None:
    matrix = csr_matrix(np.array([[0, 1, 0], [0, 0, bad], [1, 0, bad]], np.float32))
    assert first_not_finite(matrix) is not None
    fine = csr_matrix(np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match=f"row 3, feature 2: {bad} is no finite number"):
        Rows([fine, matrix], np.zeros(5, np.int32), np.arange(5))
    rows = Rows([fine], np.array([0, 1], np.int32), np.arange(2))
    model, _ = train(CONFIG, KINDS["binary"], rows, cut_values(summarise(rows, 3, 8), 8))
    with pytest.raises(ValueError, match="row 1, feature 2"):
        model.probabilities(matrix)


def test_rows_that_do_not_fit_together_are_refused() -> None:
    fine = csr_matrix(np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="2 rows of features, 3 labels"):
        Rows([fine], np.zeros(3, np.int32), np.arange(2))
    for weight in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="row 1: a weight of"):
            Rows([fine], np.zeros(2, np.int32), np.arange(2), np.array([1, weight]))
    nothing = Rows([fine], np.zeros(2, np.int32), np.arange(2), np.zeros(2))
    for rows in (nothing, some(data(KINDS["binary"]), np.arange(0))):
        with pytest.raises(ValueError, match="no row has a weight above 0"):
            train(CONFIG, KINDS["binary"], rows, cut_values(summarise(data(KINDS["binary"]), FEATURES, 8), 8))


BAD_SETTINGS = {"rounds": 1.5, "depth": 17, "eta": 0, "max_bin": 1, "subsample": 1.1, "colsample": float("nan"),
    "l2": -1, "seed": -1, "checkpoint_every": True, "early_stopping": -1}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_SETTINGS.items())
def test_a_setting_outside_its_limits_is_refused_with_them(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} is {value}: give a (whole )?number (from|above) "):
        BoostedConfig(**{name: value})  # type: ignore[arg-type]


# -- cuts -------------------------------------------------------------------------------------------------------------

entries = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from([-1.5, 0.0, 0.5, 1.0, 2.0, 3.0])))


@given(entries, st.lists(st.integers(0, 3), max_size=60), st.integers(1, 5))
def test_summaries_of_any_division_merge_to_that_of_the_whole(
    found: list[tuple[int, int, float]], ranks: list[int], size: int
) -> None:
    """Keys repeat, as documents do."""
    dense = np.zeros((len(found), 3), np.float32)
    for row, (_, feature, value) in enumerate(found):
        dense[row, feature] = value
    keys = np.array([key for key, _, _ in found], np.uint64)

    def rows(chosen: np.ndarray) -> Rows:
        return Rows([csr_matrix(dense[chosen])], np.zeros(len(chosen), np.int32), keys[chosen])

    whole = summarise(rows(np.arange(len(found))), 3, size)
    of_rank = np.array((ranks + [0] * len(found))[: len(found)], int)
    parts = [summarise(rows(np.flatnonzero(of_rank == rank)), 3, size) for rank in range(4)]
    for one, other in zip(merge_summaries(parts, size), whole, strict=True):
        assert np.array_equal(one, other)
    kept = np.diff(whole.indptr)
    assert np.array_equal(kept, np.minimum((dense != 0).sum(axis=0), size))
    assert (whole.values != 0).all()
    cuts = cut_values(whole, 2).toarray()
    for feature in range(3):
        values = np.unique(whole.values[whole.indptr[feature] : whole.indptr[feature + 1]])
        chosen = cuts[:, feature][(cuts[:, feature] != 0) & (cuts[:, feature] != HUGE)]
        assert set(chosen) <= set(values)
        assert list(chosen[:1]) == list(values[:1])
        assert len(chosen) == min(len(values), 2) or len(values) > 2


def test_xgboost_makes_exactly_the_bins_that_were_cut() -> None:
    rows = data(KINDS["binary"], 5000)
    cuts = cuts_of([rows], CONFIG)
    assert cuts.shape == (9, FEATURES)
    assert cuts.nnz == 9 * FEATURES
    indptr, bounds = xgboost.QuantileDMatrix(cuts, missing=0.0, max_bin=8).get_quantile_cut()
    for feature in range(FEATURES):
        *mine, last = np.sort(cuts[:, feature].toarray().ravel())
        assert last == HUGE
        theirs = bounds[indptr[feature] : indptr[feature + 1]]
        assert len(theirs) == 8 or len(theirs) == 9  # with or without a least value
        assert np.isin(mine[1:], theirs).all()
        assert theirs[-1] > HUGE
    assert reduced_bytes(cuts, CONFIG, KINDS["classes"]) == 96 * 16 * 4 * 7 * 3


def test_list_columns_become_rows_without_a_copy() -> None:
    indices = pa.array([[5], [0, 3], [], [2]], pa.list_(pa.int32()))
    values = pa.array([[9.0], [1.0, 2.0], [], [4.0]], pa.list_(pa.float32()))
    for begin in (0, 1):
        found = csr_of(indices[begin:], values[begin:], 6)
        assert found.toarray().tolist() == [[0, 0, 0, 0, 0, 9], [1, 0, 0, 2, 0, 0], [0] * 6, [0, 0, 4, 0, 0, 0]][begin:]
        assert np.shares_memory(found.data, values.values.to_numpy())
    assert csr_of(indices[:0], values[:0], 6).shape == (0, 6)
