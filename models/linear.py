"""Linear classifiers by scikit-learn's solvers on sparse rows: the first to try on wide, sparse features of text.

The rows are put in order by their content first, so that the same rows give the same bits in whatever order they come.

Legend: N rows, F features, K outputs of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.sparse import csr_matrix, vstack
from scipy.special import expit, log_softmax, softmax

from models.rows import Outputs, Rows, first_not_finite
from udfs.hashing import fmix64

SOLVERS = ("svc", "logistic", "sgd")
FOLDS = 5
NEVER = -20.0  # the score of a class that training rows do not show
TENSORS = {"coef": 2, "intercept": 1, "temperature": 1}  # and their dimensions


@dataclass(frozen=True)
class LinearConfig:
    """How a linear classifier is trained; raises ValueError for a value outside its limits.

    solver: svc (LinearSVC: squared hinge), logistic (LogisticRegression: multinomial) or sgd (SGDClassifier: hinge, by
    stochastic gradient descent). C: the inverse of the L2 penalty, as scikit-learn has it; for sgd alpha = 1 / (C N).
    """

    solver: str = "svc"
    C: float = 1.0
    max_iter: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver is {self.solver!r}: give {', '.join(SOLVERS)}")
        if isinstance(self.C, bool) or not isinstance(self.C, (int, float)) or not 0 < self.C < math.inf:
            raise ValueError(f"C is {self.C}: give a number above 0")
        for name, low in (("max_iter", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
                raise ValueError(f"{name} is {value}: give a whole number from {low} to {2**31 - 1}")


class LinearModel:
    """Scores rows @ coef + intercept, and probabilities of them; as bytes safetensors.

    coef: float32 [F, K]; intercept: float32 [K]; temperature: what scores are multiplied by before they become
    probabilities by the logistic function or softmax, which never changes the best class (Guo et al. 2017).
    """

    def __init__(self, coef: np.ndarray, intercept: np.ndarray, temperature: float, outputs: Outputs) -> None:
        self.coef, self.intercept, self.temperature, self.outputs = coef, intercept, temperature, outputs

    @property
    def features(self) -> int:
        """F."""
        return len(self.coef)

    def scores(self, rows: csr_matrix) -> np.ndarray:
        """float64 [N, K] of csr_matrix float32 [N, F]; raises ValueError for another width or what is not finite."""
        if rows.shape[1] != self.features:
            raise ValueError(f"rows have {rows.shape[1]} features, the model has {self.features}: use its features")
        if found := first_not_finite(rows):
            raise ValueError(f"row {found[0]}, feature {found[1]}: {found[2]} is no finite number")
        return np.asarray(rows @ self.coef + self.intercept, np.float64)

    def probabilities(self, rows: csr_matrix, threads: int = 1) -> np.ndarray:
        """float64 [N, classes]; each row adds up to 1, but for `labels`. See `scores`; one thread does it."""
        scores = self.temperature * self.scores(rows)
        if self.outputs.kind == "classes":
            return softmax(scores, axis=1)
        found = expit(scores)
        return found if self.outputs.kind == "labels" else np.hstack([1 - found, found])

    def to_bytes(self) -> bytes:
        tensors = {"coef": self.coef, "intercept": self.intercept, "temperature": np.array([self.temperature])}
        return bytes(save(tensors, {"outputs": f"{self.outputs.kind} {self.outputs.classes}"}))

    @classmethod
    def from_bytes(cls, data: bytes, outputs: Outputs) -> LinearModel:
        """Raises ValueError for bytes that are no model of these outputs."""
        try:
            tensors = load(data)
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"no linear model: {error}") from None
        if {name: tensor.ndim for name, tensor in tensors.items()} != TENSORS or not (
            tensors["coef"].shape[1:] == tensors["intercept"].shape == (outputs.margins,)
        ):
            shapes = {name: tensor.shape for name, tensor in tensors.items()}
            raise ValueError(f"no linear model of {outputs.classes} classes: it has {shapes}")
        return cls(tensors["coef"], tensors["intercept"], float(tensors["temperature"][0]), outputs)


def train(
    config: LinearConfig, outputs: Outputs, rows: Rows, width: int, validation: Rows | None = None
) -> LinearModel:
    """Train on rows of `width` features; raises ValueError if they show one class only.

    The temperature of svc and sgd is fitted on the validation rows; without any, on scores of each fifth of the rows
    (by content) by a model of the others.
    """
    matrix, labels, weights, keys = _in_order(rows, width)
    if outputs.kind != "labels" and len(np.unique(labels)) < 2:
        raise ValueError("the training rows are of one class only: there is nothing to tell apart")
    fit = _fit_labels if outputs.kind == "labels" else _fit_classes
    model = LinearModel(*fit(config, outputs, matrix, labels, weights), 1.0, outputs)
    if config.solver == "logistic":
        return model
    if validation is not None and len(validation):
        judged, judged_labels, judged_weights, _ = _in_order(validation, width)
        model.temperature = _temperature(model.scores(judged), judged_labels, judged_weights, outputs)
        return model
    scores, fold = np.zeros((len(keys), outputs.margins)), np.array([int(fmix64(key)) % FOLDS for key in keys])
    held = np.zeros(len(keys), bool)
    for number in range(FOLDS):
        inside, outside = fold == number, fold != number
        several = outputs.kind == "labels" or len(np.unique(labels[outside])) > 1
        if inside.any() and outside.any() and several:
            one = LinearModel(*fit(config, outputs, matrix[outside], labels[outside], weights[outside]), 1.0, outputs)
            scores[inside], held[inside] = one.scores(matrix[inside]), True
    if held.any():
        model.temperature = _temperature(scores[held], labels[held], weights[held], outputs)
    return model


def _in_order(rows: Rows, width: int) -> tuple[csr_matrix, np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels, weights and keys of the rows that have a weight, in an order that only they decide."""
    parts = rows.parts or [csr_matrix((0, width), dtype=np.float32)]
    matrix = csr_matrix(parts[0] if len(parts) == 1 else vstack(parts, "csr"))
    label = rows.labels.reshape(len(rows), -1)
    order = np.lexsort((rows.weights, *label.T, _row_sums(matrix), rows.keys))
    order = order[rows.weights[order] > 0]
    return csr_matrix(matrix[order]), rows.labels[order], rows.weights[order].astype(np.float64), rows.keys[order]


