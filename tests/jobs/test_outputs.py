"""Staging, swapping and moving of results, on the file system that Spark sees."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.outputs import FileSystem, Target, move_parquet, refuse_overlap
from jobs.session import Mistake


def fill(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "data").write_text(text)
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("data")}


def test_a_stage_lies_beside_its_target_and_is_removed_whatever_happens(spark: Any, tmp_path: Path) -> None:
    target = Target(str(tmp_path / "deep/out"), "--output", False)
    with target.staged() as stage:
        assert [path.name for path in (tmp_path / "deep").iterdir()] == [stage.rsplit("/", 1)[1]]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), target.staged():
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_of_the_folders_above_a_stage_only_those_go_that_were_made_for_it_and_are_empty(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    with Target(str(tmp_path / "mine/a/b/out"), "--output", False).staged():
        fill(tmp_path / "mine/a/other", "another's")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "mine",
        "mine/a",
        "mine/a/other",
        "mine/a/other/data",
    ]
    with Target(str(tmp_path / "x/out"), "--output", False).staged():
        with Target(str(tmp_path / "x/y/model"), "--model", False).staged():
            pass
        assert [path.name for path in (tmp_path / "x").iterdir()] != ["y"]
    with pytest.raises(Mistake, match="--output"):
        Target(str(tmp_path / "x/y" / ("long" * 99)), "--output", False).staged().__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["out", "out,[1]", "o u t {x} *?", "%20", "é"])
def test_a_swap_puts_the_new_in_the_place_of_the_old(name: str, spark: Any, tmp_path: Path) -> None:
    for text in ("first", "second"):
        target = Target(str(tmp_path / name), "--output", True)
        with target.staged() as stage:
            staged = tmp_path / stage.rsplit("/", 1)[1]
            fill(staged / "new", text)
            target.swap(f"{stage}/new")
        assert tree(tmp_path) == {f"{name}/data": text}


def test_a_swap_that_fails_puts_the_old_back(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "out", "old")
    target = Target(str(tmp_path / "out"), "--output", True)
    with pytest.raises(Exception, match="absent"), target.staged() as stage:
        target.swap(f"{stage}/absent")
    assert tree(tmp_path) == {"out/data": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_was_first_is_not_moved_into(spark: Any, tmp_path: Path) -> None:
    """Two runs start on a free path: the second to finish replaces the first's whole, and never lies inside it."""
    one, two = (Target(str(tmp_path / "out"), "--output", False) for _ in range(2))
    for target, text in ((one, "one"), (two, "two")):
        with target.staged() as stage:
            fill(tmp_path / stage.rsplit("/", 1)[1] / "new", text)
            target.swap(f"{stage}/new")
    assert tree(tmp_path) == {"out/data": "two"}


