"""Drivers killed, stopped, doubled, out of disk: the old output or the new one stays, and a rerun goes on."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs import session
from jobs.lease import VOID_SECONDS
from models.features import FeatureModel
from tests.jobs.test_featurize import (
    ROOT,
    featurize,
    manifest,
    one_clear_line,
    snapshot,
    submission,
    wait_until,
    write_lines,
    written,
)
from tests.jobs.test_package import NOBODY, as_nobody

pytestmark = pytest.mark.usefixtures("spark")
RECORDS: list[Any] = [{"text": f"w{i % 7} a b c w{i % 11}", "label": "xy"[i % 2]} for i in range(100)] + [b"{"]


@pytest.fixture(scope="module")
def place(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """in.jsonl; what an undisturbed run makes of it: out, model; what lay there before: old_out, old_model."""
    folder = tmp_path_factory.mktemp("failures")
    source = write_lines(folder / "in.jsonl", RECORDS)
    for name, options in (("", []), ("old_", ["--features", "count"])):
        outputs = ("--output", folder / f"{name}out", "--model", folder / f"{name}model")
        assert featurize("--input", source, *outputs, *options) == 0
    return folder


def job(place: Path, folder: Path, *options: object) -> list[str]:
    """The arguments of a job into `folder`."""
    fixed = ("--input", place / "in.jsonl", "--output", folder / "out")
    return [str(part) for part in (*fixed, *(options or ("--model", folder / "model", "--overwrite")))]


def lay_old(place: Path, folder: Path) -> None:
    for name in ("out", "model"):
        shutil.copytree(place / f"old_{name}", folder / name)


def state(folder: Path, place: Path) -> str:
    """What lies in a target's place: old, new or absent. Anything else is half an output."""
    if not folder.exists():
        return "absent"
    for name, then in (("old", f"old_{folder.name}"), ("new", folder.name)):
        if same(folder, place / then):
            return name
    raise AssertionError(f"{folder} is neither the old nor the new: {sorted(snapshot(folder))}")


def same(one: Path, other: Path) -> bool:
    """Whether two outputs or models hold the same, whatever their files are called."""
    if (one / "config.json").exists():
        return FeatureModel.load(one).id == FeatureModel.load(other).id
    if manifest(one) != manifest(other):
        return False
    assert written(one).equals(written(other))
    columns = ["position", "reason", "kind", "bytes"]
    rejects = [pq.read_table([*(folder / "_rejects").glob("*.parquet")], columns=columns) for folder in (one, other)]
    assert rejects[0].equals(rejects[1])
    assert len(rejects[0]) == 1
    return True


def drive(spark: Any, pattern: str, number: int, arguments: list[str]) -> subprocess.Popen[str]:
    """A driver of its own that gets a signal at a point (tests/jobs/driver.py)."""
    java = spark.sparkContext._gateway.gateway_parameters
    gateway = {"PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.driver", pattern, str(number), *arguments],
        cwd=ROOT, env={**os.environ, **gateway}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def kill_at(spark: Any, pattern: str, arguments: list[str]) -> None:
    driver = drive(spark, pattern, signal.SIGKILL, arguments)
    said = driver.communicate(timeout=300)
    assert driver.returncode == -signal.SIGKILL, said


def rerun(arguments: list[str], caplog: pytest.LogCaptureFixture) -> str:
    """The steps that a rerun says it need not do."""
    caplog.clear()
    caplog.set_level("INFO")
    assert featurize(*arguments) == 0
    told = [re.match("continues after (.*), finished by an earlier run", line) for line in caplog.messages]
    return " ".join(match[1] for match in told if match)


