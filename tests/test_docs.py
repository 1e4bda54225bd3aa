"""What the documentation shows is run: commands, Python sessions, numbers, options, links and trees.

Conventions in README.md and docs/*.md, by what follows a fence: every ```pycon is a doctest, and the blocks of a page
share one session; ```bash test is run as it stands; ```text demo is what `make demo` prints; ```text tree names paths;
```bash job is run with its jobs in the tests' session, and the first block prints ```text job; ```bash pipe prints
```text pipe; each ```sql spark gives the ```text spark after it; ```sql hive is run by tests/cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from jobs import merge_models, options, stream_counts, thrift_server, train
from jobs import query as query_job
from jobs.options import FITTING
from jobs.session import exit_code
from udfs.functions import FUNCTIONS
from udfs.spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "tests/data/LICENCES.md")
)
SHOWING = [page for page in PAGES if page == "README.md" or page.startswith("docs/")]
CODE = ("jobs", "models", "udfs")
JOBS = {  # and where their options are
    "docs/featurize.md": options.parser,
    "docs/models.md": merge_models.parser,
    "docs/mapreduce.md": stream_counts.own_options,
    "docs/functions.md": thrift_server.parser,
    "docs/sql.md": query_job.parser,
    "docs/train.md": train.parser,
}
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_SPARK_SUBMIT = {"--py-files", "--master", "--archives", "--conf", "--driver-memory", "--executor-memory"}
OF_SPARK_SUBMIT |= {"--executor-cores", "--driver-java-options", "--deploy-mode", "--queue"}
OF_SPARK_SUBMIT |= {"--principal", "--keytab", "--properties-file", "--num-executors"}
OF_OTHERS = {*OF_SPARK_SUBMIT, "--help", "--additional-suffix", "--wait"}  # of other commands


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, kind: str) -> list[str]:
    """The contents of a page's fenced blocks of one kind."""
    return [body for info, body in FENCE.findall(read(page)) if info.strip() == kind]