def _row_sums(matrix: csr_matrix) -> np.ndarray:
    """uint64 [N], which tells apart rows of the same content but other features: by capitals, say."""
    bits = matrix.data.view(np.uint32).astype(np.uint64) + np.uint64(1)
    each = bits * (2 * matrix.indices.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return np.diff(np.concatenate([np.zeros(1, np.uint64), np.cumsum(each)])[matrix.indptr])


def _solver(config: LinearConfig, rows: int) -> Any:
    # Here, since it takes a second, and most processes only predict.
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.svm import LinearSVC

    if config.solver == "svc":
        return LinearSVC(C=config.C, max_iter=config.max_iter, random_state=config.seed)
    if config.solver == "logistic":
        return LogisticRegression(C=config.C, max_iter=config.max_iter, random_state=config.seed)
    return SGDClassifier(alpha=1 / (config.C * rows), max_iter=config.max_iter, random_state=config.seed)


def _fit_classes(
    config: LinearConfig, outputs: Outputs, matrix: csr_matrix, labels: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """coef and intercept; a class that no row shows gets the score NEVER."""
    solver = _solver(config, len(labels))
    solver.fit(matrix, labels, sample_weight=weights)
    coef, intercept = solver.coef_.T, np.broadcast_to(solver.intercept_, len(solver.coef_))
    if outputs.kind == "classes" and len(solver.classes_) < outputs.classes:
        if coef.shape[1] == 1:
            coef, intercept = np.hstack([-coef, coef]), np.concatenate([-intercept, intercept])
        whole, level = np.zeros((len(coef), outputs.classes)), np.full(outputs.classes, NEVER)
        whole[:, solver.classes_], level[solver.classes_] = coef, intercept
        coef, intercept = whole, level
    return np.ascontiguousarray(coef, np.float32), intercept.astype(np.float32)


def _fit_labels(
    config: LinearConfig, outputs: Outputs, matrix: csr_matrix, labels: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same, each label against its absence."""
    coef, intercept = np.zeros((matrix.shape[1], outputs.classes), np.float32), np.zeros(outputs.classes, np.float32)
    for number in range(outputs.classes):
        if len(np.unique(labels[:, number])) < 2:
            intercept[number] = -NEVER if labels[:, number].any() else NEVER
            continue
        one, level = _fit_classes(config, Outputs("binary", 2), matrix, labels[:, number], weights)
        coef[:, number], intercept[number] = one[:, 0], level[0]
    return coef, intercept


def _temperature(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray, outputs: Outputs) -> float:
    """What scores [N, K] have to be multiplied by for the least log-loss; between e^-6 and e^6."""

    from scipy.optimize import minimize_scalar

    def softmax_loss(factor: float) -> float:
        return -float(weights @ log_softmax(factor * scores, axis=1)[np.arange(len(labels)), labels])

    def logistic_loss(factor: float) -> float:
        signs = np.where(labels.reshape(len(labels), -1) != 0, -factor, factor)
        return float(weights @ np.logaddexp(0, signs * scores).sum(axis=1))

    loss: Callable[[float], float] = softmax_loss if outputs.kind == "classes" else logistic_loss
    return float(np.exp(minimize_scalar(lambda power: loss(math.exp(power)), bounds=(-6, 6), method="bounded").x))
