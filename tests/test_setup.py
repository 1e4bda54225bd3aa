"""The set-up: the Makefile, the locks, the Java wrapper, and that what is shipped parses as Python 3.10."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from jobs import install

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ["requirements.lock", "requirements-dev.lock", "requirements-java.lock"]


def pins(lock: str) -> dict[str, str]:
    """Name to version of every package a lock pins."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / lock).read_text(encoding="utf-8"), re.M))


def required(requirements: str) -> list[tuple[str, str]]:
    """(name, specifier) of each line of a requirements*.in, the specifier often empty."""
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    kept = [line.split("#")[0].strip() for line in lines if not line.startswith(("#", "-"))]
    return [(re.split(r"[=<>!~]", line)[0], line[len(re.split(r"[=<>!~]", line)[0]) :]) for line in kept if line]


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z0-9-]+):.*?(## \S.*)?$", text, re.M)
    phony = re.findall(r"^\.PHONY: (.+)$", text, re.M)
    assert {name for name, _ in targets} == {name for line in phony for name in line.split()}
    assert [name for name, line in targets if not line] == []


def test_make_alone_lists_the_targets() -> None:
    said = subprocess.run(["make", "-C", ROOT], capture_output=True, text=True, check=True, timeout=60).stdout
    for target in ("install", "demo", "test", "data", "bench-featurize", "zip", "format", "clean"):
        assert re.search(rf"^  make {target}\s+\w", said, re.M), target


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_hash_for_every_pin_and_names_no_index(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]
    assert blocks
    assert all("==" in block.splitlines()[0] for block in blocks)
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    options = {line.split()[0] for line in text.splitlines() if line.startswith("-")}
    assert options == set()
    assert not re.search(r"//|index-url|find-links|trusted-host|\s@\s", text)


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-java"])
def test_what_is_required_is_pinned(name: str) -> None:
    pinned = pins(f"{name}.lock")
    for package, specifier in required(f"{name}.in"):
        assert package in pinned, f"{package} of {name}.in is not in its lock: run make lock"
        if specifier.startswith("=="):
            assert pinned[package] == specifier[2:]


def test_the_locks_agree_and_hold_nothing_heavy() -> None:
    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: dev[name] for name in runtime.keys() & dev.keys()} == {
        name: runtime[name] for name in runtime.keys() & dev.keys()
    }
    assert not {"torch", "xgboost", "tensorflow"} & (runtime.keys() | dev.keys())


def shipped() -> list[Path]:
    return sorted(path for folder in ("jobs", "models", "udfs") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_shipped_parses_as_python_310(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), filename=str(path), feature_version=(3, 10))


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
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert install.find_java() == (None, "", [])