RUN, KEY = r"/run-[0-9a-f]{12}", r"\.stage/[0-9a-f]{16}"
KILLS = {  # before a renaming: what the rerun need not do, and the states of model and output in between
    "rejects of count": (f"{RUN}/count/kind=rejects/", "", "old", "old"),
    "count is whole": (f"{RUN}/count > ", "", "old", "old"),
    "model is whole": (f"{RUN}/model > ", "count", "old", "old"),
    "parts of output": (f"{RUN}/output-cells/", "count, fit", "old", "old"),
    "rejects of output": ("/count/_rejects > ", "count, fit", "old", "old"),
    "output is whole": (f"{RUN}/output > ", "fit", "old", "old"),
    "model away": (r"/model > \S+/\.model\.old-", "count, fit, transform", "old", "old"),
    "model in": (f"{KEY}/model > ", "count, fit, transform", "absent", "old"),
    "old model out of sight": (r"\.model\.old-\w+ > ", "count, fit, transform", "new", "old"),
    "output away": (r"/out > \S+/\.out\.old-", "count, fit, transform", "new", "old"),
    "output in": (f"{KEY}/output > ", "count, fit, transform", "new", "absent"),
    "old output out of sight": (r"\.out\.old-\w+ > ", "count, fit, transform", "new", "new"),
    "stage out of sight": (rf"/\.out{KEY} > ", "count, fit, transform", "new", "new"),
    "model's stage out of sight": (rf"/\.model{KEY} > ", "fit", "new", "new"),
}


OFTEN = {"model is whole", "output is whole", "model in", "output in", "model's stage out of sight"}


