"""How good a classifier is on documents that it has not seen: counts that add up in any order, then the measures.

Legend: N documents, K classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LEAST = 1e-15  # a probability below counts as this in log-loss
UNIT = 2.0**-24  # in which log-losses are added up as whole numbers, so that no order matters
Z = 1.959963984540054  # of 95 %
THRESHOLD = 0.5  # from which on a label of many is predicted


@dataclass
class Tally:
    """What has been predicted for documents of known labels.

    classes: those of the model, in its order. pairs: of (true label, predicted label) how many documents; where a
    document may have many labels, of (label, "tp" | "fp" | "fn") how many times. loss: the sum of log-losses in UNITs.
    exact: documents all of whose labels are right.
    """

    classes: Sequence[str]
    many: bool
    documents: int = 0
    exact: int = 0
    loss: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, labels: Sequence[Any], probabilities: np.ndarray) -> None:
        """Count documents: their labels (a string each, or a list of them), and probabilities float64 [N, K]."""
        place = {name: number for number, name in enumerate(self.classes)}
        self.documents += len(labels)
        if self.many:
            true = np.zeros(probabilities.shape, bool)
            unknown: list[str] = []
            strange = np.zeros(len(labels), bool)
            for row, names in enumerate(labels):
                for name in {*names}:
                    if name in place:
                        true[row, place[name]] = True
                    else:
                        unknown.append(name)
                        strange[row] = True
            found = probabilities >= THRESHOLD
            for what, hits in (("tp", true & found), ("fp", ~true & found), ("fn", true & ~found)):
                self.pairs.update({(self.classes[k], what): int(n) for k, n in enumerate(hits.sum(axis=0)) if n})
            self.pairs.update((name, "fn") for name in unknown)
            self.exact += int(((true == found).all(axis=1) & ~strange).sum())
            self.loss += _units(np.where(true, probabilities, 1 - probabilities))
            return
        predicted = probabilities.argmax(axis=1)
        codes = np.array([place.get(name, -1) for name in labels], np.int64)
        self.pairs.update(zip(labels, (self.classes[k] for k in predicted), strict=True))
        self.exact += int((codes == predicted).sum())
        self.loss += _units(np.where(codes < 0, 0.0, probabilities[np.arange(len(codes)), codes]))

    def merge(self, others: Iterable[Tally]) -> Tally:
        """The tally of all documents of this one and the others."""
        whole = Tally(self.classes, self.many, self.documents, self.exact, self.loss, self.pairs.copy())
        for other in others:
            whole.documents += other.documents
            whole.exact += other.exact
            whole.loss += other.loss
            whole.pairs.update(other.pairs)
        return whole

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold, but for classes and many."""
        pairs = [[true, predicted, number] for (true, predicted), number in self.pairs.items()]
        return {"documents": self.documents, "exact": self.exact, "loss": self.loss, "pairs": pairs}

    @classmethod
    def from_dict(cls, classes: Sequence[str], many: bool, values: dict[str, Any]) -> Tally:
        """The tally that `to_dict` gave."""
        pairs = Counter({(true, predicted): number for true, predicted, number in values["pairs"]})
        return cls(classes, many, values["documents"], values["exact"], values["loss"], pairs)

    def metrics(self) -> dict[str, Any]:
        """accuracy, ci95, macro_f1, micro_f1, log_loss, per_class, confusion, classes and unknown; without n_….

        Labels that the model does not know count as errors, and in macro_f1 as classes of F1 0, as they do in
        scikit-learn; `unknown` has their numbers. A class that is neither there nor predicted has no part in macro_f1.
        With many labels, accuracy is the share of documents all of whose labels are right, log_loss a mean over
        documents and labels, and a class's confusion [[tn, fp], [fn, tp]]; else confusion is int [K, K], a row for
        each true class. ci95: Wilson's interval of accuracy (1927). Raises ValueError if there are no documents.
        """
        if not self.documents:
            raise ValueError("no documents to evaluate on: the test part is empty")
        counts = self._counts()
        scores = {name: _scores(*each) for name, each in counts.items()}
        seen = [score["f1"] for name, score in scores.items() if sum(counts[name])]
        tp, fp, fn = (sum(each[k] for each in counts.values()) for k in range(3))
        units = self.documents * (len(self.classes) if self.many else 1)
        return {
            "accuracy": self.exact / self.documents,
            "ci95": wilson(self.exact, self.documents),
            "macro_f1": math.fsum(seen) / len(seen) if seen else 0.0,
            "micro_f1": _scores(tp, fp, fn)["f1"],
            "log_loss": self.loss * UNIT / units,
            "per_class": {name: scores[name] for name in self.classes},
            "confusion": self._confusion(counts),
            "classes": list(self.classes),
            "unknown": self._unknown(),
        }

    def _unknown(self) -> dict[str, int]:
        """The labels that the model does not know, with how many documents have them."""
        known, found = {*self.classes}, Counter[str]()
        for (name, _), number in self.pairs.items():
            if name not in known:
                found[name] += number
        return dict(sorted(found.items()))

    def _counts(self) -> dict[str, tuple[int, int, int]]:
        """tp, fp and fn of each label, those of the model first."""
        names = [*self.classes, *self._unknown()]
        if self.many:
            return {name: (self.pairs[name, "tp"], self.pairs[name, "fp"], self.pairs[name, "fn"]) for name in names}
        true, predicted = Counter[str](), Counter[str]()
        for (name, other), number in self.pairs.items():
            true[name] += number
            predicted[other] += number
        right = {name: self.pairs[name, name] for name in names}
        return {name: (tp, predicted[name] - tp, true[name] - tp) for name, tp in right.items()}

    def _confusion(self, counts: dict[str, tuple[int, int, int]]) -> list[list[Any]]:
        if not self.many:
            return [[self.pairs[true, predicted] for predicted in self.classes] for true in self.classes]
        of = [counts[name] for name in self.classes]
        return [[[self.documents - tp - fp - fn, fp], [fn, tp]] for tp, fp, fn in of]


def _units(probabilities: np.ndarray) -> int:
    return int(np.rint(-np.log(np.maximum(probabilities, LEAST)) / UNIT).astype(np.int64).sum())


def _scores(tp: int, fp: int, fn: int) -> dict[str, Any]:
    """Precision, recall and F1, 0 where undefined, and support."""
    return {
        "precision": tp / (tp + fp) if tp + fp else 0.0,
        "recall": tp / (tp + fn) if tp + fn else 0.0,
        "f1": 2 * tp / (2 * tp + fp + fn) if tp else 0.0,
        "support": tp + fn,
    }


def wilson(right: int, n: int) -> list[float]:
    """The interval of 95 % of a share right / n: [low, high]."""
    share, z2 = right / n, Z * Z
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return [max(0.0, middle - half), min(1.0, middle + half)]
