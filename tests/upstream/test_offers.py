"""What a server offers: read whole, sorted, cleaned, kept, and read again after a change."""

from math import inf

import pytest

from pml.core.errors import Changed, ServerFailed
from pml.core.servers.manifest import Manifest
from pml.core.servers.spec import ServerSpec
from pml.upstream.fleet import Fleet
from pml.upstream.limits import Limits
from pml.upstream.log import ServerLog
from pml.upstream.server_run import CALM_S, Run
from tests.upstream.fleets import Harbour, odd, until, use
from tests.upstream.odd_server import TOOLS


async def settled(fleet: Fleet, spec: ServerSpec) -> Manifest:
    """Read what the server offers, as often as a call does, until that counts."""
    for _ in range(8):
        if (live := fleet.live(spec)) is not None:
            return live
        await fleet.manifest(spec)
    raise AssertionError("the server changes too often")


async def test_the_manifest_holds_all_that_is_offered_in_a_fixed_order(harbour: Harbour) -> None:
    spec = odd("rich")
    manifest = await harbour.fleet().manifest(spec)
    assert [tool["name"] for tool in manifest.tools] == sorted(TOOLS)
    assert manifest.prompts == ({"name": "greet", "title": "Greet"},)
    assert manifest.resources == ({"uri": "memo://1", "name": "memo"},)
    assert manifest.templates == ()  # the server refuses that list, which costs nothing else
    assert manifest.instructions == "be careful"
    assert (manifest.server, manifest.target_digest) == ("odd", spec.target_digest)


async def test_pages_are_put_together(harbour: Harbour) -> None:
    manifest = await harbour.fleet().manifest(odd("pages"))
    assert [tool["name"] for tool in manifest.tools] == sorted(TOOLS)


async def test_pages_without_end_are_ended(harbour: Harbour) -> None:
    fleet = harbour.fleet(limits=Limits(pages=3))
    assert (await fleet.manifest(odd("endless-pages"))).tools == ()
    assert "more than 3 pages" in harbour.log()


async def test_entries_that_cannot_be_used_are_left_out_and_noted(harbour: Harbour) -> None:
    manifest = await harbour.fleet().manifest(odd("bad-tools"))
    assert [(tool["name"], tool["description"]) for tool in manifest.tools] == [
        ("echo", "first"),
        ("last", "Does last."),
    ]
    log = harbour.log()
    for reason in (
        "`echo` is there twice",
        "`*` and `?`",
        "`name` is not text",
        "blanks",
        "key 'name' twice",
    ):
        assert reason in log


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2026-07-28"])
async def test_every_version_from_the_first_on_is_spoken(harbour: Harbour, version: str) -> None:
    assert (await harbour.fleet().manifest(odd(f"version={version}"))).tools


async def test_the_manifest_is_kept_and_announced_only_when_it_changed(harbour: Harbour) -> None:
    spec = odd()
    for _ in range(2):
        fleet = harbour.fleet()
        await fleet.manifest(spec)
        await fleet.close()
    assert harbour.manifests.puts == 1
    assert harbour.client.changes == [("odd", "tools")]


