"""Two publishers with the same names: a full name means one of them, and a rule what the short name means."""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import pytest

from pml.core.approvals.record import Approval, Role, Scope, State, Subject
from pml.core.config.file import FileKind
from pml.core.errors import PmlError
from pml.core.names import ToolName, parse_fqdn, parse_tool
from pml.core.packages.capability import CapabilityMetadata, CapabilityType
from pml.core.ports.loader import Found
from pml.core.values import JsonObject
from pml.service.approvals.lifecycle import release
from pml.service.call import Attempt, Paused, PendingCall
from pml.service.calls.execute import run_or_call
from tests.builders import PERSON
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    add,
    code_that_calls,
    enter_library,
    one_by_one,
    value_in,
)
from tests.service.gatehouses import SERVER
from tests.service.offices import Office

OURS: Final = "acme.tools"
THEIRS: Final = "evil.org"


@pytest.fixture
async def house(office: Office) -> Library:
    return await enter_library(office)


def configure(house: Library, *allow: str) -> None:
    config: JsonObject = {
        "mcpServers": {"notes": SERVER},
        "permissions": {"allow": allow},
        "registry_prefix": OURS,
    }
    house.office.write(FileKind.USER, config)


async def make(
    house: Library, tool: str, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> bytes:
    """Make the call as a client does; nobody answers."""
    attempt = Attempt(tool=parse_tool(tool), arguments=arguments or {}, offered=False, prefix=prefix)
    return await run_or_call(PendingCall(house.gate, attempt, FakeAsking(has_form=True)))


async def paused_at(
    house: Library, tool: str, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> Paused:
    with pytest.raises(Paused) as paused:
        await make(house, tool, arguments, prefix=prefix)
    return paused.value


async def left(
    house: Library, tool: str, arguments: JsonObject | None = None, *, prefix: str | None = None
) -> Approval:
    return (await paused_at(house, tool, arguments, prefix=prefix)).record


class TwoPublishers:
    """A registry in which two publishers have the same names."""

    def __init__(self, house: Library) -> None:
        self._entries: dict[tuple[str, str], Found] = {}
        self._house = house
        sources: Any = house.sources
        sources.find = self.find

    def serve(self, prefix: str, name: str, *, version: str) -> None:
        metadata = CapabilityMetadata(
            fqdn=parse_fqdn(f"{prefix}.{name}"),
            type=CapabilityType.SERVER,
            mcp_deps=(make_dependency(name, version=version),),
        )
        self._entries[prefix, name] = Found(metadata=metadata, source="/registry")

    def publish(self, prefix: str, name: str, text: str) -> None:
        code = code_that_calls("notes:add", note=f"{prefix}.{name} {text}")
        self._house.sandbox.scripts[code] = one_by_one(add(text), result=text)
        self._house.sources.codes[f"{prefix}.{name}"] = code.encode()
        metadata = CapabilityMetadata(fqdn=parse_fqdn(f"{prefix}.{name}"), type=CapabilityType.DENO)
        self._entries[prefix, name] = Found(metadata=metadata, source="/registry")

    async def find(self, tool: ToolName, *, registries: Sequence[str], prefix: str | None) -> Found | None:
        return self._entries.get((prefix or "", tool.namespace or ""))


@pytest.fixture
def market(house: Library) -> TwoPublishers:
    """Both publish a server `memory` and a capability `acct`; the rules allow all of these names."""
    market = TwoPublishers(house)
    market.serve(OURS, "memory", version="1.2.3")
    market.serve(THEIRS, "memory", version="6.6.6")
    market.publish(OURS, "acct", "ours")
    market.publish(THEIRS, "acct", "theirs")
    configure(house, "memory:*", "acct:*", "notes:*")
    return market


TEXT: Final[JsonObject] = {"text": "kept"}


@promise("registry:prefix-means-one")
async def test_a_rule_on_a_name_installs_no_other_publishers_server(
    house: Library, market: TwoPublishers
) -> None:
    record = await left(house, "memory:add", TEXT, prefix=THEIRS)

    assert record.subject is Subject.DEPENDENCY_INSTALL
    assert (house.installs, house.servers.ran) == ([], [])


@promise("registry:prefix-means-one")
async def test_another_publishers_server_that_was_let_in_does_not_answer_to_the_short_name(
    house: Library, market: TwoPublishers
) -> None:
    await house.allow(await left(house, "memory:add", TEXT, prefix=THEIRS))
    with pytest.raises(Paused):  # the install was allowed; the call is another question
        await make(house, "memory:add", TEXT, prefix=THEIRS)
    assert house.installs == ["memory@6.6.6"]

    record = await left(house, "memory:add", TEXT)

    assert record.subject is Subject.DEPENDENCY_INSTALL
    assert "1.2.3" in str(record.tool_input)
    assert house.servers.ran == []


@promise("registry:prefix-means-one")
async def test_the_server_that_the_short_name_means_does_not_answer_to_another_publishers(
    house: Library, market: TwoPublishers
) -> None:
    await make(house, "memory:add", TEXT)
    assert house.installs == ["memory@1.2.3"]

    record = await left(house, "memory:add", TEXT, prefix=THEIRS)

    assert record.subject is Subject.DEPENDENCY_INSTALL
    assert len(house.servers.ran) == 1


@promise("registry:prefix-means-one")
async def test_a_rule_on_a_name_runs_no_other_publishers_code(house: Library, market: TwoPublishers) -> None:
    assert value_in(await make(house, "acct:run")) == "ours"
    assert value_in(await make(house, "acct:run", prefix=OURS)) == "ours"

    record = await left(house, "acct:run", prefix=THEIRS)

    assert record.subject is Subject.TOOL_CALL
    assert house.added == ["ours", "ours"]


@promise("registry:prefix-means-one")
async def test_another_publishers_code_that_a_session_remembers_runs_unasked_and_only_that(
    house: Library, market: TwoPublishers
) -> None:
    configure(house, "notes:*")
    record = await left(house, "acct:run", prefix=THEIRS)
    await house.office.allow(record, scope=Scope.SESSION)
    assert value_in(await make(house, "acct:run", prefix=THEIRS)) == "theirs"
    assert value_in(await make(house, "acct:run", prefix=THEIRS)) == "theirs"

    await left(house, "acct:run")
    market.publish(THEIRS, "acct", "changed")
    await left(house, "acct:run", prefix=THEIRS)


@promise("registry:prefix-means-one")
async def test_a_full_name_does_not_reach_a_configured_server_of_the_same_name(house: Library) -> None:
    configure(house, "*")

    with pytest.raises(PmlError):
        await make(house, "notes:add", TEXT, prefix=OURS)

    assert house.servers.ran == []


# Answers


@promise("gate:approved-is-executed")
async def test_continuing_a_call_that_named_a_publisher_runs_that_publishers(
    house: Library, market: TwoPublishers
) -> None:
    paused = await paused_at(house, "acct:run", prefix=THEIRS)
    await house.allow(paused.record)

    assert await house.resume(paused) == "theirs"
    assert house.added == ["theirs"]
    assert await house.office.status(paused.record) is State.COMPLETED


@promise("gate:approved-is-executed")
async def test_continuing_an_install_that_named_a_publisher_installs_that_publishers(
    house: Library, market: TwoPublishers
) -> None:
    paused = await paused_at(house, "memory:add", TEXT, prefix=THEIRS)
    await house.allow(paused.record)

    with contextlib.suppress(Paused):
        await house.resume(paused)
    assert house.installs == ["memory@6.6.6"]


@promise("registry:prefix-means-one")
@pytest.mark.parametrize(("tool", "arguments"), [("acct:run", {}), ("memory:add", TEXT)])
async def test_always_for_one_publishers_tool_lets_no_others_run(
    house: Library, market: TwoPublishers, tool: str, arguments: JsonObject
) -> None:
    configure(house, "notes:*")
    record = await left(house, tool, arguments, prefix=THEIRS)
    with contextlib.suppress(PmlError):  # it may be refused
        await house.office.allow(record, scope=Scope.ALWAYS)
    if house.office.path(FileKind.WORKSPACE).exists():
        await house.office.trust()

    await left(house, tool, arguments)
    assert (house.added, house.installs) == ([], [])


@promise("registry:prefix-means-one")
@pytest.mark.parametrize(("tool", "arguments"), [("acct:run", {}), ("memory:add", TEXT)])
async def test_a_rule_on_the_short_name_releases_no_other_publishers_call(
    house: Library, market: TwoPublishers, tool: str, arguments: JsonObject
) -> None:
    record = await left(house, tool, arguments, prefix=THEIRS)
    if record.subject is Subject.DEPENDENCY_INSTALL:
        await house.allow(record)
        record = await left(house, tool, arguments, prefix=THEIRS)

    assert await release(house.office.context, [record.id], by=PERSON) == ()
    assert await house.office.status(record) is State.PENDING


@promise("registry:prefix-means-one")
async def test_a_model_does_not_confirm_another_publishers_code(
    house: Library, market: TwoPublishers
) -> None:
    attempt = Attempt(tool=parse_tool("acct:run"), arguments={}, offered=False, prefix=THEIRS)
    with pytest.raises(Paused) as paused:
        await run_or_call(PendingCall(house.gate, attempt, FakeAsking()))

    with pytest.raises(Paused):
        await house.go_on(paused.value.workflow.id, always=True, tool=None)

    assert Role.MODEL not in paused.value.record.deciders
    assert not house.office.path(FileKind.WORKSPACE).exists()
