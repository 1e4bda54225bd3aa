"""Ship Textmill's code: one zip with the compiled kernels, unpacked once per executor. `make zip` writes it.

numba finds a kernel's cache only in a plain folder, so workers import from an unpacked tree, never from the zip.
Pickled by value into workers, which cannot import it: it imports the standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("jobs", "udfs", "models")
SHIPPED = (".py", ".npz", ".nbi", ".nbc")
ROOT = Path(__file__).resolve().parents[1]


def source_files(root: Path) -> list[Path]:
    """The files to ship, compiled kernels included, in a fixed order."""
    return sorted(f for package in PACKAGES for f in (root / package).rglob("*") if f.suffix in SHIPPED)


def digest(root: Path) -> str:
    """A hash of the source that the zip holds and of what decides whether its compiled kernels fit."""
    state = hashlib.sha256(sys.version.encode())
    for file in source_files(root):
        if not file.suffix.startswith(".nb"):
            state.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return state.hexdigest()[:32]


def write_zip(target: Path, root: Path = ROOT) -> Path:
    """Write the zip of the code below `root`, its kernels compiled, unless `target` holds just that already."""
    key = digest(root)
    if target.is_file():
        with zipfile.ZipFile(target) as archive:
            if archive.comment.decode() == key:
                return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "textmill"
        for file in source_files(root):
            copy = tree / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        # A process of its own, out of Ctrl-C's reach, compiles what is missing, in the copy: the user's tree may be
        # read-only.
        command = [sys.executable, "-m", "jobs.warm"]
        subprocess.run(command, cwd=tree, check=True, stdout=2, start_new_session=True)  # sys.stderr may be no file
        part = target.with_name(f".{target.name}.{os.getpid()}")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.comment = key.encode()
            for file in source_files(tree):
                archive.write(file, file.relative_to(tree))
        os.replace(part, target)
    return target


def private_folder() -> Path | None:
    """A folder in the temporary directory that only this user can enter (mode 0700), or None if there can't be one."""
    folder = Path(tempfile.gettempdir()) / f"textmill-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    safe = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return folder if safe and os.access(folder, os.W_OK) else None


def unpack(archive: Path, parent: Path | None) -> Path:
    """The folder below `parent` with the zip's files, unpacked by whoever is first; the zip itself without a parent."""
    if parent is None:
        return archive
    with zipfile.ZipFile(archive) as file:
        target = parent / f"textmill-{file.comment.decode() or 'code'}"
        if target.is_dir():
            return target
        scratch = Path(tempfile.mkdtemp(prefix=".textmill-", dir=parent))  # mode 0700
        file.extractall(scratch)
    try:
        scratch.rename(target)
    except OSError:  # another process was first
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def use(archive: str) -> None:
    """Put the code in `archive`, a zip that Spark brought to this executor, first on sys.path, unpacked if possible."""
    folder = Path(archive).parent
    code = str(unpack(Path(archive), folder if os.access(folder, os.W_OK) else private_folder()))
    if code not in sys.path:
        sys.path.insert(0, code)


if __name__ == "__main__":
    print(write_zip(Path(sys.argv[1] if len(sys.argv) > 1 else "build/textmill.zip").resolve()))
