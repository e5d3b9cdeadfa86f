"""Rules about paths through the doors: where a server works, any argument, links that can be exchanged."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from pml.core.approvals.record import Role, Scope, Subject
from pml.core.config.file import FileKind
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.core.values import Json, JsonObject
from pml.downstream.protocol.eras import MODERN
from pml.service.policy.workspace_programs import prove_programs
from tests.downstream.parties import LATEST, Behind, Message, Party, tool
from tests.downstream.webs import Web, call
from tests.promises import promise

RAN: Final = "ran"
ASKED: Final = "asked"
DENIED: Final = "denied"


class Door:
    """A client of one door in one era, before the server `files`, which works in `data`."""

    def __init__(
        self, behind: Behind, root: Path, send: Callable[[str, JsonObject], Awaitable[Message]]
    ) -> None:
        self.behind = behind
        self.workspace = behind.office.workspace
        self.data = root / "data"
        self.data.mkdir()
        self._send = send

    def configure(
        self,
        *,
        cwd: Path | None = None,
        command: str = "files",
        args: tuple[str, ...] = (),
        asking: bool = True,
        **rules: list[Json],
    ) -> None:
        files = {"command": command, "args": list(args)} | ({} if cwd is None else {"cwd": str(cwd)})
        approval = {"unlisted": "every_call", "model_may_approve": "never", "enabled": asking}
        config = {"mcpServers": {"files": files}, "permissions": rules, "approval": approval}
        self.behind.office.write(FileKind.USER, config)

    def prove_programs(self) -> None:
        """Have the server's programs looked at before it is started, as the gateway does."""
        context, servers = self.behind.office.context, self.behind.servers
        start = servers.manifest

        async def prove_first(spec: ServerSpec) -> Manifest:
            await prove_programs(context, str(self.workspace), spec)
            return await start(spec)

        servers.manifest = prove_first

    async def read(self, path: Json, *, name: str = "read", argument: str = "path") -> str:
        """Call the tool with one argument and tell what came of it."""
        return await self.call(name, {argument: path})

    async def call(self, name: str, arguments: JsonObject) -> str:
        """Call the tool and tell what came of it."""
        before = len(self.behind.servers.calls)
        result = await self._send(f"files__{name}", arguments)
        if len(self.behind.servers.calls) > before:
            return RAN
        if result.get("isError"):
            assert result["structuredContent"]["error"]["code"] == "TOOL_DENIED"
            return DENIED
        assert result["approval_required"] is True
        return ASKED


async def _over_http(web: Web, version: str) -> Callable[[str, JsonObject], Awaitable[Message]]:
    if version == MODERN:
        return lambda name, arguments: web.ask(call(name, arguments)).result()
    client = await web.shake_hands(version)
    return lambda name, arguments: client.post(call(name, arguments)).result()


@pytest.fixture(params=[("stdio", LATEST), ("stdio", MODERN), ("http", LATEST), ("http", MODERN)], ids=str)
async def door(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Door]:
    kind, version = request.param
    behind = Party(tmp_path) if kind == "stdio" else Web(tmp_path)
    behind.serve("files", tool("read", required=["path"]), tool("stat"))
    if isinstance(behind, Party):
        await behind.connect(version)
        send = behind.call
    else:
        send = await _over_http(behind, version)
    yield Door(behind, tmp_path, send)
    await behind.close()


def under(folder: Path | str, argument: str = "path") -> Json:
    return {"tool": "files:*", "args": {argument: {"under": str(folder)}}}


@promise("rules:paths-from-every-folder")
async def test_a_servers_own_folder_does_not_defeat_a_deny(door: Door) -> None:
    door.configure(cwd=door.data, allow=["files:*"], deny=[under(door.data / "private")])
    for path in ("private/key", "./private/../private/key", "/proc/self/cwd/private/key", "/dev/fd/3"):
        assert await door.read(path) == DENIED, path
    assert await door.read("public/key") == RAN


@promise("rules:paths-from-every-folder")
async def test_an_allow_by_path_covers_no_file_in_a_servers_own_folder(door: Door) -> None:
    door.configure(cwd=door.data, allow=[under(".")])
    assert await door.read("notes.txt") == ASKED
    assert await door.read(str(door.workspace / "notes.txt")) == RAN


