"""Which tools there are: known without starting anything, learned only from servers that may be started."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.config.file import FileKind
from pml.core.errors import ServerFailed
from pml.core.names import ToolName, wire_of
from pml.core.servers.manifest import Manifest
from pml.core.values import Json, JsonObject
from pml.service.calls.tools import Known, Tools, known_tools, learn_servers, prespawn, search, wire_table
from pml.service.policy.policy import Policy, current_policy
from tests.promises import promise
from tests.service.gatehouses import ADD, LIST, SERVER, Gatehouse

FILES: JsonObject = {"command": "files-server"}

NEAR = st.text("ab_", min_size=1, max_size=5)  # names that are likely to share a wire name


async def policy_of(house: Gatehouse) -> Policy:
    return await current_policy(house.office.context, house.session.workspace)


async def known(house: Gatehouse) -> Tools:
    return await known_tools(house.gate, await policy_of(house), problems={"notes": "it died"})


async def learned(house: Gatehouse) -> Tools:
    await learn_servers(house.gate, await policy_of(house))
    return await known(house)


async def test_to_list_what_is_known_starts_nothing(house: Gatehouse) -> None:
    tools = await known(house)

    assert (tools.by_name, tools.missing, house.servers.started) == ({}, {"notes": "it died"}, [])


async def test_the_tools_of_a_server_that_runs_are_known_by_both_names(house: Gatehouse) -> None:
    tools = await learned(house)

    assert (list(tools.by_name), list(tools.by_wire)) == (
        ["notes:add", "notes:list"],
        ["notes__add", "notes__list"],
    )
    assert (tools.by_wire["notes__add"].shape, tools.missing) == (ADD, {})


async def test_what_a_server_offered_when_it_last_ran_is_known_without_starting_it(house: Gatehouse) -> None:
    spec = (await policy_of(house)).settings.servers["notes"]
    kept = Manifest(server="notes", target_digest=spec.target_digest, capabilities={}, tools=(LIST,))
    await house.office.context.store.manifests.put(kept)

    tools = await learned(house)

    assert (list(tools.by_name), house.servers.started) == (["notes:list"], [])


async def test_what_is_kept_of_a_server_that_is_started_in_another_way_does_not_count(
    house: Gatehouse,
) -> None:
    kept = Manifest(server="notes", target_digest="sha256:another", capabilities={}, tools=(LIST,))
    await house.office.context.store.manifests.put(kept)

    assert (await known(house)).by_name == {}


@promise("gate:deny-starts-nothing")
@pytest.mark.parametrize("glob", ["*", "*:*", "notes:*"])
async def test_a_server_whose_tools_are_all_denied_is_not_started_to_learn_of_them(
    house: Gatehouse, glob: str
) -> None:
    house.office.write(
        FileKind.USER,
        {"mcpServers": {"notes": SERVER}, "prespawn": ["*"], "permissions": {"deny": [glob]}},
    )

    await learn_servers(house.gate, await policy_of(house))
    await prespawn(house.gate, await policy_of(house))

    assert house.servers.started == []


@promise("trust:no-server-before-trust")
async def test_a_server_of_a_file_that_nobody_trusts_is_neither_learned_of_nor_started_ahead(
    house: Gatehouse,
) -> None:
    house.configure(servers={})
    house.office.write(FileKind.WORKSPACE, {"mcpServers": {"notes": SERVER}, "prespawn": ["*"]})

    await learn_servers(house.gate, await policy_of(house))
    await prespawn(house.gate, await policy_of(house))

    assert house.servers.started == []


async def test_only_the_servers_that_prespawn_names_are_started_ahead(house: Gatehouse) -> None:
    servers: JsonObject = {"notes": SERVER, "files": FILES, "notebook": SERVER}
    house.office.write(FileKind.USER, {"mcpServers": servers, "prespawn": ["note*"]})

    await prespawn(house.gate, await policy_of(house))

    assert sorted(house.servers.started) == ["notebook", "notes"]


async def test_a_server_that_fails_is_told_of_and_does_not_keep_the_others_back(house: Gatehouse) -> None:
    house.servers.start_error = ServerFailed("no such command")
    assert await learn_servers(house.gate, await policy_of(house)) == {"notes": "no such command"}

    house.configure(servers={"notes": SERVER, "files": FILES})
    await prespawn(house.gate, await policy_of(house))
    house.servers.start_error = None

    assert await learn_servers(house.gate, await policy_of(house)) == {}


@pytest.mark.parametrize(
    ("expose", "listed"),
    [
        (["notes:*"], {"notes:add", "notes:list"}),
        (["add"], {"notes:add"}),
        (["files:*"], set[str]()),
        ([], set[str]()),
    ],
)
async def test_only_what_expose_names_is_listed_and_all_is_found(
    house: Gatehouse, expose: list[str], listed: set[str]
) -> None:
    house.office.write(FileKind.USER, {"mcpServers": {"notes": SERVER}, "expose": [*expose]})

    tools = await learned(house)

    assert {name for name, entry in tools.by_name.items() if entry.listed} == listed
    assert list(tools.by_name) == ["notes:add", "notes:list"]


@promise("config:untrusted-only-tightens")
@pytest.mark.parametrize(
    ("theirs", "listed"), [(["*"], {"notes:list"}), (["notes:add"], set[str]())], ids=["more", "fewer"]
)
async def test_a_file_that_nobody_trusts_offers_no_tool_that_the_user_does_not(
    house: Gatehouse, theirs: list[Json], listed: set[str]
) -> None:
    house.office.write(FileKind.USER, {"mcpServers": {"notes": SERVER}, "expose": ["notes:list"]})
    house.office.write(FileKind.WORKSPACE, {"expose": theirs})

    tools = await learned(house)

    assert {name for name, entry in tools.by_name.items() if entry.listed} == listed


@promise("names:wire-by-table")
@given(st.lists(st.builds(ToolName, namespace=NEAR, action=NEAR), max_size=8, unique=True), st.randoms())
def test_a_wire_name_leads_to_the_one_tool_that_has_it_whatever_the_order(
    tools: list[ToolName], random: Random
) -> None:
    known = [Known(tool=tool, wire=wire_of(tool), shape={}, listed=True) for tool in tools]
    wires = [entry.wire for entry in known]
    expected = {entry.wire: entry for entry in known if wires.count(entry.wire) == 1}

    assert wire_table(known) == wire_table(random.sample(known, len(known))) == expected
    assert "github__delete_repo" not in wire_table(known)


@promise("names:wire-by-table")
async def test_two_tools_that_would_share_a_wire_name_have_none(house: Gatehouse) -> None:
    house.configure(servers={"a": SERVER, "a__b": SERVER})
    house.servers.offer("a", {"name": "b__c", "inputSchema": {}})
    house.servers.offer("a__b", {"name": "c", "inputSchema": {}})

    tools = await learned(house)

    assert (list(tools.by_wire), sorted(tools.by_name)) == ([], ["a:b__c", "a__b:c"])


async def test_a_tool_without_a_sound_name_is_left_out(house: Gatehouse) -> None:
    house.servers.offer("notes", {"name": "add *", "inputSchema": {}}, LIST)

    assert list((await learned(house)).by_name) == ["notes:list"]


async def test_tools_are_found_by_words_of_their_descriptions(house: Gatehouse) -> None:
    found = search(await learned(house), "adds a note")

    assert [str(entry.tool) for entry in found][:1] == ["notes:add"]
