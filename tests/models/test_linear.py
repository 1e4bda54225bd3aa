"""Linear classifiers: scikit-learn's answers, the same bytes for any order of the rows, probabilities that mean it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from models.features import FeatureModel
from models.linear import SOLVERS, LinearConfig, LinearModel, train
from models.rows import Outputs, Rows
from models.splits import content_heads, contents

KINDS = {"binary": Outputs("binary", 2), "classes": Outputs("classes", 3), "labels": Outputs("labels", 3)}
WIDTH = 30


def data(outputs: Outputs, n: int = 300, seed: int = 1) -> Rows:
    random = np.random.default_rng(seed)
    matrix = np.where(random.random((n, WIDTH)) < 0.3, random.normal(size=(n, WIDTH)), 0).astype(np.float32)
    scores = matrix[:, :3] + 0.4 * random.normal(size=(n, 3))
    labels = {
        "binary": (scores[:, 0] > 0.2).astype(np.int32),
        "classes": scores.argmax(axis=1).astype(np.int32),
        "labels": (scores > 0.2).astype(np.uint8),
    }[outputs.kind]
    return Rows([csr_matrix(matrix)], labels, random.integers(0, 2**63, n).astype(np.uint64))


def shuffled(rows: Rows, order: np.ndarray, pieces: int) -> Rows:
    matrix = csr_matrix(vstack(rows.parts))[order]
    parts = [csr_matrix(matrix[part]) for part in np.array_split(np.arange(len(order)), pieces)]
    return Rows(parts, rows.labels[order], rows.keys[order], rows.weights[order])


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_scikit_learns(kind: str) -> None:
    outputs = KINDS[kind]
    rows, new = data(outputs), data(outputs, seed=2).parts[0]
    model = train(LinearConfig(), outputs, rows, WIDTH)
    theirs: Any = LinearSVC() if kind != "labels" else OneVsRestClassifier(LinearSVC())
    theirs.fit(rows.parts[0], rows.labels)
    found = model.probabilities(new)
    ours = found >= 0.5 if kind == "labels" else found.argmax(axis=1)
    assert (ours == theirs.predict(new)).mean() > 0.995
    assert found.shape == (300, outputs.classes)
    logistic = train(LinearConfig("logistic"), outputs, rows, WIDTH)
    judge: Any = LogisticRegression() if kind != "labels" else OneVsRestClassifier(LogisticRegression())
    judge.fit(rows.parts[0], rows.labels)
    assert logistic.probabilities(new) == pytest.approx(judge.predict_proba(new), abs=2e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_in_any_order_and_pieces_give_the_same_bytes(kind: str, solver: str) -> None:
    outputs, config = KINDS[kind], LinearConfig(solver, seed=3)
    rows = data(outputs)
    expected = train(config, outputs, rows, WIDTH).to_bytes()
    for seed in (1, 2):
        order = np.random.default_rng(seed).permutation(len(rows))
        assert train(config, outputs, shuffled(rows, order, 4), WIDTH).to_bytes() == expected


def test_rows_of_one_content_but_other_features_have_an_order_too() -> None:
    texts = [text for k in range(30) for text in (f"Good {k} day", f"good {k} DAY", f"bad {k} night", f"BAD {k} night")]
    model = FeatureModel.fit(pa.array([text.swapcase() for text in texts]))
    matrix = csr_matrix(vstack([model.transform(pa.array([text])) for text in texts]))
    matrix.data = matrix.data * np.tile(np.float32([1, 2, 3, 4]), 30).repeat(np.diff(matrix.indptr))
    keys = content_heads(contents(pa.array(texts)))
    assert len({*keys.tolist()}) == 60
    rows = Rows([matrix], np.tile([0, 0, 1, 1], 30).astype(np.int32), keys)
    outputs, config = KINDS["binary"], LinearConfig("sgd")
    backwards = shuffled(rows, np.arange(120)[::-1], 3)
    width = matrix.shape[1]
    assert train(config, outputs, backwards, width).to_bytes() == train(config, outputs, rows, width).to_bytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_validation", [True, False])
def test_probabilities_are_calibrated_and_never_change_the_best_class(kind: str, with_validation: bool) -> None:
    outputs = KINDS[kind]
    rows, new = data(outputs, 600), data(outputs, 600, seed=2)
    model = train(LinearConfig(), outputs, rows, WIDTH, data(outputs, 200, seed=5) if with_validation else None)
    raw = LinearModel(model.coef, model.intercept, 1.0, outputs)
    matrix = new.parts[0]
    losses = []
    for each in (model, raw):
        found = each.probabilities(matrix)
        if kind == "labels":
            losses.append(np.mean([log_loss(new.labels[:, k], found[:, k]) for k in range(3)]))
        else:
            assert found.sum(axis=1) == pytest.approx(1)
            losses.append(log_loss(new.labels, found))
    assert losses[0] < losses[1]
    assert (model.probabilities(matrix).argmax(axis=1) == raw.probabilities(matrix).argmax(axis=1)).all()


def test_weights_count_and_rows_without_any_do_not() -> None:
    outputs = KINDS["classes"]
    rows = data(outputs)
    twice = np.concatenate([np.arange(300), np.arange(100)])
    weighted = Rows(rows.parts, rows.labels, rows.keys, np.where(np.arange(300) < 100, 2.0, 1.0).astype(np.float32))
    config = LinearConfig("logistic", max_iter=5000)
    repeated = train(config, outputs, shuffled(rows, twice, 1), WIDTH)
    assert train(config, outputs, weighted, WIDTH).coef == pytest.approx(repeated.coef, abs=2e-3)
    none = Rows(rows.parts, rows.labels, rows.keys, (np.arange(300) < 200).astype(np.float32))
    assert (
        train(config, outputs, none, WIDTH).to_bytes()
        == train(config, outputs, shuffled(rows, np.arange(200), 1), WIDTH).to_bytes()
    )


def test_a_class_that_a_fold_or_the_training_rows_lack_is_never_predicted() -> None:
    rows = data(KINDS["classes"])
    rows.labels[rows.labels == 1] = 0
    found = train(LinearConfig(), KINDS["classes"], rows, WIDTH).probabilities(rows.parts[0])
    assert {*found.argmax(axis=1)} == {0, 2}
    many = data(KINDS["labels"])
    many.labels[:, 0], many.labels[:, 1] = 0, 1
    found = train(LinearConfig(), KINDS["labels"], many, WIDTH).probabilities(many.parts[0])
    assert (found[:, 0] < 0.01).all()
    assert (found[:, 1] > 0.99).all()


def test_one_class_and_bad_settings_are_refused() -> None:
    rows = data(KINDS["binary"])
    rows.labels[:] = 1
    with pytest.raises(ValueError, match="of one class only"):
        train(LinearConfig(), KINDS["binary"], rows, WIDTH)
    for settings_, told in (({"solver": "x"}, "solver is 'x'"), ({"C": 0}, "C is 0"), ({"C": float("nan")}, "C is nan"),
                            ({"max_iter": 0}, "max_iter is 0"), ({"seed": -1}, "seed is -1")):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            LinearConfig(**settings_)


def test_bytes_come_back_and_others_are_refused() -> None:
    outputs = KINDS["classes"]
    rows = data(outputs)
    model = train(LinearConfig(), outputs, rows, WIDTH)
    again = LinearModel.from_bytes(model.to_bytes(), outputs)
    assert (again.probabilities(rows.parts[0]) == model.probabilities(rows.parts[0])).all()
    for data_ in (b"", b"{}", model.to_bytes()[:-1], model.to_bytes()[:40]):
        with pytest.raises(ValueError, match="no linear model"):
            LinearModel.from_bytes(data_, outputs)
    with pytest.raises(ValueError, match="no linear model of 4 classes"):
        LinearModel.from_bytes(model.to_bytes(), Outputs("classes", 4))
    with pytest.raises(ValueError, match="rows have 29 features, the model has 30"):
        model.probabilities(rows.parts[0][:, :29])


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 7))
def test_scores_of_a_row_do_not_depend_on_its_batch(size: int) -> None:
    outputs = KINDS["classes"]
    rows = data(outputs, 60)
    model = train(LinearConfig(), outputs, rows, WIDTH)
    whole = model.probabilities(rows.parts[0])
    for begin in range(0, 60, size):
        assert (model.probabilities(rows.parts[0][begin : begin + size]) == whole[begin : begin + size]).all()