async def test_a_change_is_announced_once_and_read_when_it_is_needed(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    before = await fleet.manifest(spec)
    harbour.client.changes.clear()
    await use(fleet, spec, "change", name="newcomer", times=3)
    assert fleet.live(spec) is None
    after = await fleet.manifest(spec)
    while fleet.live(spec) is None:  # the last announcement may come while the first one is being read
        after = await fleet.manifest(spec)
    assert after is not before
    assert after is fleet.live(spec)
    assert after.tool("newcomer") is not None
    assert harbour.client.changes == [("odd", "tools")]
    assert harbour.manifests.kept["odd", spec.target_digest] == after


async def test_a_change_is_read_unasked_and_kept_before_the_client_is_told(harbour: Harbour) -> None:
    fleet, spec, found = harbour.fleet(), odd(), list[bool]()
    await fleet.manifest(spec)

    def look(server: str, kind: str) -> None:
        found.append(harbour.manifests.kept[server, spec.target_digest].tool("newcomer") is not None)

    harbour.client.changed = look  # type: ignore[method-assign]
    await use(fleet, spec, "change", name="newcomer", times=3)
    await until(lambda: found != [])
    assert found == [True]
    await until(lambda: fleet.live(spec) is not None)  # it is read once more for what was announced meanwhile
    now = fleet.live(spec)
    assert now is not None
    assert now.tool("newcomer") is not None


async def test_an_announcement_of_nothing_is_not_passed_on(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd()
    seen = await fleet.manifest(spec)
    harbour.client.changes.clear()
    await use(fleet, spec, "flood", times=1)
    assert fleet.live(spec) is None
    await until(lambda: fleet.live(spec) is seen)
    assert harbour.client.changes == []


async def test_a_server_that_announces_a_change_after_every_list_can_be_used(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd("chatty")
    for n in range(10):
        seen = await settled(fleet, spec)
        assert await use(fleet, spec, "echo", seen=seen, n=n) == {"n": n}
    assert harbour.client.changes == [("odd", "tools")]


async def test_a_change_of_a_server_that_announces_all_the_time_is_found(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd("chatty")
    for _ in range(4):
        await fleet.manifest(spec)
    seen = await settled(fleet, spec)
    await use(fleet, spec, "change", name="newcomer")
    await until(lambda: fleet.live(spec) is not seen)
    with pytest.raises(Changed):
        await use(fleet, spec, "echo", seen=seen)
    assert (await fleet.manifest(spec)).tool("newcomer") is not None
    assert harbour.client.changes == [("odd", "tools")] * 2


async def test_only_after_announcements_of_nothing_is_the_next_left_unread_and_not_for_long(
    harbour: Harbour,
) -> None:
    spec = odd()
    log = ServerLog(harbour.home / "run.log", secrets={}, limits=Limits())
    run = Run(spec, spec.target_digest, log, Limits())
    rests = [run.rest_s(10.0)]
    for is_crying_wolf in (False, True, True):
        run.note_read(was_needed=False, now=10.0)
        assert run.is_crying_wolf(10.0) is is_crying_wolf
        assert not run.is_crying_wolf(10.0 + CALM_S)
        rests.append(run.rest_s(10.0))
    assert rests == [-inf, 2 * CALM_S, 4 * CALM_S, 8 * CALM_S]
    run.note_read(was_needed=True, now=10.0)
    assert (run.is_crying_wolf(10.0), run.rest_s(10.0)) == (False, CALM_S)
    log.close()


async def test_a_change_of_resources_is_read_again_too(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(), odd("rich")
    before = await fleet.manifest(spec)
    harbour.client.changes.clear()
    await use(fleet, spec, "change", kind="resources", name="2")
    after = await fleet.manifest(spec)
    assert [resource["uri"] for resource in after.resources] == ["memo://1", "memo://2"]
    assert after.tools == before.tools
    assert harbour.client.changes == [("odd", "resources")]


async def test_a_server_that_is_too_busy_to_tell_what_changed_goes_on(harbour: Harbour) -> None:
    fleet, spec = harbour.fleet(limits=Limits(start_s=2.0)), odd()
    await fleet.manifest(spec)
    [pid] = harbour.pids()
    await use(fleet, spec, "change", name="newcomer", then="be busy")
    with pytest.raises(ServerFailed, match="did not say what it offers within 2 s"):
        await fleet.manifest(spec)
    assert (await fleet.manifest(spec)).tool("newcomer") is not None
    assert harbour.pids() == [pid]


async def test_a_store_that_fails_costs_only_the_cache(harbour: Harbour) -> None:
    harbour.manifests.is_broken = True
    assert await use(harbour.fleet(), odd(), "echo", a=1) == {"a": 1}
    assert "not kept: the store is gone" in harbour.log()
