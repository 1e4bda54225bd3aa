"""Term, df and cf through map, sort and reduce: the counts that a fit keeps, for any cut of the lines into splits."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import featurize, session, stream_counts
from jobs.options import feature_config
from jobs.stream_counts import escape, layout_of, map_counts, parser, read_lines, reduce_counts, write
from models.counts import TermCounts
from models.features import FeatureModel

ROOT = Path(__file__).resolve().parents[2]
Counts = dict[str, tuple[int, int]]  # term to df, cf
few = settings(deadline=None, max_examples=100)
# Control characters, what is escaped, a term that begins with a byte order mark, and others.
texts = st.text(st.sampled_from("ab %\\\t\n\r\0\x01\x1f\x7f\x85\ufeff\u2028中é+5"), max_size=12)


def mapped(lines: bytes, options: str = "--format jsonl") -> bytes:
    """What map writes for a split."""
    given, target = parser().parse_args(["map", *shlex.split(options)]), io.BytesIO()
    map_counts(io.BytesIO(lines), target, feature_config(given), layout_of(given))
    return target.getvalue()


def reduced(*parts: bytes) -> bytes:
    """What reduce writes for what several map tasks wrote, sorted as lines."""
    target = io.BytesIO()
    reduce_counts(io.BytesIO(b"".join(sorted(line for part in parts for line in part.splitlines(True)))), target)
    return target.getvalue()


def table(output: bytes) -> Counts:
    """The table in reduce's output, each term once and in order."""
    rows = [line.split("\t") for line in output.decode().split("\n")[:-1]]
    assert [row[0] for row in rows] == sorted({row[0] for row in rows}, key=str.encode)
    return {unquote(term): (int(df), int(cf)) for term, df, cf in rows}


def kept(text: pa.Array, options: str = "--format jsonl") -> Counts:
    """The counts of all terms that a fit on the text keeps."""
    config = feature_config(parser().parse_args(["map", *shlex.split(options)]))
    model = FeatureModel.fit(text, config, keep_counts=True)
    assert model.counts
    return {
        term: (df, cf)
        for shard in model.counts
        for term, df, cf in zip(shard.terms.to_pylist(), shard.df.tolist(), shard.cf.tolist(), strict=True)
    }


def json_lines(rows: list[dict[str, str]]) -> list[bytes]:
    return [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]


@pytest.mark.parametrize(
    ("corpus", "options"),
    [
        ("emails", ""),
        ("emails", "--ngrams 1,3 --stop-words en --ngram-span document"),
        ("emails", "--tokenizer whitespace --no-lowercase --ngrams 2"),
        ("emails", r"--tokenizer regex --pattern '[^ ]+' --ngrams 1,2"),
        ("emails", "--tokenizer char --ngrams 1,3"),
        ("emails", "--preset sklearn"),
        ("emails", "--keep-urls --emoji --unicode NFKC --strip-accents"),
        ("chinese", "--ngrams 1,2 --stop-words zh"),
        ("chinese", "--tokenizer char_wb --ngrams 2,3"),
    ],
)
def test_counts_are_those_that_a_fit_keeps(corpus: str, options: str, request: pytest.FixtureRequest) -> None:
    rows = request.getfixturevalue(corpus)
    rows = rows if "regex" not in options else rows.slice(0, 500)
    lines, options = json_lines(rows.to_pylist()), f"--format jsonl {options}"
    splits = [lines[:1], lines[1:700], [], lines[700:]]
    found = table(reduced(*(mapped(b"".join(split), options) for split in splits)))
    assert found == kept(rows["text"], options)


@few
@given(st.lists(texts, max_size=8), st.lists(st.integers(0, 8), max_size=3), st.sampled_from(["char", "whitespace"]))
def test_any_texts_in_any_splits_give_the_same_table(documents: list[str], cuts: list[int], tokenizer: str) -> None:
    documents = [*documents, "x"]  # a fit asks for a term
    lines = json_lines([{"text": text} for text in documents])
    options = f"--format jsonl --tokenizer {tokenizer} --ngrams 1,2"
    ends = [0, *sorted(cuts), len(lines)]
    parts = [mapped(b"".join(lines[a:b]), options) for a, b in zip(ends, ends[1:], strict=False)]
    assert table(reduced(*parts)) == kept(pa.array(documents), options)
    assert reduced(reduced(*parts[:2]), *parts[2:]) == reduced(*parts)  # as a combiner


