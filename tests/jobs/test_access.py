"""Owner, group and mode of what is replaced; on HDFS, with ACLs: tests/cluster/test_tables.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jobs.access import keep_access
from jobs.outputs import FileSystem, Target
from tests.jobs.test_featurize import featurize, write_lines
from tests.jobs.test_outputs import fill
from udfs.records import plain_path

pytestmark = pytest.mark.usefixtures("spark")


def modes(folder: Path) -> dict[str, set[str]]:
    """The modes of all folders and of all files, the folder itself included."""
    found: dict[str, set[str]] = {"folders": set(), "files": set()}
    for path in [folder, *folder.rglob("*")]:
        found["folders" if path.is_dir() else "files"].add(oct(stat.S_IMODE(path.stat().st_mode)))
    return found


def restrict(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o2750 if path.is_dir() else 0o640)


def owners(folder: Path) -> set[tuple[int, int]]:
    return {(path.stat().st_uid, path.stat().st_gid) for path in [folder, *folder.rglob("*")]}


def test_output_model_and_tokens_keep_their_modes(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"id": "a", "text": "a b"}, {"id": "b", "text": "b"}])
    places = {name: tmp_path / name for name in ("output", "model", "tokens")}
    options = [part for name, place in places.items() for part in (f"--{name}", place)]
    assert featurize("--input", source, *options) == 0
    first = {name: modes(place) for name, place in places.items()}
    for place in places.values():
        restrict(place)
    for _ in range(2):
        assert featurize("--input", source, *options, "--overwrite") == 0
        for name, place in places.items():
            assert modes(place) == {"folders": {"0o2750"}, "files": {"0o640"}} != first[name]


def test_replaced_partitions_keep_their_own_modes_and_new_ones_get_those_of_the_output(tmp_path: Path) -> None:
    rows = [{"id": f"{i}", "text": "a b", "dt": f"2026-11-{28 + i}"} for i in range(3)]
    source = write_lines(tmp_path / "in.jsonl", rows[:2])
    into = ("--output", tmp_path / "out", "--partition-by", "dt")
    assert featurize("--input", source, *into, "--model", tmp_path / "model") == 0
    restrict(tmp_path / "out")
    one = tmp_path / "out/dt=2026-11-28"
    for path in [*one.iterdir(), one]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    write_lines(source, [rows[0], rows[2]])
    assert featurize("--input", source, *into, "--apply", tmp_path / "model") == 0
    assert modes(one) == {"folders": {"0o700"}, "files": {"0o600"}}
    assert modes(tmp_path / "out/dt=2026-11-30") == {"folders": {"0o2750"}, "files": {"0o640"}}
    top = [path for path in (tmp_path / "out").iterdir() if path.suffix != ".crc"]
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in top if path.is_file()} == {"0o640"}
    assert modes(tmp_path / "out/_rejects") == {"folders": {"0o2750"}, "files": {"0o640"}}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_root_keeps_owner_and_group(tmp_path: Path) -> None:
    for path in (fill(tmp_path / "out", "old"), tmp_path / "out/data"):
        os.chown(path, 1234, 2345)
    target = Target(str(tmp_path / "out"), "--output", True)
    with target.staged() as stage:
        fill(Path(plain_path(stage)) / "new/deeper", "new")
        target.swap(f"{stage}/new")
    assert (tmp_path / "out/deeper/data").read_text() == "new"
    assert owners(tmp_path / "out") == {(1234, 2345)}


def test_what_cannot_be_kept_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of an old one that has gone."""
    fill(tmp_path / "new", "new")
    keep_access(FileSystem(str(tmp_path)), f"file:{tmp_path}/old", f"file:{tmp_path}/new", "--model")
    (line,) = caplog.messages
    assert line.startswith(f"--model: of {tmp_path}/old, which is replaced, could not be kept: access (")


def test_an_empty_folder_leaves_files_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "old").mkdir(mode=0o711)
    fill(tmp_path / "new", "new").joinpath("data").chmod(0o604)
    keep_access(FileSystem(str(tmp_path)), f"file:{tmp_path}/old", f"file:{tmp_path}/new", "--model")
    assert modes(tmp_path / "new") == {"folders": {"0o711"}, "files": {"0o604"}}
    assert not caplog.messages
