"""Servers that run elsewhere, in the pipeline: who says it is pinned, and rules may go by where they run."""

import asyncio

import pytest

from pml.core.approvals.record import Subject
from pml.core.config.file import FileKind
from pml.core.errors import ToolDenied
from pml.core.values import JsonObject
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.gatehouses import ADD, LIST, RAN, Gatehouse
from tests.service.offices import BOUND_S, until_idle

FAR: JsonObject = {"url": "https://x.test/mcp"}
READS: JsonObject = {**ADD, "annotations": {"readOnlyHint": True}}


@promise("remote:pinned-identity")
async def test_a_remote_server_that_is_another_one_is_not_called_before_a_person_says_so(
    house: Gatehouse,
) -> None:
    house.configure(servers={"notes": FAR})
    house.servers.identity = "notes of Ana"
    await house.call()
    house.servers.identity = "somebody else"
    house.servers.offer("notes", ADD, LIST)
    asking = FakeAsking(house.waiting())
    calling = asyncio.create_task(house.call(asking=asking))
    await until_idle(calling)
    assert house.servers.ran == [RAN]
    record = asking.asked[0]
    assert record.subject is Subject.TOOL_CHANGED
    changed = [line for line in record.tool_input["diff"] if line[0] in "+-"]  # pyright: ignore
    assert changed == ["-served by: notes of Ana", "+served by: somebody else"]
    await house.office.allow(record)
    async with asyncio.timeout(BOUND_S):
        await calling
    assert house.servers.ran == [RAN, RAN]


async def test_a_process_may_name_itself_as_it_likes(house: Gatehouse) -> None:
    await house.call()
    house.servers.identity = "another"
    house.servers.offer("notes", ADD, LIST)
    await house.call()
    assert house.servers.ran == [RAN, RAN]


@promise("rules:server-doubt-tightens")
@pytest.mark.parametrize(("server", "is_denied"), [(FAR, True), ({"command": "x"}, False)])
async def test_a_deny_for_remote_servers_names_those_alone(
    house: Gatehouse, server: JsonObject, is_denied: bool
) -> None:
    house.configure(servers={"notes": server}, deny=[{"tool": "*", "server": {"remote": True}}], allow=["*"])
    if is_denied:
        with pytest.raises(ToolDenied):
            await house.call(offered=False)
        assert house.servers.started == []
    else:
        await house.call(offered=False)
        assert house.servers.ran == [RAN]


@promise("rules:server-doubt-tightens")
async def test_an_allow_by_annotations_needs_the_users_belief_and_a_known_tool(house: Gatehouse) -> None:
    rules: JsonObject = {"tool": "*", "annotations": {"readOnlyHint": True}}
    house.servers.offer("notes", READS, LIST)
    house.configure(servers={"notes": {**FAR, "annotations": "believed"}}, allow=[rules])
    await house.pause()  # nothing is known of its tools yet
    policy = house.gate.context.configs.of(house.session.workspace).read().user.config
    assert policy is not None
    spec = policy.servers["notes"]
    manifest = await house.servers.manifest(spec)
    await house.office.context.store.manifests.put(manifest)
    await house.call(offered=False)
    assert house.servers.ran == [RAN]
    house.configure(servers={"notes": FAR}, allow=[rules])
    await asyncio.sleep(0)  # a policy holds for one turn of the loop
    await house.pause()
    assert house.servers.ran == [RAN]


async def test_a_workspace_cannot_make_its_server_believed(house: Gatehouse) -> None:
    house.configure(FileKind.WORKSPACE, servers={"w": {**FAR, "annotations": "believed"}})
    file = house.gate.context.configs.of(house.session.workspace).read().workspace.config
    assert file is not None
    assert not file.servers["w"].is_believed
    assert "applies only in the user's file" in " ".join(file.warnings)


@promise("remote:bound-to-url")
async def test_a_url_of_a_file_that_nobody_trusts_is_sent_nothing(house: Gatehouse) -> None:
    house.configure(servers={})
    house.configure(FileKind.WORKSPACE, servers={"notes": {**FAR, "headers": {"A": "${TOKEN:-x}"}}})
    paused = await house.pause()
    assert paused.record.subject is Subject.WORKSPACE_TRUST
    assert "https://x.test/mcp" in str(paused.record.tool_input["launches"])
    assert house.servers.started == []
