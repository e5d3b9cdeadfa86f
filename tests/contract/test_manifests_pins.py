"""What every store does with what servers offer: the cache of manifests, and the pins of their tools."""

import asyncio

import msgspec
import pytest

from pml.core.audit.entries import Entry
from pml.core.errors import Conflict
from pml.core.ports.store import Store
from pml.core.servers.manifest import Manifest
from pml.core.values import Json
from pml.store.servers import MANIFESTS_KEPT
from tests.builders import PERSON, later
from tests.contract.steps import LAUNCH, entries_of, make_pin
from tests.promises import promise

WHOLE = Manifest(
    server="github",
    target_digest=LAUNCH,
    capabilities={"tools": {"listChanged": True}, "experimental": {"n": [1, 1.0, 2**70, None]}},
    instructions="Be kind.\n\0\u202e😀",
    tools=({"name": "create_issue", "inputSchema": {"type": "object"}}, {"name": "close"}),
    prompts=({"name": "review"},),
    resources=({"uri": "file:///a"},),
    templates=({"uriTemplate": "file:///{path}"},),
)


def make_manifest(server: str = "github", launch: str = LAUNCH) -> Manifest:
    return Manifest(server=server, target_digest=launch, capabilities={})


# --- manifests


@promise("values:exact")
async def test_a_manifest_is_kept_as_the_server_said_it(store: Store) -> None:
    for manifest in (WHOLE, make_manifest("bare")):
        await store.manifests.put(manifest)

        assert await store.manifests.get(manifest.server, manifest.target_digest) == manifest


async def test_a_manifest_serves_only_its_server_started_the_same_way(store: Store) -> None:
    other = make_manifest(launch="sha256:other")
    await store.manifests.put(WHOLE)
    assert await store.manifests.get("gitlab", LAUNCH) is None
    assert await store.manifests.get("github", "sha256:other") is None

    await store.manifests.put(other)

    assert await store.manifests.get("github", "sha256:other") == other
    assert await store.manifests.get("github", LAUNCH) == WHOLE


async def test_a_newer_manifest_stands_in_the_place_of_the_older(store: Store) -> None:
    await store.manifests.put(make_manifest())
    await store.manifests.put(WHOLE)

    assert await store.manifests.get("github", LAUNCH) == WHOLE


async def test_a_manifest_is_nobody_elses_to_change(store: Store) -> None:
    tool: dict[str, Json] = {"name": "read"}
    manifest = msgspec.structs.replace(make_manifest(), tools=(tool,))
    await store.manifests.put(manifest)

    tool["name"] = "write"

    got = await store.manifests.get("github", LAUNCH)
    assert got == msgspec.structs.replace(manifest, tools=({"name": "read"},))


async def test_of_many_manifests_those_put_last_are_kept(store: Store) -> None:
    launches = [f"sha256:{n}" for n in range(MANIFESTS_KEPT)]
    for launch in launches:
        await store.manifests.put(make_manifest(launch=launch))
    await store.manifests.put(make_manifest(launch=launches[0]))
    for launch in ("sha256:new", "sha256:newer"):
        await store.manifests.put(make_manifest(launch=launch))

    every = [*launches, "sha256:new", "sha256:newer"]
    gone = [launch for launch in every if await store.manifests.get("github", launch) is None]

    assert gone == launches[1:3]


async def test_keeping_a_manifest_is_not_recorded(store: Store) -> None:
    await store.manifests.put(WHOLE)

    assert await entries_of(store) == []


# --- pins


async def test_a_pin_is_stored_as_it_was_put_and_recorded_as_a_first_use(store: Store) -> None:
    pin = make_pin()
    assert await store.pins.get("github", LAUNCH, "create_issue") is None

    await store.pins.put(pin, by=None)

    assert await store.pins.get("github", LAUNCH, "create_issue") == pin
    assert await entries_of(store) == [
        Entry(
            at=pin.pinned_at,
            kind="tool.pinned",
            tool="github:create_issue",
            detail={"digest": pin.digest, "launch": LAUNCH},
        )
    ]


async def test_an_accepted_change_stands_in_the_place_of_the_pin_and_is_recorded(store: Store) -> None:
    changed = make_pin("Closes an issue.", pinned_at=later(1))
    await store.pins.put(make_pin(), by=None)

    await store.pins.put(changed, by=PERSON)

    assert await store.pins.get("github", LAUNCH, "create_issue") == changed
    assert (await entries_of(store))[1:] == [
        Entry(
            at=later(1),
            kind="tool.repinned",
            tool="github:create_issue",
            by=PERSON,
            detail={"digest": changed.digest, "launch": LAUNCH},
        )
    ]


async def test_pins_are_apart_for_each_server_launch_and_action(store: Store) -> None:
    pins = [
        make_pin("one"),
        make_pin("two", launch="sha256:other"),
        make_pin("three", server="gitlab"),
        make_pin("four", action="close"),
    ]
    for pin in pins:
        await store.pins.put(pin, by=None)
    changed = make_pin("five", launch="sha256:other")
    await store.pins.put(changed, by=PERSON)

    found = [await store.pins.get(pin.server, pin.target_digest, pin.action) for pin in pins]

    assert found == [pins[0], changed, *pins[2:]]
    assert await store.pins.get("github", "sha256:", "create_issue") is None
    assert await store.pins.get("GitHub", LAUNCH, "create_issue") is None
    assert await store.pins.get("github", LAUNCH, "close_all") is None


@promise("pins:never-silently")
async def test_a_pin_that_nobody_accepted_a_change_of_stays_as_it_is(store: Store) -> None:
    await store.pins.put(make_pin(), by=None)
    before = await entries_of(store)

    with pytest.raises(Conflict, match="`github:create_issue` is pinned to another definition"):
        await store.pins.put(make_pin("Deletes everything.", pinned_at=later(1)), by=None)

    assert await store.pins.get("github", LAUNCH, "create_issue") == make_pin()
    assert await entries_of(store) == before


@promise("pins:never-silently")
async def test_of_first_uses_at_once_with_different_definitions_exactly_one_pins(store: Store) -> None:
    tries = (store.pins.put(make_pin(f"version {n}"), by=None) for n in range(4))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 3
    assert len(await entries_of(store)) == 1


async def test_first_uses_at_once_of_the_same_definition_are_one_pin(store: Store) -> None:
    await asyncio.gather(*(store.pins.put(make_pin(pinned_at=later(n)), by=None) for n in range(4)))

    assert await store.pins.get("github", LAUNCH, "create_issue") == make_pin()
    assert [entry.kind for entry in await entries_of(store)] == ["tool.pinned"]


async def test_a_pinned_definition_is_nobody_elses_to_change(store: Store) -> None:
    definition: dict[str, Json] = {"name": "create_issue"}
    pin = msgspec.structs.replace(make_pin(), definition=definition)
    await store.pins.put(pin, by=None)

    definition["name"] = "delete_all"
    got = await store.pins.get("github", LAUNCH, "create_issue")
    assert got is not None
    assert isinstance(got.definition, dict)
    got.definition["name"] = "delete_all"

    again = await store.pins.get("github", LAUNCH, "create_issue")
    assert again == msgspec.structs.replace(pin, definition={"name": "create_issue"})