@promise("rules:paths-from-every-folder")
async def test_a_folder_in_another_argument_does_not_defeat_a_deny(door: Door) -> None:
    secret, sub = door.data / "sub" / "secret", str(door.data / "sub")
    calls: list[JsonObject] = [
        {"repo_path": sub, "path": "secret/key"},
        {"path": "data/sub/secret/key", "root": str(door.data.parent)},
        {"path": "secret/key", "dir": "sub", "root": str(door.data)},
        {"path": "/secret/key", "root": sub},
    ]
    for argument in ("path", "*"):
        door.configure(allow=["files:*"], deny=[under(secret, argument)])
        for arguments in calls:
            assert await door.call("stat", arguments) == DENIED, arguments
        assert await door.call("stat", {"repo_path": sub, "path": "public/key"}) == RAN
    door.configure(allow=["files:*"], deny=[under(secret, "*")])
    assert await door.call("stat", {"repo_path": sub, "files": ["secret/key"]}) == DENIED
    assert await door.call("stat", {"uri": f"resource://{secret}/key"}) == DENIED
    assert await door.call("stat", {"option": f"file={secret}/key"}) == DENIED


@promise("rules:any-argument")
async def test_a_deny_on_any_argument_finds_the_path_wherever_it_is(door: Door) -> None:
    private = door.data / "private"
    door.configure(allow=["files:*"], deny=[under(private, "*")])
    for argument in ("path", "paths", "source", "anything"):
        assert await door.read([str(private / "key")], name="stat", argument=argument) == DENIED
    assert await door.read("contents / and more", name="stat", argument="text") == RAN


@promise("reserved:settings-files")
async def test_a_folder_of_settings_files_is_a_persons_to_move_and_replace(door: Door) -> None:
    door.configure(allow=["files:*"])
    folder, mine = str(door.workspace / ".claude"), str(door.workspace / "mine")
    assert await door.call("stat", {"source": mine, "destination": folder}) == ASKED
    assert await door.call("stat", {"source": folder, "destination": mine}) == ASKED
    assert await door.call("stat", {"path": ".claude"}) == ASKED
    assert [record.deciders for record in await door.behind.pending()] == [{Role.PERSON}] * 3
    assert await door.call("stat", {"path": f"{folder}/agents/reviewer.md"}) == RAN
    assert await door.call("stat", {"source": mine, "destination": f"{mine}2"}) == RAN


@promise("reserved:settings-files")
async def test_a_settings_file_is_a_persons_in_the_name_of_a_member_and_in_two_arguments(door: Door) -> None:
    door.configure(allow=["files:*"])
    folder, bare = str(door.workspace / ".claude"), door.workspace / "bare"
    bare.mkdir()
    (bare / "notes").symlink_to("../.mcp.json")
    calls: list[JsonObject] = [
        {"files": {".claude/settings.json": "{}"}},
        {"files": {".mcp.json": "{}"}},
        {"files": {".pml.json": "{}"}},
        {"cwd": folder, "path": "settings.json"},
        {"directory": folder, "filename": "settings.json"},
        {"cwd": str(bare), "path": "notes"},
    ]
    for arguments in calls:
        assert await door.call("stat", arguments) == ASKED, arguments
    assert [record.deciders for record in await door.behind.pending()] == [{Role.PERSON}] * len(calls)
    assert await door.call("stat", {"files": {"src/a.ts": "{}", "settings.json": "{}"}}) == RAN
    assert await door.call("stat", {"cwd": str(bare), "path": "other"}) == RAN


@promise("rules:paths-by-lists")
@pytest.mark.parametrize("marks", ["{},{}", "{}, {}", "{};{}", "{} {}", "{}|{}", "{}={}", "{}@{}"])
async def test_no_list_in_one_text_takes_a_path_past_a_rule(door: Door, marks: str) -> None:
    key = str(door.data / "private" / "key")
    door.configure(allow=[under(".")])
    assert await door.read(marks.format("notes.txt", key)) == ASKED
    assert await door.read(marks.format("notes.txt", "../data/private/key")) == ASKED
    assert await door.read(marks.format("my notes", "b.txt")) == RAN
    door.configure(allow=["files:*"], deny=[under(door.data / "private")])
    assert await door.read(marks.format("notes.txt", key)) == DENIED
    if marks.strip("{} "):  # in any argument, what has only blanks is prose
        door.configure(allow=["files:*"], deny=[under(door.data / "private", "*")])
        assert await door.read(marks.format("notes.txt", key)) == DENIED
        assert await door.call("stat", {"text": f"see {key}, please"}) == RAN


