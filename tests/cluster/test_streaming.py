"""The table of terms by a MapReduce job on YARN is that of a fit, row by row, and Hive reads it."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from pyhive import hive

from jobs.options import feature_config
from jobs.stream_counts import parser
from models.features import FeatureModel
from tests.cluster.processes import ROOT, Cluster
from tests.conftest import DATA, corpus

pytestmark = pytest.mark.cluster
ENVIRONMENT = ROOT / "build/environment.tgz"
Rows = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip of `make zip`."""
    target = tmp_path_factory.mktemp("code") / "textmill.zip"
    subprocess.run([sys.executable, "-m", "jobs.package", target], check=True, cwd=ROOT)
    return target


def run(hadoop: Cluster, archives: str, python: str, options: str, place: str) -> dict[str, int]:
    """Count `place`/in into `place`/out with two mappers and two reducers; Textmill's counters."""
    script = f"{python} textmill/jobs/stream_counts.py"
    settings = {
        "mapreduce.job.maps": "2",
        "mapreduce.job.reduces": "2",
        "mapreduce.map.memory.mb": "1024",
        "mapreduce.map.maxattempts": "1",
        "mapreduce.reduce.maxattempts": "1",
        "mapreduce.map.speculative": "false",
        "mapreduce.reduce.speculative": "false",
        "textinputformat.record.delimiter": "\n",
    }
    arguments = [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
    arguments += ["-archives", archives, "-mapper", f"{script} map {options}", "-reducer", f"{script} reduce"]
    arguments += ["-input", f"{place}/in", "-output", f"{place}/out"]
    command = hadoop.java("client", "org.apache.hadoop.streaming.HadoopStreaming", *arguments)
    done = subprocess.run(
        command, env={**os.environ, **hadoop.client()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "Launched map tasks=2" in done.stdout
    assert "Launched reduce tasks=2" in done.stdout
    (found,) = re.findall(r"^\tTextmill\n((?:\t\t.*\n)+)", done.stdout, re.MULTILINE)
    return {name: int(number) for name, number in re.findall(r"\t\t(\w+)=(\d+)\n", found)}


def output(hadoop: Cluster, place: str, folder: Path) -> Rows:
    """The rows of both reducers, each term once."""
    hadoop.fs("-get", f"{place}/out", str(folder))
    parts = sorted(folder.glob("part-*"))
    assert len(parts) == 2
    assert all(part.stat().st_size for part in parts)
    rows = [line.split("\t") for part in parts for line in part.read_bytes().decode().split("\n")[:-1]]
    found = {unquote(term): (int(df), int(cf)) for term, df, cf in rows}
    assert len(found) == len(rows)
    return found


def kept(text: pa.Array, options: str) -> tuple[FeatureModel, Rows]:
    """A fit on the text, and the counts of all its terms."""
    model = FeatureModel.fit(text, feature_config(parser().parse_args(["map", *options.split()])), keep_counts=True)
    assert model.counts
    columns = ((shard.terms.to_pylist(), shard.df.tolist(), shard.cf.tolist()) for shard in model.counts)
    return model, {term: (df, cf) for shard in columns for term, df, cf in zip(*shard, strict=True)}


def test_e_mails_with_the_packed_environment(hadoop: Cluster, code: Path, tmp_path: Path) -> None:
    assert ENVIRONMENT.exists(), "no build/environment.tgz: make environment"
    options = "--format jsonl --ngrams 1,2 --stop-words en --fields id=string,text=string,label=string"
    lines = gzip.decompress((DATA / "emails.jsonl.gz").read_bytes())
    (tmp_path / "emails.jsonl").write_bytes(lines.replace(b"\n", b"\r\n"))
    hadoop.fs("-mkdir", "-p", "/streaming/emails/in")
    hadoop.fs("-put", str(tmp_path / "emails.jsonl"), "/streaming/emails/in")
    archives = f"{ENVIRONMENT}#env,{code}#textmill"
    counters = run(hadoop, archives, "env/bin/python", options, "/streaming/emails")
    model, expected = kept(corpus("emails.jsonl.gz")["text"], options)
    assert output(hadoop, "/streaming/emails", tmp_path / "out") == expected
    assert counters["documents"] == counters["records"] == model.n
    assert counters["tokens"] == model.n_tokens
    assert counters["rejects"] == counters["blanks"] == counters["repaired"] == 0


def test_chinese_pages_from_gz_with_tabs_in_terms_and_hive(hadoop: Cluster, code: Path, tmp_path: Path) -> None:
    options = "--format jsonl --tokenizer char --ngrams 1,2"
    text = corpus("libreoffice_help_zh.jsonl.gz")["text"]
    lines = gzip.decompress((DATA / "libreoffice_help_zh.jsonl.gz").read_bytes()).splitlines(True)
    mine = b'{"text":\r"50% + a\\tb \\\\ \\u0001"}\n'
    hadoop.fs("-mkdir", "-p", "/streaming/chinese/in")
    for number, part in enumerate((lines[:700], [*lines[700:], b"\n", b"{}\n", b"not JSON\n", mine])):
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(b"".join(part)))
        hadoop.fs("-put", str(tmp_path / f"{number}.jsonl.gz"), "/streaming/chinese/in")
    counters = run(hadoop, f"{code}#textmill", sys.executable, options, "/streaming/chinese")
    model, expected = kept(pa.array([*text.to_pylist(), "", "50% + a\tb \\ \x01"]), options)
    assert {"a\t", "\t", "\x01", "%", "\\"} <= expected.keys()
    assert output(hadoop, "/streaming/chinese", tmp_path / "out") == expected
    assert (counters["documents"], counters["rejects"], counters["blanks"]) == (model.n, 1, 1)
    with hive.connect("localhost", hadoop.ports["hiveserver2"], auth="NOSASL") as connection:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE EXTERNAL TABLE counts (term string, df bigint, cf bigint) ROW FORMAT DELIMITED "
            "FIELDS TERMINATED BY '\\t' LOCATION '/streaming/chinese/out'"
        )
        cursor.execute(
            "SELECT reflect('java.net.URLDecoder', 'decode', replace(term, '+', '%2B'), 'UTF-8'), df, cf FROM counts"
        )
        assert {term: (df, cf) for term, df, cf in cursor.fetchall()} == expected
