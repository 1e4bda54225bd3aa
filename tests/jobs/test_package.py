"""The shipped code: what the zip holds, who may unpack it where, and that no executor compiles what it holds."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mmh3
import pytest

from jobs import package, session
from jobs.warm import CONFIGS

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@pytest.fixture(scope="module")
def archive() -> Path:
    """The zip that the jobs ship."""
    return session.archive()


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="textmill-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


READS_ALL = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"


@cache
def unprivileged() -> list[str] | None:
    """How to start this Python as a user who can write nothing of ours; None if there is no way.

    Nobody in particular if we are root, with the right to read what only root can if Python itself lies there.
    """
    if os.getuid():
        return [sys.executable]
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for command in ([*nobody, sys.executable], [*nobody, *READS_ALL.split(), sys.executable]):
        starts = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"  # as Spark does
        tried = [*command, "-c", f"import numba, pyarrow, scipy; {starts}"]
        if shutil.which("setpriv") and subprocess.run(tried, cwd="/", capture_output=True).returncode == 0:
            return command
    return None


def as_nobody(code: str, *arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python as an unprivileged user without a home."""
    command = unprivileged()
    if command is None:
        pytest.skip("root's Python cannot be read by an unprivileged user, nor the right to read it be given")
    return subprocess.run(
        [*command, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_the_zip_holds_the_code_with_its_kernels_and_nothing_else(archive: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        names = set(file.namelist())
        assert file.comment.decode() == package.digest(ROOT)
    sources = {str(path.relative_to(ROOT)) for path in package.source_files(ROOT) if path.suffix == ".py"}
    assert {name for name in names if name.endswith(".py")} == sources
    assert {"jobs/featurize.py", "udfs/segment.py", "models/features.py", "udfs/unicode_tables.npz"} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "/", "..", "build", "data"))]
    for kernel in ("segment.words", "segment.normalize_all", "counts._count", "features._weigh", "hashing._hash_each"):
        assert [name for name in names if f"/{kernel}-" in name and name.endswith(".nbc")], kernel


def test_an_up_to_date_zip_is_not_written_again(archive: Path) -> None:
    before = archive.stat().st_mtime_ns
    assert package.write_zip(archive) == archive
    assert archive.stat().st_mtime_ns == before


def test_a_zip_is_written_where_stderr_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a notebook. The code is a stand-in, so that nothing is compiled."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/warm.py").write_text("print('warm')")
    with zipfile.ZipFile(package.write_zip(tmp_path / "code.zip", tmp_path)) as file:
        assert file.namelist() == ["jobs/warm.py"]
    assert capsys.readouterr() == ("", "")  # this process's own


def test_the_digest_is_that_of_the_source_alone(tmp_path: Path) -> None:
    for name in package.PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert package.digest(tmp_path) == package.digest(ROOT)  # with and without compiled kernels
    (tmp_path / "udfs/text.py").write_bytes((tmp_path / "udfs/text.py").read_bytes() + b"\n")
    assert package.digest(tmp_path) != package.digest(ROOT)


def test_a_zip_is_unpacked_once_and_whole(archive: Path, tmp_path: Path) -> None:
    first = package.unpack(archive, tmp_path)
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    (first / "mark").touch()
    assert package.unpack(archive, tmp_path) == first
    assert (first / "mark").exists()
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_processes_that_unpack_at_once_share_one_whole_tree(archive: Path, tmp_path: Path) -> None:
    code = "import sys, pathlib, jobs.package as p; print(p.unpack(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(archive), str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    folders = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert [str(path) for path in tmp_path.iterdir()] == list(folders)
    with zipfile.ZipFile(archive) as file:
        assert all((tmp_path / next(iter(folders)) / name).is_file() for name in file.namelist())


def test_the_private_folder_of_another_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = package.private_folder()
    assert mine is not None
    assert mine.parent == tmp_path
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700
    mine.chmod(0o777)
    assert package.private_folder() is None
    mine.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    mine.symlink_to(tmp_path / "elsewhere")
    assert package.private_folder() is None
    mine.unlink()
    mine.write_text("a file")
    assert package.private_folder() is None