def heading_anchors(text: str) -> set[str]:
    """The anchors that a page's headings get on code hosting sites."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the project's root to a command, and in which its output harms nothing."""
    folder = tmp_path_factory.mktemp("docs")
    for name in (*CODE, "sql", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.fixture(scope="module")
def shown(place: Path) -> str:
    """The output of the README's commands, run one after another: one spark-submit in all."""
    commands = "".join(blocks("README.md", "bash test"))
    assert commands.count("spark-submit") == 1
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=place, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def piped(place: Path) -> str:
    """The output of the commands that need no Spark."""
    (command,) = blocks("docs/mapreduce.md", "bash pipe")
    done = subprocess.run(["bash", "-euc", command], cwd=place, capture_output=True, check=True, text=True, timeout=300)
    return done.stdout


@pytest.fixture(scope="module")
def classified(spark: SparkSession, place: Path) -> str:
    """The output of the jobs of docs/splits.md and docs/train.md, one after another."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for page in ("docs/splits.md", "docs/train.md"):
            for command in "".join(blocks(page, "bash job")).replace("\\\n", "").splitlines():
                run_here(command, place)
    return said.getvalue()


def test_a_pipe_prints_what_the_page_shows(piped: str) -> None:
    (shown,) = blocks("docs/mapreduce.md", "text pipe")
    assert shown == piped
    counters = [line.split(",")[1:] for line in shown.splitlines()[:6]]
    assert all(f"\t{name}={number}\n" in read("docs/mapreduce.md") for name, number in counters)


@pytest.mark.spark
def test_the_readmes_command_prints_what_the_readme_shows(shown: str, place: Path) -> None:
    (demo,) = blocks("README.md", "text demo")
    assert demo.strip() in shown
    manifest = json.loads((place / "demo/features/_manifest.json").read_text())
    assert f"{manifest['documents']:,} of {manifest['records']:,} records" in demo
    assert f"{manifest['terms']:,} terms" in demo
    assert manifest["model_id"] in demo


def test_make_demo_runs_the_readmes_command() -> None:
    (command,) = blocks("README.md", "bash test")
    makefile = read("Makefile").replace("$(VENV)", ".venv")
    recipe = makefile[makefile.index("\ndemo:") :].split("\n\n")[0]
    words = command.replace("\\\n", " ").split()
    assert words[0] in recipe
    assert words[1:] == recipe[recipe.index("jobs/featurize.py") : recipe.index("$(ARGS)")].replace("\\\n", " ").split()


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in SHOWING if blocks(page, "pycon")])
def test_python_sessions(page: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    session = "\n".join(blocks(page, "pycon"))
    if "demo/counts" in session:
        request.getfixturevalue("piped")
    elif "demo/split" in session:
        request.getfixturevalue("classified")
    elif "demo/" in session:
        request.getfixturevalue("shown")
    monkeypatch.chdir(request.getfixturevalue("place"))
    monkeypatch.setitem(sys.modules, "pyspark", None)  # so that an import of it fails: none of this needs Spark
    test = doctest.DocTestParser().get_doctest(session, {}, page, page, 0)
    said: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert outcome.attempted > 0
    assert outcome.failed == 0, "".join(said)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_commands_of_models_print_what_the_page_shows(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = blocks("docs/models.md", "text job")
    first, second = (body.replace("\\\n", "").splitlines() for body in blocks("docs/models.md", "bash job"))
    for command in first:
        run_here(command, place)
    assert shown.strip() in capsys.readouterr().out.replace(f"{place}/", "")
    for command in second:
        run_here(command, place)
    manifests = [json.loads((place / f"demo/{name}/manifest.json").read_text()) for name in ("both", "model1")]
    assert manifests[0] == manifests[1]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_commands_of_sql_print_what_the_page_shows(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (commands,), (shown,) = blocks("docs/sql.md", "bash job"), blocks("docs/sql.md", "text job")
    for command in commands.replace("\\\n", "").splitlines():
        run_here(command, place)
    assert capsys.readouterr().out.endswith(shown)
    described = read("docs/sql.md").split("## The queries")[1].split("## On Hive")[0]
    assert set((ROOT / "sql/ORDER").read_text().split()) == {
        name
        for row in re.findall(r"^\| (`[a-z0-9_`, ]+`) \|", described, re.MULTILINE)
        for name in re.findall(r"\w+", row)
    }


@pytest.mark.spark
@pytest.mark.parametrize("page", ["docs/splits.md", "docs/train.md"])
def test_the_commands_of_splits_and_train_print_what_the_pages_show(page: str, classified: str) -> None:
    (shown,) = blocks(page, "text job")
    assert shown in classified


@pytest.mark.spark
def test_the_functions_give_what_the_page_shows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    session = spark.newSession()
    register(session)
    queries, shown = blocks("docs/functions.md", "sql spark"), blocks("docs/functions.md", "text spark")
    for query in queries:
        session.sql(query).show(truncate=False)
    assert capsys.readouterr().out.replace("\n\n", "\n") == "".join(shown)
    for name in FUNCTIONS:
        assert any(f"{name}(" in query for query in queries)


def test_each_function_is_described_as_it_describes_itself() -> None:
    rows = re.findall(r"^\| (`\w+\(.* -> .*`) \| (.*) \|$", read("docs/functions.md"), re.MULTILINE)
    assert rows == [(f"`{function.signature}`", function.description) for function in FUNCTIONS.values()]


def run_here(command: str, place: Path) -> None:
    """Run a command line, a job in this process and its session."""
    words = shlex.split(command)
    if words[0] != ".venv/bin/spark-submit":
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=place, check=True)
        return
    job = importlib.import_module(words[1].removesuffix(".py").replace("/", "."))
    local = re.compile(r"^((?:\w+=)?)((?:demo|sql|tests)(?:/.*)?)$")
    assert exit_code(job.main, [local.sub(rf"\1{place}/\2", word) for word in words[2:]]) == 0


def test_the_chinese_examples_numbers(chinese: pa.Table) -> None:
    from models.features import FeatureConfig, FeatureModel
    from udfs.text import stop_words

    config = FeatureConfig(ngrams=(1, 2), stop_words=tuple(stop_words("zh")), min_df=2)
    model = FeatureModel.fit(chinese["text"], config)
    rows = model.transform(chinese["text"])
    page = read("docs/featurize.md")
    assert f"tokens      {model.n_tokens:,}, {model.n_tokens / model.n:,.1f} a document\n" in page
    assert f"vocabulary  {len(model.terms):,} terms, {rows.nnz / model.n:,.1f} of them in a document\n" in page
    top = model.top_terms(rows, chinese["label"].to_pylist())
    width = max(map(len, top))
    for label, terms in top.items():
        assert f"  {label:{width}}  {', '.join(terms)}\n" in page
    assert f"(id {model.id})" in page


def option_rows(page: str) -> dict[str, str]:
    """The rows of a page's option tables by the option's name."""
    options = read(page).split("\n## Options\n")[1].split("\n## ")[0]
    return {found[1]: found[0] for found in re.finditer(r"^\| `(--[a-z0-9-]+).*$", options, re.MULTILINE)}


def actions(page: str) -> dict[str, argparse.Action]:
    """The options of a page's job by name, --help aside."""
    return {
        action.option_strings[-1]: action
        for action in JOBS[page]()._actions
        if {*action.option_strings} - {"-h", "--help"}
    }


@pytest.mark.parametrize("page", JOBS)
def test_each_option_has_a_row_and_each_row_is_an_option(page: str) -> None:
    assert sorted(option_rows(page)) == sorted(actions(page))


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in JOBS for name in sorted(actions(page))])
def test_a_row_names_every_choice_of_its_option(page: str, name: str) -> None:
    action, row = actions(page)[name], option_rows(page)[name]
    assert all(f"`{choice}`" in row for choice in action.choices or ())
    assert ("`" + name + (" " if action.nargs != 0 else "`")) in row


