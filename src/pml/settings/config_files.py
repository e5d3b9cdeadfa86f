"""The two configuration files of one workspace: read when they change, edited without losing anything.

A file that cannot be parsed is never written. Every edit holds a lock between processes from reading to
replacing, so concurrent edits all survive, and a crash leaves the old file whole. Whether a workspace is
trusted is not known here.
"""

import errno
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from pml.core.config.file import ConfigFile, FileKind, parse_config
from pml.core.config.jsonedit import (
    append_item,
    remove_item,
    remove_member,
    replace_item,
    set_member,
    set_value,
    without_members,
)
from pml.core.config.jsontext import parse
from pml.core.errors import Changed, Conflict, Forbidden, Invalid, PmlError
from pml.core.ports.world import Loaded
from pml.core.rules.entry_reference import bare, is_named, is_to_switch
from pml.core.rules.path_lookups import Look
from pml.core.rules.ruleset import DEFAULT_ASK, Effect, parse_entry
from pml.core.servers.expansion import Environment
from pml.core.servers.spec import ServerSpec
from pml.core.text import quote
from pml.core.values import Json, check, is_same
from pml.host.disk import unavailable
from pml.host.locks import LOCK_TIMEOUT_S, locked
from pml.host.replace import replace_file
from pml.settings.programs import programs_in
from pml.settings.secrets import SecretNames
from pml.settings.watched_file import (
    MAX_BYTES,
    Signature,
    WatchedFile,
    decode,
    digest_of,
    read_bytes,
    signature_of,
)