def test_two_runs_never_share_a_stage(spark: Any, tmp_path: Path) -> None:
    stages = {Target(str(tmp_path / "out"), "--output", False).stage for _ in range(5)}
    assert len(stages) == 5


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_no_target(overwrite: bool, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(Mistake, match="is a file"):
        Target(str(tmp_path / "out"), "--output", overwrite)


def test_a_folder_that_exists_needs_overwrite(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(Mistake, match="--overwrite"):
        Target(str(tmp_path / "out"), "--model", False)
    Target(str(tmp_path / "out"), "--model", True)


@pytest.mark.parametrize("path", ["/", "file:///"])
def test_the_root_is_no_target(path: str, spark: Any) -> None:
    with pytest.raises(Mistake, match="--output"):
        Target(path, "--output", True)


def test_a_parent_that_is_a_file_is_a_mistake(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(Mistake, match="--output"),
        Target(str(tmp_path / "file/out"), "--output", False).staged(),
    ):
        pass


def test_rename_never_moves_into_a_folder(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "a", "a")
    fill(tmp_path / "b", "b")
    fs = FileSystem(str(tmp_path))
    with pytest.raises(OSError, match="cannot rename"):
        fs.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert tree(tmp_path) == {"a/data": "a", "b/data": "b"}


def test_names_and_files_of_a_folder(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "x/y", "four")
    fs = FileSystem(str(tmp_path))
    assert fs.names(str(tmp_path / "x")) == ["y"]
    assert fs.names(str(tmp_path / "absent")) == []
    assert [(name.rsplit("/", 2)[1:], size) for name, size in fs.files(str(tmp_path))] == [(["y", "data"], 4)]
    assert fs.is_dir(str(tmp_path / "x"))
    assert not fs.is_dir(str(tmp_path / "x/y/data"))
    assert not fs.is_dir(str(tmp_path / "absent"))


def test_files_go_up_and_down_unchanged(spark: Any, tmp_path: Path) -> None:
    fs = FileSystem(str(tmp_path))
    fs.write_json(str(tmp_path / "value.json"), {"é": [1, None]})
    assert (tmp_path / "value.json").read_text("utf-8") == '{\n  "é": [\n    1,\n    null\n  ]\n}\n'
    fill(tmp_path / "folder", "content")
    fs.download(str(tmp_path / "folder"), tmp_path / "copy")
    fs.upload(tmp_path / "copy", str(tmp_path / "again"))
    assert tree(tmp_path) == {f"{name}/data": "content" for name in ("folder", "copy", "again")}


def test_listing_and_globs_name_whatever_there_is(spark: Any, tmp_path: Path) -> None:
    """Also names that look like the text in which Java lists them."""
    names = ["a", "b; isDirectory=true;", "c; isDirectory=false; length=7;", "Status{path=x; isDirectory=true;", "é\n"]
    for size, name in enumerate(names):
        (tmp_path / "in" / f"sub {name}").mkdir(parents=True)
        (tmp_path / "in" / f"sub {name}" / name).write_bytes(b"x" * size)
    fs = FileSystem(str(tmp_path))
    expected = {f"file:{tmp_path}/in/sub {name}/{name}": size for size, name in enumerate(names)}
    assert dict(fs.files(f"{tmp_path}/in")) == expected
    assert dict(fs.glob(f"{tmp_path}/in/*/*")) == expected
    assert sorted(fs.glob(f"{tmp_path}/in/sub {{a,x}}")) == [(f"file:{tmp_path}/in/sub a", None)]
    assert fs.glob(f"{tmp_path}/in/x*") == fs.glob(f"{tmp_path}/nosuch") == []


def zstd(content: bytes) -> bytes:
    """In two frames, as parallel compressors write them."""
    half = len(content) // 2
    return b"".join(pa.compress(part, "zstd", asbytes=True) for part in (content[:half], content[half:]))


@pytest.mark.parametrize(
    ("name", "packed"),
    [("t.txt", bytes), ("t.txt.gz", gzip.compress), ("t.bz2", bz2.compress), ("t.txt.zst", zstd)],
)
def test_head_is_the_start_of_the_text_within_its_compression(
    name: str, packed: Any, spark: Any, tmp_path: Path
) -> None:
    text = bytes(range(256)) * 400
    (tmp_path / name).write_bytes(packed(text))
    fs = FileSystem(str(tmp_path))
    assert fs.head(str(tmp_path / name), 1000) == text[:1000]
    assert fs.head(str(tmp_path / name), 1 << 20) == text


def test_parquet_parts_are_moved_and_named_so(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "kind=features"
    source.mkdir()
    for name in ("part-0.txt", "part-1.txt", ".part-0.txt.crc", "_SUCCESS"):
        (source / name).write_text(name)
    fs = FileSystem(str(tmp_path))
    assert move_parquet(fs, str(source), str(tmp_path / "out")) == 2
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.suffix == ".parquet") == [
        "part-0.parquet",
        "part-1.parquet",
    ]
    assert move_parquet(fs, str(tmp_path / "absent"), str(tmp_path / "none")) == 0
    assert (tmp_path / "none").is_dir()


@pytest.mark.parametrize(
    "paths",
    [
        {"--input": "file:/a", "--output": "file:/a"},
        {"--input": "file:/a", "--output": "file:/a/b"},
        {"--input": "file:/a/b/c", "--output": "file:/a"},
        {"--input": "file:/a", "--output": "file:/b", "--model": "file:/b/m"},
        {"--input": "file:/a/", "--output": "file:/b", "--model": "file:/a"},
    ],
)
def test_overlapping_folders_are_refused(paths: dict[str, str | None]) -> None:
    with pytest.raises(Mistake, match="lies in"):
        refuse_overlap(paths)


def test_names_that_only_begin_alike_do_not_overlap() -> None:
    refuse_overlap({"--input": "file:/a", "--output": "file:/ab", "--model": "file:/a b"})
    refuse_overlap({"--input": "file:/a", "--output": "file:/b", "--model": None})