@promise("reserved:settings-files")
@pytest.mark.parametrize(
    "text",
    [
        *("notes.txt,.pml.json", "a; .claude/settings.json", "a|./.mcp.json"),
        *(" .pml.json", ".pml.json\n", '".pml.json"', "'./.mcp.json' ", "%2epml.json"),
    ],
)
async def test_neither_a_list_nor_what_tools_tidy_away_takes_a_settings_file_past_a_person(
    door: Door, text: str
) -> None:
    door.configure(allow=["files:*"])
    assert await door.read(text) == ASKED
    (record,) = await door.behind.pending()
    assert record.deciders == {Role.PERSON}


@promise("rules:no-allow-through-links")
async def test_no_allow_covers_a_link_that_an_agent_could_exchange(door: Door) -> None:
    (door.workspace / "notes.txt").write_text("hello")
    (door.workspace / "link").symlink_to("notes.txt")
    door.configure(allow=[under(".")])
    assert await door.read("notes.txt") == RAN
    assert await door.read("link") == ASKED
    door.configure(allow=["files:*"], deny=[under(door.data, "*")])
    assert await door.read("notes.txt") == RAN
    assert await door.read("link") == ASKED


@promise("rules:no-allow-through-links")
async def test_nor_does_what_a_session_remembers_or_asking_that_is_off(door: Door) -> None:
    (door.workspace / "notes.txt").write_text("hello")
    (door.workspace / "link").symlink_to("notes.txt")
    door.configure(deny=[under(door.data, "*")])
    assert await door.read("notes.txt") == ASKED
    (record,) = await door.behind.pending()
    await door.behind.office.allow(record, scope=Scope.SESSION)
    assert [await door.read("notes.txt"), await door.read("notes.txt")] == [RAN, RAN]
    assert await door.read("link") == ASKED
    door.configure(deny=[under(door.data, "*")], asking=False)
    assert await door.call("stat", {"path": "notes.txt"}) == RAN
    assert await door.call("stat", {"path": "link"}) == ASKED


@promise("server:programs-pinned")
async def test_a_program_in_the_workspace_that_changed_is_a_persons_to_start(door: Door) -> None:
    script, servers = door.workspace / "files.sh", door.behind.servers
    door.prove_programs()
    script.write_text("one")
    door.configure(command="./files.sh", allow=["files:*"])
    servers.change("files")  # it ends, and is started when it is next needed
    assert await door.read("notes.txt") == RAN
    script.write_text("another")
    servers.change("files")
    assert await door.read("notes.txt") == ASKED
    (record,) = await door.behind.pending()
    assert await door.read("other.txt") == ASKED
    assert (record.subject, record.deciders) == (Subject.INTEGRITY_CHANGED, {Role.PERSON})
    assert record.tool_input["files"] == [str(script)]
    await door.behind.office.allow(record)
    assert await door.read("notes.txt") == RAN
    assert await door.behind.pending() == []  # the other call has no question left that is settled
    assert await door.read("other.txt") == RAN


@promise("server:programs-pinned")
async def test_a_program_that_was_written_after_the_first_start_is_a_persons_to_start(door: Door) -> None:
    script, servers = door.workspace / "tools" / "server", door.behind.servers
    door.prove_programs()
    door.configure(command="deno", args=("run", "tools/server"), allow=["files:*"])
    servers.change("files")
    assert await door.read("notes.txt") == RAN  # it had no program of the workspace: that is pinned
    script.parent.mkdir()
    script.write_text("what an agent wrote")
    servers.change("files")
    assert await door.read("notes.txt") == ASKED
    (record,) = await door.behind.pending()
    assert (record.subject, record.deciders) == (Subject.INTEGRITY_CHANGED, {Role.PERSON})
    assert record.tool_input["files"] == [str(script)]
