"""A classifier as a folder: its classes, how it was trained, the features that it takes, and its weights.

config.json, trees.ubj or weights.safetensors, for trees rounds.parquet; metrics.json and README.md (a card) once it has
been evaluated; manifest.json with the hash of each. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix

from models.linear import LinearModel
from models.rows import Outputs

FORMAT = 1  # of the folder
WEIGHTS = {"boosted": "trees.ubj", "linear": "weights.safetensors"}
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class FeatureSet:
    """Features that a classifier takes: a name, the id of the model that gives them, and how many columns they are."""

    name: str
    model_id: str
    width: int


class Classifier:
    """Predicts labels of rows of features.

    classes: in the order of the probabilities' columns. sets: whose columns stand side by side, in this order.
    training: what is told of how it came about (settings, counts, versions), as JSON holds it. rounds: of boosting.
    """

    def __init__(
        self,
        model: Any,
        classes: Sequence[str],
        sets: Sequence[FeatureSet],
        training: dict[str, Any],
        rounds: pa.Table | None = None,
    ) -> None:
        self.model, self.classes, self.sets = model, list(classes), list(sets)
        self.training, self.rounds = training, rounds
        self.kind = "linear" if isinstance(model, LinearModel) else "boosted"
        self.outputs: Outputs = model.outputs
        if len(self.classes) != self.outputs.classes or sum(each.width for each in self.sets) != model.features:
            raise ValueError(
                f"{len(self.classes)} classes and {sum(each.width for each in self.sets)} features, but a model of "
                f"{self.outputs.classes} and {model.features}"
            )

    def probabilities(self, rows: csr_matrix, threads: int = 1) -> np.ndarray:
        """float64 [N, classes] of csr_matrix float32 [N, F]; each row adds up to 1, unless a row may have many labels.

        Raises ValueError for another width or a value that is not finite.
        """
        found: np.ndarray = self.model.probabilities(rows, threads)
        return found

    def save(self, path: str | Path, metrics: dict[str, Any] | None = None) -> None:
        """Write the folder, which must be new or empty, with metrics and a card if there are metrics."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: a classifier is saved to a folder of its own")
        config = {
            "format": FORMAT,
            "kind": self.kind,
            "outputs": self.outputs.kind,
            "classes": self.classes,
            "features": [asdict(each) for each in self.sets],
            "training": self.training,
        }
        (folder / "config.json").write_text(_json(config), "utf-8")
        (folder / WEIGHTS[self.kind]).write_bytes(self.model.to_bytes())
        if self.rounds is not None:
            pq.write_table(self.rounds, folder / "rounds.parquet")
        if metrics is not None:
            (folder / "metrics.json").write_text(_json(metrics), "utf-8")
            (folder / "README.md").write_text(card(config, metrics), "utf-8")
        hashes = {each.name: _hash(each.read_bytes()) for each in sorted(folder.iterdir())}
        (folder / MANIFEST).write_text(_json({"format": FORMAT, "files": hashes}), "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Classifier:
        """Read a folder; raises ValueError if it is none, is of another format, or was changed since it was written.

        Hashes are compared before anything else is done with a file: XGBoost ends the process over damaged bytes.
        """
        folder = Path(path)
        if not (folder / MANIFEST).is_file():
            raise ValueError(f"{folder} is no classifier: it has no {MANIFEST}; give what train.py wrote")
        try:
            manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
            if manifest["format"] != FORMAT:
                raise ValueError(f"it is of format {manifest['format']}, this version reads {FORMAT}")
            files = {name: folder.joinpath(name).read_bytes() for name in manifest["files"] if "/" not in name}
            changed = [name for name, data in files.items() if _hash(data) != manifest["files"][name]]
            if changed or len(files) < len(manifest["files"]):
                raise ValueError(f"{(changed or ['a file'])[0]} was changed since it was written")
            config = json.loads(files["config.json"])
            classes = [str(name) for name in config["classes"]]
            data = files[WEIGHTS[config["kind"]]]
            model: Any
            if config["kind"] == "linear":
                model = LinearModel.from_bytes(data, Outputs(config["outputs"], len(classes)))
            else:
                from models.boosted import BoostedModel

                model = BoostedModel.from_bytes(data)
            sets = [FeatureSet(**each) for each in config["features"]]
            rounds = pq.read_table(pa.BufferReader(files["rounds.parquet"])) if "rounds.parquet" in files else None
            return cls(model, classes, sets, config["training"], rounds)
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OSError,
            RecursionError,
            pa.ArrowException,
        ) as error:
            raise ValueError(f"{folder} is a damaged classifier ({error}): train it again, or copy it again") from None


def card(config: dict[str, Any], metrics: dict[str, Any]) -> str:
    """README.md of a classifier: what it is, what it was trained on, how good it is."""
    low, high = metrics["ci95"]
    classes = config["classes"]
    rows = [
        f"| {name} | {of['precision']:.3f} | {of['recall']:.3f} | {of['f1']:.3f} | {of['support']:,} |"
        for name, of in metrics["per_class"].items()
    ]
    told = config["training"].items()
    training = "\n".join(f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in told)
    sets = "\n".join(f"- {of['name']}: {of['width']:,} columns of model {of['model_id']}" for of in config["features"])
    what = "labels" if config["outputs"] == "labels" else "classes"
    return f"""# A {config["kind"]} classifier of {len(classes)} {what}

On {metrics["n_test"]:,} test documents, none of whose texts was trained on: accuracy {metrics["accuracy"]:.4f} (95 %:
{low:.4f} to {high:.4f}), macro F1 {metrics["macro_f1"]:.4f}, log-loss {metrics["log_loss"]:.4f}. Trained on
{metrics["n_train"]:,} documents, validated on {metrics["n_validation"]:,}.

| class | precision | recall | F1 | documents |
|---|---|---|---|---|
{chr(10).join(rows)}

## Features
{sets}

## Training
{training}
"""


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
