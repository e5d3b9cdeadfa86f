"""Publishing into a registry folder: metadata that is sound, complete and bound to its code and its closure.

What is missing is computed: the hash of the code, the integrity and the lock of every server. An entry that
is there already is never changed unseen. How a lock is found is the caller's: it gives `resolve`.
"""

import json
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from pml.core.errors import Conflict, IntegrityFailed, Invalid, NotFound, Unavailable
from pml.core.packages.capability import CapabilityMetadata, McpDependency, metadata_json, parse_metadata
from pml.core.packages.integrity import Algorithm, integrity_of, parse_integrity
from pml.core.packages.lock import Lock
from pml.core.text import quote
from pml.host.disk import unavailable
from pml.host.locks import open_lock_file, try_lock
from pml.host.replace import replace_file
from pml.registry.entry_forms import MAX_BYTES, SUFFIX, EntryName, Form, code_form
from pml.registry.folder import RegistryFolder
from pml.registry.plain_files import read_plain

_LOCK_FILE: Final = ".pml-publish.lock"
_CODE_SUFFIXES: Final = frozenset(SUFFIX[form] for form in Form if form is not Form.METADATA)
_MODE: Final = 0o644  # a registry is there to be read

Resolve: TypeAlias = Callable[[McpDependency], Awaitable[Lock]]


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a publisher wrote: sound metadata, and the code it is about."""

    path: Path
    metadata: CapabilityMetadata
    code: bytes | None

    @property
    def name(self) -> EntryName:
        return EntryName(str(self.metadata.fqdn))


class Status(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as it is in the folder now."""

    metadata: CapabilityMetadata
    path: Path
    code_path: Path | None
    status: Status


def read_drafts(source: Path) -> list[Draft]:
    """Return what is to be published: the file (metadata, or code beside it), or all `*.json` of the folder.

    Raises: Invalid, naming file and field; NotFound if there is nothing; Unavailable.
    """
    if not source.is_dir():
        return [_read_draft_of(source) if source.suffix in _CODE_SUFFIXES else _read_draft(source)]
    paths = sorted(path for path in source.glob(f"*{SUFFIX[Form.METADATA]}") if not path.name.startswith("."))
    if not paths:
        raise NotFound(f"{quote(str(source))} has no `*.json` to publish")
    drafts = [_read_draft(path) for path in paths]
    seen: dict[str, Draft] = {}
    for draft in drafts:
        other = seen.setdefault(draft.name.lower(), draft)  # file names may ignore case
        if other is not draft:
            raise Invalid(f"{quote(str(other.path))} and {quote(str(draft.path))} have the same `fqdn`")
    return drafts


async def publish(
    drafts: Sequence[Draft], folder: Path, *, resolve: Resolve, replace: bool
) -> list[Published]:
    """Complete the drafts and write them into `folder`; all are checked before the first is written.

    Raises: Conflict for an entry that is there with other content, unless `replace`; IntegrityFailed for
    artefacts that are not what the draft says; what `resolve` raises; Unavailable.
    """
    with _writing(folder):
        there = RegistryFolder(folder)
        ready = [await _prepare(draft, there, resolve, replace=replace) for draft in drafts]
        bodies = [_encode(published) for published, _ in ready]
        try:
            for (published, draft), body in zip(ready, bodies, strict=True):
                _write(published, body, draft.code)
        except OSError as exc:
            raise _cannot_write(folder, exc) from exc
    return [published for published, _ in ready]


def _read_draft_of(code: Path) -> Draft:
    """Return the draft whose code is at `code`."""
    path = code.with_suffix(SUFFIX[Form.METADATA])
    if not path.exists():
        missing = [each for each in (code, path) if not each.exists()]
        raise NotFound(
            f"{' and '.join(quote(str(each)) for each in missing)} "
            + ("are not there" if len(missing) > 1 else f"is not there: the metadata of {quote(str(code))}"),
            hint="a capability has both; `pml capability new NAME` writes one to begin with",
        )
    draft = _read_draft(path)
    form = code_form(draft.metadata)
    if form is None or SUFFIX[form] != code.suffix:
        raise Invalid(
            f"{code} is not the code of {quote(str(path))}: its `type` is `{draft.metadata.type.value}`"
        )
    return draft


def _read_draft(path: Path) -> Draft:
    data = read_plain(path, limit=MAX_BYTES[Form.METADATA])
    if data is None:
        raise NotFound(f"{quote(str(path))} is not there")
    metadata = parse_metadata(data, what=str(path))
    form = code_form(metadata)
    if form is None:
        if not metadata.mcp_deps:
            raise Invalid(f"{path}: `mcp_deps` must name the server, since `type` is `server`")
        return Draft(path=path, metadata=metadata, code=None)
    beside = path.with_suffix(SUFFIX[form])
    code = read_plain(beside, limit=MAX_BYTES[form])
    if code is None and metadata.code_url is None:
        raise Invalid(f"{path}: `type` is `{metadata.type.value}`, but its code `{beside}` is not there")
    return Draft(path=path, metadata=_with_code_hash(metadata, code), code=code)


def _with_code_hash(metadata: CapabilityMetadata, code: bytes | None) -> CapabilityMetadata:
    """Raises: IntegrityFailed if the draft has the hash of other code."""
    if code is None:
        if metadata.code_integrity is None:
            raise Invalid(f"{metadata.fqdn}: `code_integrity` must be given for code at a `code_url`")
        return metadata
    if metadata.code_integrity is not None:
        given = parse_integrity(metadata.code_integrity, what="`code_integrity`")
        if not given.matches(code):
            got = integrity_of(code, given.algorithm)
            hint = "the file's `code_integrity` is of other code; remove it, and it is computed"
            raise IntegrityFailed(str(metadata.fqdn), expected=str(given), got=str(got), hint=hint)
        return metadata
    return msgspec.structs.replace(metadata, code_integrity=str(integrity_of(code, Algorithm.SHA256)))


