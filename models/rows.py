"""What classifiers are trained on: sparse rows with labels, weights and the hash of their content.

Legend: N rows, F features, K outputs of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix


class Outputs(NamedTuple):
    """What is predicted: `binary` (2 classes), `classes` (3 or more, exclusive) or `labels` (any of them at once)."""

    kind: str
    classes: int

    @property
    def margins(self) -> int:
        """K."""
        return 1 if self.kind == "binary" else self.classes


class Rows:
    """Rows with what is known of them; the features stay in the parts, which may be memory-mapped.

    parts: csr_matrix float32 [n, F] each, without explicit order between them. labels: int32 [N] class numbers, or
    uint8 [N, K] for `labels`. weights: float32 [N], not negative. keys: uint64 [N], of the content: what random choices
    go by. Raises ValueError naming row and column of the first value that is not finite.
    """

    def __init__(
        self, parts: Sequence[csr_matrix], labels: np.ndarray, keys: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        self.parts, self.labels = [part for part in parts if part.shape[0]], labels
        self.keys = keys.astype(np.uint64, copy=False)
        self.weights = np.ones(len(keys), np.float32) if weights is None else weights.astype(np.float32, copy=False)
        begin = 0
        for part in self.parts:
            if (found := first_not_finite(part)) is not None:
                raise ValueError(f"row {begin + found[0]}, feature {found[1]}: {found[2]} is no finite number")
            begin += part.shape[0]
        if not len(self) == begin == len(labels) == len(self.weights):
            raise ValueError(
                f"{begin} rows of features, {len(labels)} labels, {len(self)} keys and {len(self.weights)} weights:"
                " give as many of each"
            )
        if not (fine := np.isfinite(self.weights) & (self.weights >= 0)).all():
            row = int(np.argmin(fine))
            raise ValueError(f"row {row}: a weight of {self.weights[row]}, which is no finite number from 0 on")

    def __len__(self) -> int:
        return len(self.keys)


def csr_of(indices: pa.ListArray, values: pa.ListArray, width: int) -> csr_matrix:
    """Two list columns (int32, float32) without nulls as csr_matrix [n, width], without a copy of the entries."""
    offsets = indices.offsets.to_numpy()
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    first = int(values.offsets[0].as_py()) if len(values) else 0
    parts = (
        values.values.to_numpy()[first : first + end - begin],
        indices.values.to_numpy()[begin:end],
        offsets - begin if len(offsets) else np.zeros(1, np.int32),
    )
    return csr_matrix(parts, shape=(len(indices), width), copy=False)


def first_not_finite(matrix: csr_matrix) -> tuple[int, int, float] | None:
    """Row, column and value of the first entry that is NaN or infinite; None if there is none."""
    finite = np.isfinite(matrix.data)
    if finite.all():
        return None
    at = int(np.argmin(finite))
    row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
    return row, int(matrix.indices[at]), float(matrix.data[at])
