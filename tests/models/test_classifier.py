"""A classifier's folder: it comes back as it was, and no changed byte of it is ever read as a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from models import boosted, linear
from models.classifier import Classifier, FeatureSet
from models.rows import Outputs
from tests.models.test_boosted import CONFIG, cuts_of
from tests.models.test_boosted import data as boosted_data
from tests.models.test_linear import WIDTH
from tests.models.test_linear import data as linear_data

CLASSES = ["ham", "spam", "新闻"]
METRICS: dict[str, Any] = {
    "accuracy": 0.5, "ci95": [0.4, 0.6], "macro_f1": 0.4, "log_loss": 1.0, "n_train": 9, "n_validation": 0, "n_test": 4,
    "per_class": {name: {"precision": 1.0, "recall": 0.5, "f1": 0.66, "support": 2} for name in CLASSES},
}  # fmt: skip


def linear_one() -> tuple[Classifier, Any]:
    outputs = Outputs("classes", 3)
    rows = linear_data(outputs)
    model = linear.train(linear.LinearConfig(), outputs, rows, WIDTH)
    sets = [FeatureSet("words", "a" * 32, WIDTH - 5), FeatureSet("chars", "b" * 32, 5)]
    return Classifier(model, CLASSES, sets, {"solver": "svc"}), rows.parts[0]


def boosted_one() -> tuple[Classifier, Any]:
    outputs = Outputs("classes", 3)
    rows = boosted_data(outputs)
    model, rounds = boosted.train(CONFIG, outputs, rows, cuts_of([rows], CONFIG))
    table = pa.Table.from_pylist([each._asdict() for each in rounds])
    sets = [FeatureSet("words", "a" * 32, rows.parts[0].shape[1])]
    return Classifier(model, CLASSES, sets, {"depth": 3}, table), rows.parts[0]


@pytest.mark.parametrize("make", [linear_one, boosted_one])
def test_a_classifier_comes_back_as_it_was(make: Any, tmp_path: Path) -> None:
    classifier, rows = make()
    classifier.save(tmp_path / "model", METRICS)
    again = Classifier.load(tmp_path / "model")
    assert (again.probabilities(rows) == classifier.probabilities(rows)).all()
    assert (again.classes, again.sets, again.training, again.kind, again.rounds) == (
        classifier.classes, classifier.sets, classifier.training, classifier.kind, classifier.rounds,
    )  # fmt: skip
    shown = (tmp_path / "model/README.md").read_text("utf-8")
    assert "| 新闻 | 1.000 | 0.500 | 0.660 | 2 |" in shown
    assert f"words: {classifier.sets[0].width:,} columns of model aaaa" in shown
    again.save(tmp_path / "again", METRICS)
    for file in (tmp_path / "model").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
    with pytest.raises(ValueError, match="not empty"):
        classifier.save(tmp_path / "model")


@pytest.mark.parametrize("make", [linear_one, boosted_one])
def test_no_changed_or_missing_file_is_read(make: Any, tmp_path: Path) -> None:
    classifier, _ = make()
    classifier.save(tmp_path / "model", METRICS)
    for file in sorted((tmp_path / "model").iterdir()):
        before = file.read_bytes()
        for after in (
            before[:-2],
            before[: len(before) // 2],
            b"",
            before[:-2] + bytes([before[-2] ^ 1]) + before[-1:],
        ):
            file.write_bytes(after)
            with pytest.raises(ValueError, match="damaged classifier"):
                Classifier.load(tmp_path / "model")
        file.unlink()
        with pytest.raises(ValueError, match=r"damaged classifier|is no classifier"):
            Classifier.load(tmp_path / "model")
        file.write_bytes(before)
    Classifier.load(tmp_path / "model")


@pytest.mark.parametrize("manifest", ["[]", "{}", '{"format": 2}', '{"format": 1, "files": {}}',
                                      '{"format": 1, "files": {"../config.json": "0"}}'])  # fmt: skip
def test_a_manifest_that_is_none_is_told(manifest: str, tmp_path: Path) -> None:
    classifier, _ = linear_one()
    classifier.save(tmp_path / "model")
    (tmp_path / "model/manifest.json").write_text(manifest)
    with pytest.raises(ValueError, match="damaged classifier"):
        Classifier.load(tmp_path / "model")


def test_a_folder_that_is_none_and_a_model_of_other_classes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no classifier: it has no manifest"):
        Classifier.load(tmp_path)
    classifier, _ = linear_one()
    with pytest.raises(ValueError, match="2 classes and 30 features, but a model of 3 and 30"):
        Classifier(classifier.model, CLASSES[:2], classifier.sets, {})
    classifier.save(tmp_path / "model")
    assert "metrics.json" not in json.loads((tmp_path / "model/manifest.json").read_text())["files"]