async def _prepare(
    draft: Draft, there: RegistryFolder, resolve: Resolve, *, replace: bool
) -> tuple[Published, Draft]:
    """Return the entry as it is to be. Raises: Conflict, Invalid, what `resolve` raises."""
    path = there.file(draft.name, Form.METADATA)
    before = _published(there, draft.name, replace=replace)
    deps = [await _complete(dep, None if replace else before, resolve) for dep in draft.metadata.mcp_deps]
    metadata = msgspec.structs.replace(draft.metadata, mcp_deps=tuple(deps))
    form = code_form(metadata)
    code_path = there.file(draft.name, form) if form is not None and draft.code is not None else None
    is_same = before is not None and metadata_json(before) == metadata_json(metadata)
    if form is not None and is_same:
        is_same = there.read(draft.name, form) == draft.code
    may_differ = replace or before is None or _versions(before) != _versions(metadata)
    if not is_same and not may_differ and not draft.path.samefile(path):
        raise Conflict(
            f"{quote(draft.name)} is published already with other content"
            + (" and the same version" if _versions(metadata) else ""),
            hint="give it another version, or use `--replace`" if _versions(metadata) else "use `--replace`",
        )
    is_new = before is None and not path.exists()
    status = Status.UNCHANGED if is_same else Status.CREATED if is_new else Status.REPLACED
    return Published(metadata=metadata, path=path, code_path=code_path, status=status), draft


def _published(there: RegistryFolder, name: EntryName, *, replace: bool) -> CapabilityMetadata | None:
    """Return the entry as it is. Raises: Invalid if it is not sound, unless it is to be replaced."""
    try:
        body = there.read(name, Form.METADATA)
        return None if body is None else parse_metadata(body, what=str(there.file(name, Form.METADATA)))
    except Invalid as exc:
        if replace:
            return None
        raise Invalid(exc.message, hint="fix or remove it, or use `--replace`") from exc


async def _complete(
    dependency: McpDependency, before: CapabilityMetadata | None, resolve: Resolve
) -> McpDependency:
    """Return the dependency with integrity and lock; those published before serve as long as they fit.

    A closure moves on in its package registry: looked up again, the same draft would make another entry.
    """
    old = None if before is None else before.dependency(dependency.name)
    if old is not None and _is_draft_of(dependency, old):
        return old
    lock = await _resolved(dependency, resolve)
    if not lock.artefact:
        raise Invalid(f"the lock of {quote(dependency.title)} has no hash of the package itself")
    integrity = dependency.integrity or lock.artefact[0]
    return msgspec.structs.replace(dependency, lock=lock, integrity=integrity)


async def _resolved(dependency: McpDependency, resolve: Resolve) -> Lock:
    """Raises: IntegrityFailed, worded for the one who can fix the file."""
    try:
        return await resolve(dependency)
    except IntegrityFailed as exc:
        said = "lock" if exc.expected == dependency.lock else "integrity"
        has = "its `lock` or the package index" if isinstance(dependency.lock, Lock) else "the package index"
        hint = f"the file's `{said}` says the first, {has} has the second; fix or remove `{said}`"
        raise IntegrityFailed(exc.title, expected=exc.expected, got=exc.got, hint=hint) from exc


def _is_draft_of(draft: McpDependency, old: McpDependency) -> bool:
    """Tell whether `old` is `draft` with nothing but the missing added."""
    if not isinstance(old.lock, Lock) or draft.lock not in (None, old.lock, old.lock.digest):
        return False
    integrity = old.integrity if draft.integrity is None else draft.integrity
    return msgspec.structs.replace(draft, lock=old.lock, integrity=integrity) == old


def _versions(metadata: CapabilityMetadata) -> list[str]:
    return sorted(dependency.title for dependency in metadata.mcp_deps)


def _encode(published: Published) -> bytes:
    """Return the entry's file. Raises: Invalid if no client would take it."""
    text = json.dumps(metadata_json(published.metadata), indent=2, ensure_ascii=False)
    body = f"{text}\n".encode()
    if len(body) > MAX_BYTES[Form.METADATA]:
        raise Invalid(f"{quote(str(published.path))} would have more than {MAX_BYTES[Form.METADATA]:,} bytes")
    parse_metadata(body, what=str(published.path))
    return body


def _write(published: Published, body: bytes, code: bytes | None) -> None:
    """Write the code first: a reader in between finds that its hash does not fit, and takes neither."""
    if published.status is Status.UNCHANGED:
        return
    if published.code_path is not None and code is not None:
        replace_file(published.code_path, code, mode=_MODE)
    replace_file(published.path, body, mode=_MODE)


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    """Be the only publisher in `folder`. Raises: Unavailable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = open_lock_file(str(folder / _LOCK_FILE), create=True)
    except OSError as exc:
        raise _cannot_write(folder, exc) from exc
    try:
        if not try_lock(descriptor):
            raise Unavailable(
                f"another `pml publish` writes to {quote(str(folder))}", hint="wait for it, then try again"
            )
        yield
    finally:
        os.close(descriptor)


def _cannot_write(folder: Path, exc: OSError) -> Unavailable:
    return unavailable(f"cannot write to {quote(str(folder))}", exc)
