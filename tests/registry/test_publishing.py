"""Publishing: what is missing is computed, what is there is never changed unseen, all or nothing."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pml.core.errors import Conflict, IntegrityFailed, Invalid, NotFound, PmlError, Unavailable
from pml.core.packages.capability import McpDependency, parse_metadata
from pml.core.packages.integrity import Algorithm, integrity_of
from pml.core.packages.lock import Ecosystem, Lock, Locked
from pml.host.locks import open_lock_file, try_lock
from pml.registry.publish import Draft, Published, Status, publish, read_drafts
from tests.registry.places import CODE, GREET, Reader, encoded, hash_of, metadata

MEMORY = "acme.tools.memory"
DEPENDENCY: dict[str, Any] = {
    "name": "memory",
    "type": "stdio",
    "install": "npx @acme/memory@1.2.3",
    "version": "1.2.3",
}


def sha512(text: str) -> str:
    return str(integrity_of(text.encode(), Algorithm.SHA512))


def lock_of(version: str = "1.2.3", *, beside: str = "left-pad") -> Lock:
    return Lock(
        ecosystem=Ecosystem.NPM,
        name="@acme/memory",
        version=version,
        root=f"@acme/memory@{version}",
        packages=(
            Locked(
                key=f"@acme/memory@{version}",
                name="@acme/memory",
                version=version,
                integrity=(sha512("memory"),),
            ),
            Locked(key=f"{beside}@1.0.0", name=beside, version="1.0.0", integrity=(sha512(beside),)),
        ),
    )


@dataclass
class Resolver:
    """Finds locks, and remembers what for."""

    lock: Lock = field(default_factory=lock_of)
    asked: list[str] = field(default_factory=list[str])

    async def __call__(self, dependency: McpDependency) -> Lock:
        self.asked.append(dependency.title)
        return self.lock


@dataclass
class Publisher:
    source: Path
    folder: Path
    resolver: Resolver = field(default_factory=Resolver)

    def draft(self, name: str, content: Any, *, code: bytes | None = None) -> Path:
        self.source.mkdir(exist_ok=True)
        path = self.source / f"{name}.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        if code is not None:
            path.with_suffix(".ts").write_bytes(code)
        return path

    async def publish(self, path: Path, *, replace: bool = False) -> list[Published]:
        return await publish(read_drafts(path), self.folder, resolve=self.resolver, replace=replace)

    @property
    def files(self) -> list[str]:
        if not self.folder.exists():
            return []
        return sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "drafts", tmp_path / "registry")


def server(**more: Any) -> dict[str, Any]:
    return metadata(MEMORY, type="server", mcp_deps=[{**DEPENDENCY, **more}])


async def test_code_is_published_with_its_hash_and_can_be_used(publisher: Publisher, reader: Reader) -> None:
    (done,) = await publisher.publish(publisher.draft("greet", metadata(), code=CODE))
    assert (done.status, done.metadata.code_integrity) == (Status.CREATED, hash_of(CODE))
    assert publisher.files == [f"{GREET}.json", f"{GREET}.ts"]
    assert await reader.code(str(publisher.folder)) == CODE
    assert {path.stat().st_mode & 0o777 for path in (done.path, publisher.folder / f"{GREET}.ts")} == {0o644}


async def test_a_server_is_published_with_integrity_and_lock(publisher: Publisher) -> None:
    (done,) = await publisher.publish(publisher.draft("memory", server()))
    published = parse_metadata(done.path.read_bytes(), what="it")
    assert published == done.metadata
    (dependency,) = published.mcp_deps
    assert (dependency.integrity, dependency.lock) == (sha512("memory"), lock_of())
    assert publisher.resolver.asked == ["memory@1.2.3"]


async def test_an_integrity_that_was_given_is_kept(publisher: Publisher) -> None:
    given = sha512("memory")
    (done,) = await publisher.publish(publisher.draft("memory", server(integrity=given)))
    assert done.metadata.mcp_deps[0].integrity == given


async def test_publishing_again_changes_nothing_even_if_the_closure_has_moved(publisher: Publisher) -> None:
    path = publisher.draft("memory", server())
    (first,) = await publisher.publish(path)
    before = (first.path.read_bytes(), first.path.stat().st_mtime_ns)
    publisher.resolver.lock = lock_of(beside="right-pad")
    (second,) = await publisher.publish(path)
    assert second.status is Status.UNCHANGED
    assert (first.path.read_bytes(), first.path.stat().st_mtime_ns) == before
    assert len(publisher.resolver.asked) == 1


@pytest.mark.parametrize("change", [{"description": "other"}, {"tools": ["other"]}])
async def test_other_content_of_the_same_version_is_refused(
    publisher: Publisher, change: dict[str, Any]
) -> None:
    await publisher.publish(publisher.draft("greet", metadata(), code=CODE))
    path = publisher.draft("greet", {**metadata(), **change})
    before = (publisher.folder / f"{GREET}.json").read_bytes()
    with pytest.raises(Conflict, match="published already") as caught:
        await publisher.publish(path)
    assert caught.value.hint == "use `--replace`"  # code alone has no version
    assert (publisher.folder / f"{GREET}.json").read_bytes() == before
    (done,) = await publisher.publish(path, replace=True)
    assert done.status is Status.REPLACED


async def test_other_code_of_the_same_name_is_refused(publisher: Publisher) -> None:
    await publisher.publish(publisher.draft("greet", metadata(), code=CODE))
    path = publisher.draft("greet", metadata(), code=b"other")
    with pytest.raises(Conflict):
        await publisher.publish(path)
    assert (publisher.folder / f"{GREET}.ts").read_bytes() == CODE
    await publisher.publish(path, replace=True)
    assert (publisher.folder / f"{GREET}.ts").read_bytes() == b"other"


async def test_code_that_was_changed_in_the_folder_is_not_taken_for_published(publisher: Publisher) -> None:
    path = publisher.draft("greet", metadata(), code=CODE)
    await publisher.publish(path)
    (publisher.folder / f"{GREET}.ts").write_bytes(b"other")
    with pytest.raises(Conflict):
        await publisher.publish(path)


async def test_another_version_takes_the_place_of_the_one_before(publisher: Publisher) -> None:
    await publisher.publish(publisher.draft("memory", server()))
    publisher.resolver.lock = lock_of("1.3.0")
    newer = server(install="npx @acme/memory@1.3.0", version="1.3.0")
    (done,) = await publisher.publish(publisher.draft("memory", newer))
    assert (done.status, done.metadata.mcp_deps[0].version) == (Status.REPLACED, "1.3.0")


async def test_replacing_looks_the_closure_up_again(publisher: Publisher) -> None:
    path = publisher.draft("memory", server())
    await publisher.publish(path)
    publisher.resolver.lock = lock_of(beside="right-pad")
    (done,) = await publisher.publish(path, replace=True)
    assert done.metadata.mcp_deps[0].lock == lock_of(beside="right-pad")


async def test_a_draft_in_the_registrys_own_folder_is_completed_there(publisher: Publisher) -> None:
    publisher.source = publisher.folder
    path = publisher.draft(GREET, metadata(), code=CODE)
    assert [done.status for done in await publisher.publish(path)] == [Status.REPLACED]
    assert [done.status for done in await publisher.publish(path)] == [Status.UNCHANGED]


async def test_of_a_folder_all_is_published_or_nothing(publisher: Publisher) -> None:
    publisher.draft("greet", metadata(), code=CODE)
    publisher.draft("memory", server())
    publisher.draft("broken", b'{"fqdn": "acme.tools.broken"}')
    with pytest.raises(Invalid, match=r"broken\.json.*type"):
        await publisher.publish(publisher.source)
    assert publisher.files == []
    (publisher.source / "broken.json").unlink()
    await publisher.publish(publisher.source)
    assert publisher.files == [f"{MEMORY}.json", f"{GREET}.json", f"{GREET}.ts"]


async def test_a_conflict_in_one_of_many_leaves_all_as_it_was(publisher: Publisher) -> None:
    await publisher.publish(publisher.draft("memory", server()))
    publisher.draft("greet", metadata(), code=CODE)
    publisher.draft("memory", {**server(), "description": "other"})
    with pytest.raises(Conflict):
        await publisher.publish(publisher.source)
    assert publisher.files == [f"{MEMORY}.json"]


@pytest.mark.parametrize(
    ("content", "code", "error", "problem"),
    [
        (b"{", None, Invalid, "not JSON"),
        (encoded(type="other"), None, Invalid, "type"),
        (encoded(), None, Invalid, "code"),
        (encoded(type="python"), CODE, Invalid, r"greet\.py"),
        (encoded(type="server"), None, Invalid, "mcp_deps"),
        (encoded(code_url="code/greet.ts"), None, Invalid, "code_integrity"),
        (encoded(code_integrity=hash_of(b"other")), CODE, IntegrityFailed, "Expected"),
    ],
)
async def test_a_draft_that_is_not_sound_is_refused_and_the_place_is_told(
    publisher: Publisher, content: bytes, code: bytes | None, error: type[PmlError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        await publisher.publish(publisher.draft("greet", content, code=code))
    assert publisher.files == []


async def test_two_drafts_of_one_name_are_refused(publisher: Publisher) -> None:
    publisher.draft("one", metadata(), code=CODE)
    publisher.draft("two", metadata(), code=CODE)
    with pytest.raises(Invalid, match="same `fqdn`"):
        await publisher.publish(publisher.source)


def test_nothing_to_publish_is_told(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(NotFound):
            read_drafts(source)


async def test_a_closure_that_cannot_be_found_publishes_nothing(publisher: Publisher) -> None:
    async def fail(dependency: McpDependency) -> Lock:
        raise Unavailable("offline")

    publisher.draft("greet", metadata(), code=CODE)
    publisher.draft("memory", server())
    with pytest.raises(Unavailable):
        await publish(read_drafts(publisher.source), publisher.folder, resolve=fail, replace=False)
    assert publisher.files == []


async def test_a_failure_of_looking_up_is_not_told_as_one_of_writing(publisher: Publisher) -> None:
    async def fail(dependency: McpDependency) -> Lock:
        raise OSError(24, "Too many open files")

    drafts = read_drafts(publisher.draft("memory", server()))
    with pytest.raises(OSError, match="Too many open files"):
        await publish(drafts, publisher.folder, resolve=fail, replace=False)


@pytest.mark.parametrize(
    ("given", "said"), [({"integrity": sha512("other")}, "integrity"), ({"lock": "sha256:1"}, "lock")]
)
async def test_hashes_that_the_package_index_has_otherwise_are_told_to_the_publisher(
    publisher: Publisher, given: dict[str, str], said: str
) -> None:
    async def fail(dependency: McpDependency) -> Lock:
        raise IntegrityFailed(dependency.title, expected=given[said], got="another")

    drafts = read_drafts(publisher.draft("memory", server()))
    drafts = [replace_dependency(draft, given) for draft in drafts]
    with pytest.raises(IntegrityFailed) as caught:
        await publish(drafts, publisher.folder, resolve=fail, replace=False)
    assert caught.value.hint == (
        f"the file's `{said}` says the first, the package index has the second; fix or remove `{said}`"
    )


def replace_dependency(draft: Draft, given: dict[str, str]) -> Draft:
    (dependency,) = draft.metadata.mcp_deps
    changed = msgspec.structs.replace(dependency, **given)
    return msgspec.structs.replace(
        draft, metadata=msgspec.structs.replace(draft.metadata, mcp_deps=(changed,))
    )


async def test_an_entry_that_is_broken_there_is_replaced_only_on_purpose(publisher: Publisher) -> None:
    path = publisher.draft("greet", metadata(), code=CODE)
    publisher.folder.mkdir()
    (publisher.folder / f"{GREET}.json").write_text("{")
    with pytest.raises(Invalid) as caught:
        await publisher.publish(path)
    assert "--replace" in (caught.value.hint or "")
    (done,) = await publisher.publish(path, replace=True)
    assert done.status is Status.REPLACED


async def test_two_publishers_do_not_write_at_once(publisher: Publisher) -> None:
    path = publisher.draft("greet", metadata(), code=CODE)
    publisher.folder.mkdir()
    held = open_lock_file(str(publisher.folder / ".pml-publish.lock"), create=True)
    try:
        assert try_lock(held)
        with pytest.raises(Unavailable, match="another `pml publish`"):
            await publisher.publish(path)
    finally:
        os.close(held)


async def test_a_link_in_the_folder_is_not_written_through(publisher: Publisher, tmp_path: Path) -> None:
    path = publisher.draft("greet", metadata(), code=CODE)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    publisher.folder.mkdir()
    (publisher.folder / f"{GREET}.ts").symlink_to(outside)
    await publisher.publish(path)
    assert outside.read_text() == "mine"
    assert (publisher.folder / f"{GREET}.ts").read_bytes() == CODE