@few
@given(st.lists(texts, unique=True))
def test_escaped_terms_come_back_and_sort_like_their_lines(terms: list[str]) -> None:
    escaped = escape(pa.array(terms, pa.large_string())).to_pylist()
    assert [unquote(term) for term in escaped] == terms
    assert not any(re.search(r"[\0-\x1f\\]", term) for term in escaped)
    lines = sorted(f"{term}\t1\t1\n".encode() for term in escaped)
    assert lines == [f"{term}\t1\t1\n".encode() for term in sorted(escaped, key=str.encode)]
    found = read_lines(b"".join(lines))
    assert sorted(found.terms.to_pylist()) == sorted(escaped)
    again = io.BytesIO()
    write(TermCounts(found.terms, found.df, found.cf), again)
    assert again.getvalue() == b"".join(lines)


def test_little_memory_and_small_pieces_change_nothing(emails: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(json_lines(emails.slice(0, 200).to_pylist()))
    once = mapped(lines)
    monkeypatch.setattr(stream_counts, "HELD_BYTES", 1000)
    monkeypatch.setattr(stream_counts, "BLOCK_BYTES", 20_000)
    often = mapped(lines)
    assert often.count(b"\n") > 2 * once.count(b"\n")
    assert reduced(often) == reduced(once)


def test_what_is_no_document_is_told_and_counted_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        b'{"text": "a b", "id": 1}',
        b"",
        b'{"text": 7, "id": 2}',
        b'{"text": "a"',
        b"{'a', 1}",
        b'{"text": "c\xe9"}',
    ]
    lines += [b'{"text": "aaaaaaaaaaaaaaaaa"}', b'{"text": "' + b"b" * 70_000 + b'"}', b'{"id": 3}']
    found = table(reduced(mapped(b"\n".join(lines), "--format jsonl --max-document-bytes 16")))
    assert found == {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
    said = capsys.readouterr().err.splitlines()
    counters = dict(line.split(":", 2)[2].rsplit(",", 1) for line in said if line.startswith("reporter:counter:"))
    assert counters == {
        "Textmill,records": "9",
        "Textmill,documents": "3",
        "Textmill,rejects": "5",
        "Textmill,blanks": "1",
        "Textmill,repaired": "1",
        "Textmill,tokens": "3",
        "Textmill reasons,field text is bigint; expected string": "1",
        "Textmill reasons,not JSON: Expecting N delimiter at character N": "1",
        "Textmill reasons,not JSON: Expecting property name enclosed in double quotes at character N": "1",
        "Textmill reasons,invalid UTF-N; replaced by U+FFFD": "1",
        "Textmill reasons,N bytes of text; above the limit of N": "1",
        "Textmill reasons,a line of N bytes; above N": "1",
    }
    assert "reject: - 2 field text is bigint, expected string" in said
    assert "repaired: - 5 invalid UTF-8, replaced by U+FFFD" in said


def test_there_are_never_many_counters_nor_many_lines(capsys: pytest.CaptureFixture[str]) -> None:
    names = [chr(0x4E00 + number) for number in range(99)]
    lines = [json.dumps({"text": "a", name: "x"}).encode() for name in names] + [b"{"] * 2000
    mapped(b"\n".join(lines), f"--format jsonl --fields {','.join(f'{name}=bigint' for name in names)}")
    said = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("reporter:counter:") for line in said) <= stream_counts.REASONS + 10
    assert sum(line.startswith("reject:") for line in said) == stream_counts.TOLD


def pipe(lines: bytes, options: str) -> tuple[bytes, dict[str, int]]:
    """The output of map, sort and reduce as processes, and map's counters."""
    python = shlex.quote(sys.executable)
    command = f"{python} jobs/stream_counts.py map {options} | LC_ALL=C sort | {python} jobs/stream_counts.py reduce"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, input=lines, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    found = re.findall(r"^reporter:counter:Textmill,(\w+),(\d+)$", done.stderr.decode(), re.MULTILINE)
    return done.stdout, {name: int(number) for name, number in found}