_IN_A_ROW: Final = 8  # look-ups of a long look, taken in a thread, before it rests
_REST_S: Final = 0.0001
_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class RealPaths:
    """Follows links on disk; keeps the part of a path that does not exist."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._looks = 0

    @property
    def home(self) -> str:
        return self._home

    def real(self, path: str) -> str:
        """Return where the absolute `path` leads. Raises: ValueError for what no system can open, OSError."""
        _check(path)
        real = os.path.realpath(path, strict=False)
        # POSIX lets `//etc` mean something else than `/etc`; on the systems PML runs on it does not.
        return "/" + real.lstrip("/") if real.startswith("//") else real

    def link(self, path: str) -> str | None:
        """Return the target of the link at `path`, None if something else is there, or it may not be read.

        Raises: FileNotFoundError; ValueError for what no system can open.
        """
        _check(path)
        try:
            return os.readlink(path)
        except OSError as exc:
            if exc.errno in _NOTHING_THERE:
                raise FileNotFoundError(exc.errno, exc.strerror, path) from exc
            return None

    def look(self, path: str) -> Look:
        """Return what the link at `path` says, which file it is, or None if there is none to be seen."""
        self._looks += 1
        if self._looks % _IN_A_ROW == 0 and threading.current_thread() is not threading.main_thread():
            # Each look-up lets go of the interpreter and has it back before the loop's thread has woken up,
            # which then never asks for its turn: without a rest one long look holds up everybody else.
            time.sleep(_REST_S)
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                return os.readlink(path)
        except (OSError, ValueError):
            return None
        return status.st_dev, status.st_ino

    def is_writable(self, folder: str) -> bool:
        """Tell whether this user can put other things into the folder."""
        return os.access(folder, os.W_OK)

    def is_folder(self, path: str) -> bool:
        return "\0" not in path and os.path.isdir(path)


def _check(path: str) -> None:
    if "\0" in path or not os.path.isabs(path):
        raise ValueError("expected an absolute path without NUL")


WORKSPACE_FILE: Final = ".pml.json"
USER_FILE: Final = "config.json"

_NEW_TEXT: Final = {
    FileKind.USER: json.dumps({"version": "0.1.0"}, indent=2) + "\n",
    FileKind.WORKSPACE: json.dumps(
        {"version": "0.1.0", "permissions": {"allow": [], "deny": [], "ask": ["*"]}}, indent=2
    )
    + "\n",
}
_NEW_MODE: Final = {FileKind.USER: 0o600, FileKind.WORKSPACE: 0o644}

BeforeReplace: TypeAlias = Callable[[str | None, str, str], None]
"""Called with the digests of the old content (None: no file yet) and the new, and the new, before it is."""


class WorkspaceFiles:
    """The user's file in `pml_home` and the workspace's; relative paths in either begin at the workspace.

    A user's rule such as `{"under": "."}` so means the workspace at hand, not PML's own folder.
    """

    def __init__(
        self,
        *,
        pml_home: Path,
        workspace: Path,
        user_home: Path,
        environ: Mapping[str, str],
        now_ns: Callable[[], int] = time.time_ns,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        self._pml_home = pml_home
        self._workspace = workspace
        self._paths = RealPaths(str(user_home))
        self._environ = environ
        self._lock_timeout_s = lock_timeout_s
        self._watched = {
            kind: WatchedFile(
                self.path_of(kind), lambda text, kind=kind: self._parse(kind, text), now_ns=now_ns
            )
            for kind in FileKind
        }
        self._secrets = SecretNames(pml_home)
        self._seen_secrets: Signature | None = None
        self._loaded: Loaded | None = None

    @property
    def paths(self) -> RealPaths:
        """The file system as rules see it."""
        return self._paths

    def programs(self, spec: ServerSpec) -> Mapping[str, str]:
        """Return the hash of each program of the server in the workspace, and what else is pinned."""
        return programs_in(str(self._workspace), spec.target)

    def path_of(self, which: FileKind) -> Path:
        """Return where the file is, or would be."""
        return self._pml_home / USER_FILE if which is FileKind.USER else self._workspace / WORKSPACE_FILE

    def read(self) -> Loaded:
        """Return both files as they are now; the same object as long as neither changes."""
        self._look_at_secrets()
        user, workspace = self._watched[FileKind.USER].read(), self._watched[FileKind.WORKSPACE].read()
        if self._loaded is None or self._loaded.user is not user or self._loaded.workspace is not workspace:
            self._loaded = Loaded(user=user, workspace=workspace)
        return self._loaded

    def _look_at_secrets(self) -> None:
        """Have both files parsed anew if the names of the secrets may have changed: entries may use them."""
        try:
            now = signature_of(os.stat(self._secrets.path))
        except OSError:
            now = None
        if now != self._seen_secrets:
            self._seen_secrets = now
            for watched in self._watched.values():
                watched.forget()

    def _environment(self) -> Environment:
        try:
            stored = self._secrets.names()
        except PmlError:  # `pml doctor` tells; no secret is there then
            stored = {}
        return Environment(self._environ, stored=stored)

    def edit(
        self, which: FileKind, change: Callable[[str], str], *, before_replace: BeforeReplace | None = None
    ) -> None:
        """Replace the text of a file by what `change` makes of it; a missing file is created first.

        Raises, and then nothing is written: ConfigInvalid if the file, or what `change` made of it, cannot be
        used; Forbidden for a link in a workspace; Changed if another program wrote the file; Unavailable.
        """
        try:
            self._pml_home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise unavailable(f"cannot create `{self._pml_home}`", exc) from exc
        path = self._writable(which)
        with locked(self._lock_of(path), timeout_s=self._lock_timeout_s):
            found = read_bytes(path)
            old = found[0] if found else None
            text = _NEW_TEXT[which] if old is None else decode(old, path=path)
            self._parse(which, text)
            changed = change(text)
            self._parse(which, changed)
            new = changed.encode()
            if len(new) > MAX_BYTES:
                raise Invalid(f"`{path}` would be larger than PML reads; nothing was written")
            if new == old:
                return
            if before_replace is not None:
                before_replace(None if old is None else digest_of(old), digest_of(new), changed)
            mode = stat.S_IMODE(found[1].st_mode) & 0o777 if found else _NEW_MODE[which]
            self._replace(path, old, new, mode)

    def create(self, which: FileKind, *, before_replace: BeforeReplace | None = None) -> bool:
        """Create the file with the defaults; False when there is one. Raises: as `edit`."""
        created = False

        def note(old: str | None, new: str, text: str) -> None:
            nonlocal created
            created = True
            if before_replace is not None:
                before_replace(old, new, text)

        self.edit(which, lambda text: text, before_replace=note)
        return created

    def add_rule(
        self, which: FileKind, effect: Effect, entry: Json, *, before_replace: BeforeReplace | None = None
    ) -> bool:
        """Append a rule, or return False if an equal one is there. Raises: Invalid, and what `edit` does."""
        check(entry, what="the rule")
        parse_entry(effect, entry, source=None, base_dir=str(self._workspace), paths=self._paths)
        path = str(self.path_of(which))
        added = False

        def change(text: str) -> str:
            nonlocal added
            if any(is_same(found, entry) for _, found in _entries(text, effect, path)):
                return text
            added = True
            return append_item(text, ("permissions", effect), entry, path=path)

        self.edit(which, change, before_replace=before_replace)
        return added

    def set_user_value(self, pointer: Sequence[str], value: Json) -> None:
        """Set one value of the user's file. Raises: as `edit`."""
        path = str(self.path_of(FileKind.USER))
        self.edit(FileKind.USER, lambda text: set_value(text, pointer, value, path=path))

    def remove_rule(
        self, which: FileKind, effect: Effect, entry: Json, *, before_replace: BeforeReplace | None = None
    ) -> int:
        """Remove the rules equal to `entry`, or with that id; return how many. Raises: as `edit`."""
        check(entry, what="the rule")
        path = self.path_of(which)
        removed = 0

        def change(text: str) -> str:
            nonlocal removed
            for index, found in reversed(list(_entries(text, effect, str(path)))):
                if is_named(found, entry):
                    text = remove_item(text, ("permissions", effect), index, path=str(path))
                    removed += 1
            return text

        if os.path.lexists(path):
            self.edit(which, change, before_replace=before_replace)
        return removed

    def switch_rule(
        self,
        which: FileKind,
        effect: Effect,
        entry: Json,
        *,
        enabled: bool,
        before_replace: BeforeReplace | None = None,
    ) -> int:
        """Disable or enable what `is_to_switch` names; return how many there were. Raises: as `edit`."""
        check(entry, what="the rule")
        path = self.path_of(which)
        switched = 0

        def change(text: str) -> str:
            nonlocal switched
            for index, found in list(_entries(text, effect, str(path))):
                if is_to_switch(effect, found, entry, enabled=enabled):
                    text = _switched(text, effect, index, found, enabled=enabled, path=str(path))
                    switched += 1
            return text

        if os.path.lexists(path):
            self.edit(which, change, before_replace=before_replace)
        return switched

    def add_servers(
        self, which: FileKind, entries: Mapping[str, Json], *, before_replace: BeforeReplace | None = None
    ) -> None:
        """Add entries to `mcpServers`. Raises: Conflict if a name has another entry, and what `edit` does."""
        path = str(self.path_of(which))

        def change(text: str) -> str:
            present = _servers(text, path)
            for name, entry in entries.items():
                if name not in present:
                    text = set_value(text, ("mcpServers", name), entry, path=path)
                elif not is_same(present[name], entry):
                    raise Conflict(f"`{path}` has another server {quote(name)}; nothing was written")
            return text

        self.edit(which, change, before_replace=before_replace)

    def remove_servers(
        self, which: FileKind, entries: Mapping[str, Json], *, before_replace: BeforeReplace | None = None
    ) -> tuple[str, ...]:
        """Remove those of `mcpServers` that are exactly so, and return their names. Raises: as `edit`."""
        path = self.path_of(which)
        removed: tuple[str, ...] = ()

        def change(text: str) -> str:
            nonlocal removed
            present = _servers(text, str(path))
            removed = tuple(name for name in entries if name in present)
            removed = tuple(name for name in removed if is_same(present[name], entries[name]))
            return without_members(text, [("mcpServers", name) for name in removed], path=str(path))

        if os.path.lexists(path):
            self.edit(which, change, before_replace=before_replace)
        return removed

    def servers(self, which: FileKind) -> Mapping[str, Json]:
        """Return `mcpServers` as it is written, usable or not. Raises: ConfigInvalid."""
        path = self.path_of(which)
        found = read_bytes(path)
        return {} if found is None else _servers(decode(found[0], path=path), str(path))

    def parse_workspace(self, text: str, *, name: str) -> ConfigFile:
        """Return what another content of the workspace's file says. Raises: ConfigInvalid, with `name`."""
        return self._parse(FileKind.WORKSPACE, text, name=name)

    def _parse(self, which: FileKind, text: str, *, name: str | None = None) -> ConfigFile:
        return parse_config(
            text,
            path=name or str(self.path_of(which)),
            kind=which,
            base_dir=str(self._workspace),
            paths=self._paths,
            environ=self._environment(),
        )

    def _writable(self, which: FileKind) -> Path:
        """Return the file to replace. The user's own link is followed: people keep such files elsewhere.

        A link in a workspace came with it and may lead to any file of the user's, so it is refused.
        """
        path = self.path_of(which)
        if which is FileKind.USER:
            return Path(os.path.realpath(path))
        if path.is_symlink():
            raise Forbidden(
                f"`{path}` is a symbolic link, and PML does not write through links in a workspace",
                hint="replace the link by a file, or edit the file it leads to",
            )
        return path

    def _lock_of(self, path: Path) -> Path:
        """Return the lock of a file: kept in PML's own folder, so that the workspace stays clean."""
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
        return self._pml_home / "locks" / f"{name}.lock"

    def _replace(self, path: Path, old: bytes | None, new: bytes, mode: int) -> None:
        def check_unchanged() -> None:
            found = read_bytes(path)
            if (found[0] if found else None) != old:
                raise Changed(
                    f"another program changed `{path}` meanwhile; nothing was written", hint="try again"
                )

        try:
            replace_file(path, new, mode=mode, last_check=check_unchanged)
        except OSError as exc:
            raise unavailable(f"cannot write `{path}`", exc) from exc


def _entries(text: str, effect: Effect, path: str) -> Iterator[tuple[int, Json]]:
    permissions = parse(text, path=path).members.get("permissions")
    node = permissions.members.get(effect) if permissions else None
    return enumerate(item.value for item in node.items) if node else iter(())


def _servers(text: str, path: str) -> Mapping[str, Json]:
    node = parse(text, path=path).members.get("mcpServers")
    return {} if node is None else {name: each.value for name, each in node.members.items()}


def _switched(text: str, effect: Effect, index: int, entry: Json, *, enabled: bool, path: str) -> str:
    """Return `text` with the rule switched; the rest of the rule stays as it is spelled."""
    pointer = ("permissions", effect)
    if not isinstance(entry, dict):
        return replace_item(text, pointer, index, {"tool": entry, "enabled": False}, path=path)
    if not enabled:
        return set_member(text, pointer, index, "enabled", False, path=path)
    is_default = effect is Effect.ASK and bare(entry) == DEFAULT_ASK  # as a string it would ask no more
    if isinstance(bare(entry), str) and not is_default:
        return replace_item(text, pointer, index, bare(entry), path=path)
    return remove_member(text, pointer, index, "enabled", path=path)
