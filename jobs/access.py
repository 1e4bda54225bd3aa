"""Owner, group, mode and ACL: what replaces an output gets those of the old one, before anyone can see it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jobs.session import hadoop, log, reason
from udfs.records import plain_path

if TYPE_CHECKING:
    from jobs.outputs import FileSystem

PATTERN = "_manifest.json"  # of an output's files


def keep_access(fs: FileSystem, old: str, new: str, option: str) -> None:
    """Give `new`, and all below it, the owner, group, mode and ACL of `old`: to files those of a file in it.

    As far as this user may: what can't be set is a warning.
    """
    refused: dict[str, str] = {}

    def attempt(what: str, act: Callable[[], object]) -> None:
        if what not in refused:
            try:
                act()
            except Exception as error:
                refused[what] = reason(error)

    like = _like_local if plain_path(new) != new else _like_hadoop
    attempt("access", lambda: like(fs, old, new, attempt))  # the old one's own may not be readable
    if refused:
        told = "; ".join(f"{what} ({why})" for what, why in sorted(refused.items()))
        log.warning("%s: of %s, which is replaced, could not be kept: %s", option, plain_path(old), told)


def _pattern(fs: FileSystem, old: str) -> str | None:
    """The file whose access new files get: the manifest, else any, or `old` itself; None if there is none."""
    if not fs.is_dir(old):
        return old
    manifest = f"{old}/{PATTERN}"
    return manifest if fs.exists(manifest) else next((name for name, *_ in fs.files(old)), None)


def _like_local(fs: FileSystem, old: str, new: str, attempt: Callable[..., None]) -> None:
    of_folders = os.stat(plain_path(old))
    of_files = os.stat(plain_path(pattern)) if (pattern := _pattern(fs, old)) else None
    new = plain_path(new)
    below = [os.path.join(place, name) for place, folders, files in os.walk(new) for name in (*folders, *files)]
    for path in [*below, new]:
        now = os.stat(path)
        was = of_folders if stat.S_ISDIR(now.st_mode) else of_files
        if was is None:
            continue
        if was.st_gid != now.st_gid:
            attempt("group", lambda path=path, was=was: os.chown(path, -1, was.st_gid))
        if was.st_uid != now.st_uid:
            attempt("owner", lambda path=path, was=was: os.chown(path, was.st_uid, -1))
        attempt("mode", lambda path=path, was=was: os.chmod(path, stat.S_IMODE(was.st_mode)))


def _like_hadoop(fs: FileSystem, old: str, new: str, attempt: Callable[..., None]) -> None:
    of_folders = _Access(fs, old)
    of_files = _Access(fs, pattern) if (pattern := _pattern(fs, old)) else None
    for status in [*_below(fs, new), fs.status(new)]:
        access = of_folders if status.isDirectory() else of_files
        if access:
            access.give(status, attempt)


def _below(fs: FileSystem, path: str) -> list[Any]:
    """The status of all below a path, the deepest first."""
    found = []
    for status in fs.java.listStatus(fs.path(path)) if fs.is_dir(path) else []:
        if status.isDirectory():
            found += _below(fs, status.getPath().toString())
        found.append(status)
    return found


class _Access:
    """Who may do what with a file or folder of a Hadoop file system."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs.java
        status = fs.status(path)
        self.owner, self.group, self.permission = status.getOwner(), status.getGroup(), status.getPermission()
        self.acl = None
        if status.hasAcl():
            named = self._fs.getAclStatus(status.getPath()).getEntries()
            jvm, _ = hadoop()
            self.acl = jvm.org.apache.hadoop.fs.permission.AclUtil.getAclFromPermAndEntries(self.permission, named)

    def give(self, status: Any, attempt: Callable[..., None]) -> None:
        """Set what another file or folder, of this status, has otherwise."""
        path = status.getPath()
        if self.acl is not None:
            attempt("ACL", lambda: self._fs.setAcl(path, self.acl))
        elif status.hasAcl():
            attempt("ACL", lambda: self._fs.removeAcl(path))
        if self.acl is not None or status.hasAcl() or status.getPermission().toShort() != self.permission.toShort():
            attempt("mode", lambda: self._fs.setPermission(path, self.permission))
        if status.getGroup() != self.group:
            attempt("group", lambda: self._fs.setOwner(path, None, self.group))
        if status.getOwner() != self.owner:
            attempt("owner", lambda: self._fs.setOwner(path, self.owner, None))