@pytest.mark.parametrize(
    ("form", "options", "lines"),
    [
        (
            "jsonl",
            "--fields id=bigint,text=string,year=string --tokenizer whitespace --ngrams 1,2",
            [
                *(b'{"id": %d, "text": "to be 100%% \\t or\\\\not", "year": %d}' % (n, n) for n in range(40)),
                b'{"id": 1, "text": "the same again", "year": 7}\r',
                b'{"id": 1, "text": "the same again", "year": 7}',
                b" \t\r",
                b"",
                b'{"id": null, "text": "no id"}',
                b'{"text": "no id"}',
                b'{"id": "2", "text": "an id of another type"}',
                b'{"id": 3, "text": ["no text"]}',
                b'{"id": 3, "text": "no year", "year": "MMXX"}',
                b'{"id": 3, "text": "f\xe9e \\ud800", "year": null}',
                b'{"id": 3, "text": null}',
                b'{"id": 4}',
                b'{"id": 5, "text": "twice", "TEXT": "twice"}',
                b"no JSON at all",
                b"\xef\xbb\xbf" + b'{"id": 6, "text": "marked"}',
                b'{"id": 7, "text": "' + b"long " * 100 + b'"}',
                b'{"id": 7, "text": "' + b"longer " * 1000 + b'"}',
                b'{"id": 8, "text": "the last line has no line feed"}',
            ],
        ),
        (
            "text",
            "--tokenizer regex --pattern '[^ ]+'",
            [
                b"a\rb a\tb",
                b"",
                b"\r",
                b"c:\\d\r",
                b"caf\xe9",
                "中文 %".encode(),
                b"x " * 500,
                b"y " * 10_000,
                b"a\rb a\tb",
            ],
        ),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_pipe_of_processes_gives_the_table_and_the_numbers_of_featurize(
    form: str, options: str, lines: list[bytes], tmp_path: Path
) -> None:
    (tmp_path / f"in.{form}").write_bytes(b"\n".join(lines))
    shared = f"{options} --max-document-bytes 400"
    found, counters = pipe(b"\n".join(lines), f"--format {form} {shared}")
    job = ["--input", str(tmp_path / f"in.{form}"), "--output", str(tmp_path / "out"), "--model", str(tmp_path / "m")]
    job += ["--format", form, "--keep-counts", "--max-rejects", "100%"]
    assert session.exit_code(featurize.main, job + shlex.split(re.sub(r"--fields \S+", "", shared))) == 0
    rows = pq.read_table(tmp_path / "m/counts").to_pylist()
    assert table(found) == {row["term"]: (row["df"], row["cf"]) for row in rows}
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert counters == {name: manifest[name] for name in stream_counts.COUNTERS}
    assert counters["rejects"] > 0


def test_nothing_in_is_nothing_out() -> None:
    assert mapped(b"") == reduced() == reduced(b"") == b""
    assert table(reduced(mapped(b"\n\n", "--format text"))) == {}


def test_a_terms_lines_are_added_up_wherever_a_piece_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = ("", "a", "a b", "\ufeffé")
    lines = b"".join(b"%s\t%d\t%d\n" % (term.encode(), n, 2 * n) for term in terms for n in range(9))
    for size in (1, 5, 17, 1 << 20):
        monkeypatch.setattr(stream_counts, "BLOCK_BYTES", size)
        assert table(reduced(lines[:-1])) == dict.fromkeys(terms, (36, 72))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "required: map|reduce"),
        ("map", "required: --format"),
        ("map --format csv", "invalid choice: 'csv'"),
        ("map --format text --min-df 2", "unrecognized arguments: --min-df 2"),
        ("map --format text --text body", "--text is for --format jsonl"),
        ("map --format jsonl --fields id", "'id' is not a list such as id=bigint,text=string"),
        ("map --format jsonl --fields id=int", "'id=int' is not a list such as id=bigint,text=string"),
        ("map --format jsonl --fields text=bigint", "--fields text=bigint: the text must be a string"),
        ("map --format jsonl --id key", "--id key has no type: name it in --fields"),
        ("map --format jsonl --stop-words ''", "--stop-words is empty"),
        ("map --format jsonl --user-dict x", "--user-dict is for --tokenizer jieba"),
        ("map --format jsonl --tokenizer word --preset sklearn", "--preset sklearn settles --tokenizer"),
        ("map --format jsonl --ngrams 3,1", "ngrams is (3, 1)"),
        ("reduce --tokenizer char", "unrecognized arguments: --tokenizer char"),
    ],
)
def test_a_mistake_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.exit_code(stream_counts.main, shlex.split(arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"b\t1\t1\na\t1\t1\n", "stdin is not sorted by bytes"),
        (b"a\t1\n", "stdin holds other lines than map writes"),
        (b"a\t1\tx\n", "stdin holds other lines than map writes"),
        (b"\n", "stdin holds other lines than map writes"),
    ],
)
def test_reduce_refuses_what_it_would_add_up_wrongly(lines: bytes, message: str) -> None:
    with pytest.raises(session.Mistake, match=message):
        reduce_counts(io.BytesIO(lines), io.BytesIO())


def test_a_pattern_that_takes_too_long_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.workers.PATTERN_SECONDS", 0.05)
    with pytest.raises(session.Mistake, match=r"more than 0.05 s for each of 6 documents"):
        mapped(b"\n".join([b"a" * 40] * 9), "--format text --tokenizer regex --pattern '(?:a+)+b'")


def test_neither_step_needs_spark() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import jobs.stream_counts; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "py4j" not in done.stdout.split()
