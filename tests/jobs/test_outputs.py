"""Staging, swapping and moving of results, on the file system that Spark sees."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.outputs import FileSystem, Target, move_parquet, refuse_overlap
from jobs.session import Mistake, TooManyRejects
from udfs.records import plain_path


def fill(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "data").write_text(text)
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("data")}


def test_a_stage_lies_beside_its_target_and_is_removed_whatever_happens(spark: Any, tmp_path: Path) -> None:
    target = Target(str(tmp_path / "deep/out"), "--output", False)
    with target.staged() as stage:
        assert stage.startswith(f"file:{tmp_path}/deep/.out.stage/")
        assert [path.name for path in (tmp_path / "deep").iterdir()] == [".out.stage"]
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
            fill(Path(plain_path(stage)) / "new", text)
            target.swap(f"{stage}/new")
        assert tree(tmp_path) == {f"{name}/data": text}


def test_a_swap_that_fails_puts_the_old_back(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "out", "old")
    target = Target(str(tmp_path / "out"), "--output", True)
    with pytest.raises(Exception, match="absent"), target.staged() as stage:
        target.swap(f"{stage}/absent")
    assert tree(tmp_path) == {"out/data": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_run_that_was_first_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    """Two runs start on a free path: the second is told when it is its turn."""
    one, two = (Target(str(tmp_path / "out"), "--output", False) for _ in range(2))
    with one.staged() as stage:
        fill(Path(plain_path(stage)) / "new", "one")
        one.swap(f"{stage}/new")
    with pytest.raises(Mistake, match=r"--output .*/out exists"), two.staged():
        pass
    assert tree(tmp_path) == {"out/data": "one"}


def run(
    target: Target,
    text: str,
    key: str = "",
    swap: bool = True,
    fails: BaseException | None = None,
    meanwhile: Any = None,
) -> None:
    """A job of one step, which may fail at its end."""
    with target.staged(key) as stage:
        if not target.find("new"):
            with target.step("new") as folder:
                fill(Path(plain_path(folder)), text)
        if meanwhile:
            meanwhile()
        if swap:
            target.swap(f"{stage}/new")
        if fails:
            raise fails


def test_what_another_program_put_there_meanwhile_is_not_replaced(spark: Any, tmp_path: Path) -> None:
    target = Target(str(tmp_path / "out"), "--output", False)
    with pytest.raises(FileExistsError, match="--overwrite"):
        run(target, "ours", meanwhile=lambda: fill(tmp_path / "out", "theirs"))
    assert tree(tmp_path) == {"out/data": "theirs"}


@pytest.mark.parametrize(
    ("error", "kept"), [(OSError, True), (Mistake, False), (TooManyRejects, False), (KeyboardInterrupt, False)]
)
def test_what_is_finished_is_kept_for_the_same_run_after_a_failure(
    error: type[BaseException], kept: bool, spark: Any, tmp_path: Path
) -> None:
    target = Target(str(tmp_path / "out"), "--output", False)

    def fail_in_a_step() -> None:
        with target.step("half") as folder:
            fill(Path(plain_path(folder)), "half")
            raise error

    with pytest.raises(error):
        run(target, "first", "key", meanwhile=fail_in_a_step)
    assert tree(tmp_path) == ({".out.stage/key/new/data": "first"} if kept else {})
    run(target, "second", "key")
    assert tree(tmp_path) == {"out/data": "first" if kept else "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_to_nothing_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Mistake, match="is a link to what does not exist"):
        Target(str(tmp_path / "out"), "--output", True)


@pytest.mark.parametrize(("key", "left"), [("key", 1), ("", 0)])
def test_what_a_run_with_another_key_or_without_one_left_is_deleted(
    key: str, left: int, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    target = Target(str(tmp_path / "out"), "--output", False)
    with pytest.raises(OSError, match="full"):
        run(target, "first", key, swap=False, fails=OSError("full"))
    assert len(list(tmp_path.iterdir())) == left
    seen: list[dict[str, str]] = []
    run(target, "second", "other", meanwhile=lambda: seen.append(tree(tmp_path)))
    assert seen == [{".out.stage/other/new/data": "second"}]
    assert caplog.messages == ["--output: unfinished work of an earlier run is deleted"] * left


@pytest.mark.parametrize("is_there", [False, True])
def test_an_old_output_comes_back_if_the_new_one_is_not_there(is_there: bool, spark: Any, tmp_path: Path) -> None:
    """As a run that was killed in a swap leaves it; what only looks like it stays."""
    fill(tmp_path / ".out.old-0123456789ab", "old")
    fill(tmp_path / ".out.old-mine", "mine")
    fill(tmp_path / ".out.old-x.old-0123456789ab", "of out.old-x")
    if is_there:
        fill(tmp_path / "out", "new")
    others = {".out.old-mine/data": "mine", ".out.old-x.old-0123456789ab/data": "of out.old-x"}
    with Target(str(tmp_path / "out"), "--output", True).staged():
        assert tree(tmp_path) == {"out/data": "new" if is_there else "old"} | others
    assert tree(tmp_path) == {"out/data": "new" if is_there else "old"} | others


def test_what_a_run_swapped_before_it_failed_is_its_own_until_it_is_changed(spark: Any, tmp_path: Path) -> None:
    """A model that is in place, and an output that is not: the rerun goes on, also without --overwrite."""
    for text in ("first", "second", "third"):
        target = Target(str(tmp_path / "model"), "--model", False)
        with pytest.raises(OSError, match="cannot rename"):
            run(target, text, "key", fails=OSError("cannot rename output"))
        assert tree(tmp_path) == {"model/data": "first"}
        assert target.find("new") == target.path
    (tmp_path / "model/more").write_text("changed")
    with pytest.raises(Mistake, match="--overwrite"):
        run(target, "fourth", "key")
    assert tree(tmp_path) == {"model/data": "first"}


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


@pytest.mark.parametrize("path", ["/", "file:///", "/proc"])
def test_a_root_is_no_target(path: str, spark: Any) -> None:
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
    at = int((tmp_path / "x/y/data").stat().st_mtime * 1000)
    assert [(name.rsplit("/", 2)[1:], *rest) for name, *rest in fs.files(str(tmp_path))] == [(["y", "data"], 4, at)]
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
    files = [tmp_path / "in" / f"sub {name}" / name for name in names]
    expected = {(f"file:{file}", size, file.stat().st_mtime_ns // 10**6) for size, file in enumerate(files)}
    assert {*fs.files(f"{tmp_path}/in")} == expected
    assert {*fs.glob(f"{tmp_path}/in/*/*")} == expected
    assert [found[:2] for found in fs.glob(f"{tmp_path}/in/sub {{a,x}}")] == [(f"file:{tmp_path}/in/sub a", None)]
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