# What an executor's worker does, in a process of its own: take the code that Spark brought, and run every stage.
WORKER = """
import importlib.util, os, sys
from pathlib import Path

source, brought = sys.argv[1:3]
spec = importlib.util.spec_from_file_location("shipped_by_value", source)  # as Spark unpickles it: not from the zip
package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
package.use(brought)
import tempfile
from numba.core import event

compiled = event.RecordingListener()
event.register("numba:compile", compiled)
from jobs import warm

print("code at", Path(warm.__file__).parents[1])
with tempfile.TemporaryDirectory() as folder:
    for config in warm.CONFIGS:
        rows = warm.run(("Some other text entirely.", "数据 É"), config, Path(folder))
        print("rows", rows.num_rows)
    for outputs in warm.OUTPUTS:
        warm.run_boosted(rows, outputs, Path(folder))
print("compiled", len(compiled.buffer))
"""


def executor(archive: Path, folder: Path, writable: bool, **environment: str) -> list[str]:
    """What a worker of a new executor says, numba's notes on its cache included."""
    folder.mkdir()
    brought = Path(shutil.copy(archive, folder / "textmill.zip"))
    source = Path(shutil.copy(ROOT / "jobs/package.py", folder / "by_value.py"))
    for path in (brought, source):
        path.chmod(0o444)
    if os.getuid() == 0:
        os.chown(folder, NOBODY if writable else 0, -1)
    folder.chmod(0o755 if writable else 0o555)
    done = as_nobody(WORKER, source, brought, cwd=folder, NUMBA_DEBUG_CACHE="1", **environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("rows 2") == len(CONFIGS), done.stdout
    return lines


def loaded(lines: list[str]) -> list[str]:
    return [line for line in lines if "data loaded from" in line]


def test_no_executor_compiles_where_home_is_not_writable(archive: Path, public: Path) -> None:
    for name in ("first", "second"):
        lines = executor(archive, public / name, writable=True)
        assert f"code at {public / name}/textmill-" in "\n".join(lines)
        assert lines[-1] == "compiled 0"
        assert len(loaded(lines)) > 10


def test_executors_whose_folder_cannot_be_written_share_a_private_one(archive: Path, public: Path) -> None:
    temporary = public / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    for name in ("first", "second"):
        lines = executor(archive, public / name, writable=False, TMPDIR=str(temporary))
        user = NOBODY if os.getuid() == 0 else os.getuid()
        assert f"code at {temporary}/textmill-{user}/textmill-" in "\n".join(lines)
        assert lines[-1] == "compiled 0"
        assert len(loaded(lines)) > 10


def test_a_read_only_tree_without_kernels_or_a_writable_place_compiles_and_works(public: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    code = public / "code"
    for name in package.PACKAGES:
        shutil.copytree(ROOT / name, code / name, ignore=ignored)
    for path in (code, *code.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = as_nobody(
        "from numba.core import event\n"
        "event.register('numba:compile', compiled := event.RecordingListener())\n"
        "import pyarrow as pa, udfs.hashing as h\n"
        "print(h.content_hash(pa.array(['a'])).tobytes().hex(), len(compiled.buffer) > 0)",
        cwd=code,
    )
    assert done.returncode == 0, done.stderr
    if os.getuid() == 0:
        assert not list(code.rglob("*.nbi"))
    assert done.stdout.split() == [mmh3.mmh3_x64_128_digest(b"a").hex(), "True"]


@pytest.mark.slow
def test_compiling_ends_well_every_time() -> None:
    """It aborted at exit, once in forty times, while threads of Arrow's pool were still ending."""
    codes: list[int] = []
    for _ in range(20):
        busy = [subprocess.Popen([sys.executable, "-m", "jobs.warm"], cwd=ROOT) for _ in range(6)]
        codes += [process.wait(300) for process in busy]
    assert codes == [0] * 120