def points(names: Iterable[str]) -> list[Any]:
    """The points as parameters; only a few of them are tried every time."""
    return [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("point", points(KILLS))
def test_a_driver_that_is_killed_at_any_boundary_leaves_old_or_new_and_a_rerun_goes_on(
    point: str, spark: Any, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pattern, finished, model, output = KILLS[point]
    lay_old(place, tmp_path)
    arguments = job(place, tmp_path)
    kill_at(spark, pattern, arguments)
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == (model, output)
    assert rerun(arguments, caplog) == finished
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == ("new", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


@pytest.mark.parametrize("point", points(["parts of output", "output in", "stage out of sight"]))
def test_a_first_run_that_is_killed_goes_on_without_overwrite(
    point: str, spark: Any, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the model may be in place already."""
    arguments = job(place, tmp_path, "--model", tmp_path / "model")
    kill_at(spark, KILLS[point][0], arguments)
    assert rerun(arguments, caplog) == KILLS[point][1]
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == ("new", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


@pytest.mark.parametrize(
    ("point", "finished"),
    [("output in", "count, transform"), pytest.param("parts of output", "count", marks=pytest.mark.slow)],
)
def test_apply_goes_on_too(
    point: str, finished: str, spark: Any, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lay_old(place, tmp_path)
    shutil.rmtree(tmp_path / "model")
    arguments = job(place, tmp_path, "--apply", place / "model", "--overwrite")
    kill_at(spark, KILLS[point][0], arguments)
    assert rerun(arguments, caplog) == finished
    assert state(tmp_path / "out", place) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("touch", ""),
        ("options", ""),
        ("overwrite", "count, fit"),
    ],
)
def test_only_the_same_command_on_the_same_input_goes_on(
    change: str, told: str, spark: Any, place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(place / "in.jsonl", tmp_path)
    arguments = job(tmp_path, tmp_path, "--model", tmp_path / "model", "--max-rejects", "1%")
    kill_at(spark, f"{RUN}/output-cells/", arguments)
    if change == "touch":
        os.utime(tmp_path / "in.jsonl")
    arguments += {"touch": [], "options": ["--ngrams", "1,2"], "overwrite": ["--overwrite"]}[change]
    assert rerun(arguments, caplog) == told
    earlier = [line for line in caplog.messages if line.startswith("--output: unfinished work of an earlier run")]
    assert len(earlier) == 1  # in any case what was not finished
    assert FeatureModel.load(tmp_path / "model").config.ngrams == ((1, 2) if change == "options" else (1, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "model", "out"]


# Two drivers.


def stopped_at(spark: Any, pattern: str, arguments: list[str]) -> subprocess.Popen[str]:
    """A driver that stands still at a point."""
    driver = drive(spark, pattern, signal.SIGSTOP, arguments)
    try:
        wait_until(lambda: Path(f"/proc/{driver.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    except BaseException:
        driver.kill()
        raise AssertionError(driver.communicate()) from None
    return driver


@pytest.fixture
def stopped(spark: Any) -> Iterator[Callable[[str, list[str]], subprocess.Popen[str]]]:
    """Starts drivers that stand still at a point; killed at the end if they still run."""
    started: list[subprocess.Popen[str]] = []

    def start(pattern: str, arguments: list[str]) -> subprocess.Popen[str]:
        started.append(stopped_at(spark, pattern, arguments))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()
        driver.communicate()


def test_of_two_drivers_on_one_output_one_wins_and_the_other_is_told(
    stopped: Callable[..., subprocess.Popen[str]], place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the second is another job with the same output."""
    lay_old(place, tmp_path)
    driver = stopped("/_manifest.json$", job(place, tmp_path))
    before = snapshot(tmp_path)
    for second in (
        job(place, tmp_path),
        job(place, tmp_path, "--apply", place / "model", "--overwrite"),
        job(place, tmp_path / "elsewhere", "--model", tmp_path / "model", "--overwrite"),
    ):
        capsys.readouterr()
        assert featurize(*second) == 2
        line = one_clear_line(capsys.readouterr().err)
        assert re.search(rf"another run \(host \S+, pid {driver.pid}, started 20\d\d-.*\) is writing there", line)
        assert snapshot(tmp_path) == before
    driver.send_signal(signal.SIGCONT)
    said = driver.communicate(timeout=300)
    assert driver.returncode == 0, said
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == ("new", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


def age_leases(folder: Path) -> None:
    """As if the holders had stood still for so long."""
    found = [*folder.glob(".*.stage/lease-*")]
    assert len(found) == 2
    for path in found:
        os.utime(path, (time.time() - VOID_SECONDS - 1,) * 2)


@pytest.mark.parametrize(
    ("pattern", "finished", "code", "told"),
    [
        ("/_manifest.json$", "count, fit", 2, r"stood still for more than 60 s, and another run has taken over"),
        (f"{KEY}/output > ", "count, fit, transform", 1, "cannot rename"),  # checked just before it stood still
    ],
)
def test_a_run_that_stood_still_and_was_taken_over_stops(
    pattern: str,
    finished: str,
    code: int,
    told: str,
    stopped: Callable[..., subprocess.Popen[str]],
    place: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lay_old(place, tmp_path)
    driver = stopped(pattern, job(place, tmp_path))
    age_leases(tmp_path)
    assert rerun(job(place, tmp_path), caplog) == finished
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == ("new", "new")
    before = snapshot(tmp_path)
    driver.send_signal(signal.SIGCONT)
    said = driver.communicate(timeout=300)
    assert driver.returncode == code, said
    assert re.search(told, said[1].splitlines()[-1]), said
    assert snapshot(tmp_path) == before
    assert not (tmp_path / ".out.stage").exists()


# Kills at random moments: of all processes of a driver, Java among them.


@pytest.mark.parametrize(
    "seed", [seed if seed <= 2 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 21)]
)
def test_a_driver_that_is_killed_at_a_random_moment_leaves_old_or_new_and_a_rerun_goes_on(
    seed: int,
    place: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
) -> None:
    lay_old(place, tmp_path)
    arguments = job(place, tmp_path)
    command, settings = submission(ROOT / "jobs/featurize.py", *arguments, master="local[2]")
    driver = subprocess.Popen(
        command, cwd=tmp_path, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: (tmp_path / ".model.stage").exists() or driver.poll() is not None)
    moment = random.Random(seed).uniform(0, 8)
    time.sleep(moment)
    os.killpg(driver.pid, signal.SIGKILL)
    said = driver.communicate()[0]
    assert driver.returncode in (0, -signal.SIGKILL), said
    found = [state(tmp_path / name, place) for name in ("model", "out")]
    assert found[1] == "old" or found[0] == "new", found  # the model goes first
    finished = rerun(arguments, caplog)
    record_property("killed", f"seed {seed}: after {moment:.2f} s, model and output {found}, finished: {finished}")
    assert (state(tmp_path / "model", place), state(tmp_path / "out", place)) == ("new", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


# Places that can't be written, as a user who has no way round it.

NO_ROOM = """
import json, os, sys
from pathlib import Path

root, disk, closed, source = sys.argv[1:]
sys.path.insert(0, root)
from jobs.featurize import main
from jobs.session import exit_code
from tests.jobs.driver import at

def fails(path, size):
    try:
        with open(path, "wb", buffering=0) as file:
            while file.tell() < size:
                file.write(bytes(1 << 16))
    except OSError as error:
        return error.strerror
    return "no error"

def run(*options):
    code = exit_code(main, ["--input", source, *options])
    print(json.dumps(code), flush=True)

print(os.getuid(), fails(f"{closed}/plain", 1))
run("--output", f"{closed}/out", "--model", f"{closed}/model")
if disk:
    outputs = ["--output", f"{disk}/out", "--model", f"{disk}/model", "--overwrite"]
    run(*outputs, "--features", "count")
    at("/run-[0-9a-f]{12}/model > ", lambda: fails(f"{disk}/ballast", 1 << 30))
    run(*outputs)
    print(fails(f"{disk}/plain", 1 << 16))
    os.remove(f"{disk}/plain")
    print(json.loads(Path(f"{disk}/out/_manifest.json").read_text()))
    os.remove(f"{disk}/ballast")
    run(*outputs)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="textmill-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def disk(public: Path) -> Iterator[Path]:
    """A disk of 4 MB, if this user may mount one."""
    with small_disk(public / "disk", 4) as folder:
        yield folder


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk of this size, mounted at a new folder; skips the test where this user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=777", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"this user may not mount a small disk: {done.stderr if done else 'there is no mount'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def without_room(place: Path, public: Path, disk: Path | None) -> tuple[list[str], list[str]]:
    """What NO_ROOM prints, and its lines on stderr."""
    session.archive()  # this user may write it
    closed, temporary = public / "closed", public / "tmp"
    closed.mkdir(mode=0o555)
    temporary.mkdir()
    temporary.chmod(0o777)
    source = shutil.copy(place / "in.jsonl", public)
    Path(source).chmod(0o444)
    done = as_nobody(NO_ROOM, ROOT, disk or "", closed, source, cwd=temporary, TMPDIR=str(temporary),
                     PYSPARK_SUBMIT_ARGS="--master local[1] --conf spark.ui.enabled=false pyspark-shell")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(closed.iterdir()) == []
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ") or "continues" in line]
    return done.stdout.splitlines(), lines


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_2(place: Path, public: Path) -> None:
    said, told = without_room(place, public, None)
    assert said[0] == f"{NOBODY if os.getuid() == 0 else os.getuid()} Permission denied"
    assert said[-1] == "2"
    assert one_clear_line("\n".join(told)).startswith("error: --model: cannot write beside")


def test_a_disk_that_gets_full_is_one_line_and_the_rerun_works(place: Path, public: Path, disk: Path) -> None:
    said, told = without_room(place, public, disk)
    codes = [line for line in said if line in list("0123")]
    assert codes == ["2", "0", "1", "0"]
    assert "No space left on device" in said
    assert str(manifest(place / "old_out")) in said  # while it was full
    assert len(told) == 3
    assert "No space left on device" in told[1]
    assert told[2].endswith("continues after count, fit, finished by an earlier run")
    assert same(disk / "out", place / "out")
    assert same(disk / "model", place / "model")
    assert sorted(path.name for path in disk.iterdir()) == ["model", "out"]