def test_fitting_options_have_a_table_of_their_own() -> None:
    fitting = read("docs/featurize.md").split("### Features\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `(--[a-z0-9-]+)", fitting, re.MULTILINE)
    assert sorted(found) == sorted("--" + name.replace("_", "-") for name in FITTING)


@pytest.mark.parametrize("page", SHOWING)
def test_options_that_are_mentioned_exist(page: str) -> None:
    built_yet = read(page).split("From the design and not built yet")[0]
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", built_yet))
    assert mentioned - OF_OTHERS <= {name for job in JOBS for name in actions(job)}


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", read(page))):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (ROOT / page).parent / path if path else ROOT / page
        assert linked.exists(), f"{page} links to {target}"
        if anchor:
            assert anchor in heading_anchors(linked.read_text(encoding="utf-8")), f"{page} links to {target}"


def tree(page: str) -> list[str]:
    """The paths that a page's tree names: a name in the first column, two spaces deeper below a folder."""
    paths: list[str] = []
    (body,) = blocks(page, "text tree")
    folder = ""
    for line in body.splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            folder = name if name.endswith("/") else ""
            paths.append(name)
        else:
            paths.append(folder + name)
    return paths


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_trees_name_what_exists(page: str) -> None:
    for path in tree(page):
        assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file(), path


def test_the_tree_of_the_architecture_is_whole() -> None:
    code = {path.relative_to(ROOT).as_posix() for folder in CODE for path in (ROOT / folder).glob("*.py")}
    named = set(tree("docs/architecture.md"))
    assert {path for path in code if not path.endswith("__init__.py")} == {path for path in named if path in code}


def test_make_targets_that_are_mentioned_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", read("Makefile"), re.MULTILINE))
    for page in PAGES:
        text = read(page)
        code = [*re.findall(r"`([^`\n]+)`", FENCE.sub("", text)), *(body for _, body in FENCE.findall(text))]
        mentioned = {target for part in code for target in re.findall(r"^make ([a-z][a-z0-9-]*)", part, re.MULTILINE)}
        assert mentioned <= targets, page
