"""Measures of a classifier: those of scikit-learn, whatever the batches, and labels that it never saw."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import (
    accuracy_score,
    classification_report,
    confusion_matrix,
    f1_score,
    log_loss,
    multilabel_confusion_matrix,
)

from models.evaluation import Tally, wilson

CLASSES = ["ham", "spam", "新闻"]


def drawn(n: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Labels, and probabilities that often have them right; one class is never predicted."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 3, n)
    scores = random.random((n, 3)) + 0.7 * np.eye(3)[codes]
    scores[:, 2] *= 0.01
    return [CLASSES[code] for code in codes], scores / scores.sum(axis=1, keepdims=True)


def test_measures_are_scikit_learns() -> None:
    labels, probabilities = drawn(500, 1)
    tally = Tally(CLASSES, False)
    tally.add(labels, probabilities)
    found = tally.metrics()
    predicted = [CLASSES[k] for k in probabilities.argmax(axis=1)]
    assert found["accuracy"] == accuracy_score(labels, predicted)
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"), abs=1e-12)
    assert found["micro_f1"] == pytest.approx(f1_score(labels, predicted, average="micro"), abs=1e-12)
    assert found["log_loss"] == pytest.approx(log_loss(labels, probabilities, labels=CLASSES), abs=1e-6)
    assert found["confusion"] == confusion_matrix(labels, predicted, labels=CLASSES).tolist()
    report = classification_report(labels, predicted, output_dict=True, zero_division=0)
    for name in CLASSES:
        ours = found["per_class"][name]
        assert [ours[key] for key in ("precision", "recall", "f1")] == pytest.approx(
            [report[name][key] for key in ("precision", "recall", "f1-score")], abs=1e-12
        )
        assert ours["support"] == report[name]["support"]
    assert (found["classes"], found["unknown"]) == (CLASSES, {})


def test_many_labels_are_measured_as_scikit_learn_does() -> None:
    random = np.random.default_rng(2)
    true = random.random((400, 3)) < (0.5, 0.2, 0.0)
    probabilities = np.clip(0.6 * true + 0.5 * random.random((400, 3)), 0, 1)
    tally = Tally(CLASSES, True)
    tally.add([[CLASSES[k] for k in np.flatnonzero(row)] for row in true], probabilities)
    found, predicted = tally.metrics(), probabilities >= 0.5
    assert found["accuracy"] == accuracy_score(true, predicted)
    assert found["confusion"] == multilabel_confusion_matrix(true, predicted).tolist()
    assert found["micro_f1"] == pytest.approx(f1_score(true, predicted, average="micro"), abs=1e-12)
    shown = (true | predicted).any(axis=0)
    assert found["macro_f1"] == pytest.approx(f1_score(true[:, shown], predicted[:, shown], average="macro"), abs=1e-12)
    each = [log_loss(true[:, k], probabilities[:, k], labels=[False, True]) for k in range(3)]
    assert found["log_loss"] == pytest.approx(np.mean(each), abs=1e-6)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 200), max_size=5), st.randoms())
def test_batches_and_their_order_change_nothing(cuts: list[int], random: Any) -> None:
    labels, probabilities = drawn(200, 3)
    whole = Tally(CLASSES, False)
    whole.add(labels, probabilities)
    parts = []
    for begin, end in pairwise(sorted({0, 200, *cuts})):
        part = Tally(CLASSES, False)
        part.add(labels[begin:end], probabilities[begin:end])
        parts.append(Tally.from_dict(CLASSES, False, part.to_dict()))
    random.shuffle(parts)
    assert Tally(CLASSES, False).merge(parts).metrics() == whole.metrics()


def test_labels_that_the_model_never_saw_are_errors() -> None:
    tally = Tally(["a", "b"], False)
    labels, predicted = ["a", "b", "new", "new"], ["a", "b", "a", "b"]
    tally.add(labels, np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]]))
    found = tally.metrics()
    assert (found["accuracy"], found["unknown"]) == (0.5, {"new": 2})
    assert found["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro", zero_division=0))
    assert found["micro_f1"] == f1_score(labels, predicted, average="micro")
    assert found["log_loss"] > 15
    assert found["per_class"].keys() == {"a", "b"}
    many = Tally(["a"], True)
    many.add([["a"], ["a", "new"], []], np.array([[0.9], [0.9], [0.1]]))
    assert (many.metrics()["accuracy"], many.metrics()["unknown"]) == (2 / 3, {"new": 1})


@pytest.mark.parametrize(("right", "n"), [(0, 5), (5, 5), (981, 1000), (1, 2)])
def test_the_interval_is_wilsons(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right, n) == pytest.approx([expected.low, expected.high], abs=1e-12)


def test_no_documents_is_told() -> None:
    with pytest.raises(ValueError, match="the test part is empty"):
        Tally(CLASSES, False).metrics()
