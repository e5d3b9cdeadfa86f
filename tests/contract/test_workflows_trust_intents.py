"""What every store does with paused calls, trusted files, and rules on their way to a file."""

import asyncio

import msgspec
import pytest

from pml.core.approvals.record import ApprovalId
from pml.core.audit.entries import rule_added, workspace_trusted, workspace_untrusted
from pml.core.errors import AlreadyClaimed, NotFound
from pml.core.ports.records import Content, PausedCall, Standing
from pml.core.ports.store import Store
from pml.core.values import Json
from tests.builders import NOW, PATH, PERSON, WORKSPACE, later, make_intent, make_trust, make_workflow, uuid
from tests.contract.steps import CALL, entries_of
from tests.promises import promise

OTHER = "/repo/other/.pml.json"

# --- workflows


async def test_a_workflow_is_stored_as_it_was_issued(store: Store) -> None:
    workflow = make_workflow()
    await store.workflows.issue(workflow)

    assert await store.workflows.get(workflow.id) == workflow
    assert await store.workflows.get(uuid(2)) is None


@promise("values:exact")
async def test_the_call_of_a_workflow_is_stored_exactly_and_stays_when_it_is_continued(store: Store) -> None:
    workflow = msgspec.structs.replace(make_workflow(), call=CALL)
    await store.workflows.issue(workflow)
    assert await store.workflows.get(workflow.id) == workflow

    await store.workflows.consume(workflow.id, at=later(1))

    assert await store.workflows.get(workflow.id) == msgspec.structs.replace(workflow, continued_at=later(1))


@promise("approval:exact-arguments")
async def test_the_call_of_a_workflow_is_nobody_elses_to_change(store: Store) -> None:
    arguments: dict[str, Json] = {"path": "/a"}
    call = PausedCall(tool="fs:read", arguments=arguments, offered=False)
    workflow = msgspec.structs.replace(make_workflow(), call=call)
    await store.workflows.issue(workflow)

    arguments["path"] = "/b"
    got = await store.workflows.get(workflow.id)
    assert got is not None
    assert got.call is not None
    assert got.call.arguments == {"path": "/a"}
    assert isinstance(got.call.arguments, dict)
    got.call.arguments["path"] = "/c"

    again = await store.workflows.get(workflow.id)
    assert again is not None
    assert again.call == msgspec.structs.replace(call, arguments={"path": "/a"})


async def test_a_workflow_is_continued_once(store: Store) -> None:
    workflow = make_workflow()
    await store.workflows.issue(workflow)

    await store.workflows.consume(workflow.id, at=later(1))

    with pytest.raises(AlreadyClaimed, match=workflow.id):
        await store.workflows.consume(workflow.id, at=later(2))
    assert await store.workflows.get(workflow.id) == msgspec.structs.replace(workflow, continued_at=later(1))


@promise("run:at-most-once")
async def test_of_many_that_continue_a_workflow_at_once_exactly_one_does(store: Store) -> None:
    workflow = make_workflow()
    await store.workflows.issue(workflow)

    tries = (store.workflows.consume(workflow.id, at=later(n)) for n in range(8))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, AlreadyClaimed) for outcome in outcomes) == 7


async def test_an_unknown_workflow_cannot_be_continued(store: Store) -> None:
    with pytest.raises(NotFound, match=uuid(1)):
        await store.workflows.consume(uuid(1), at=NOW)


async def test_a_workflow_issued_again_stays_as_it_is_also_when_it_was_continued(store: Store) -> None:
    workflow = make_workflow(1)
    await store.workflows.issue(workflow)
    await store.workflows.issue(make_workflow(1, approval_id=ApprovalId(uuid(2)), created_at=later(1)))
    assert await store.workflows.get(workflow.id) == workflow

    await store.workflows.consume(workflow.id, at=later(2))
    await store.workflows.issue(workflow)

    with pytest.raises(AlreadyClaimed):
        await store.workflows.consume(workflow.id, at=later(3))


# --- trust


async def test_trust_holds_for_exactly_one_content_at_exactly_one_path(store: Store) -> None:
    await store.trusts.add(make_trust(PATH, "sha256:1"))

    assert await store.trusts.holds(PATH, "sha256:1")
    assert not await store.trusts.holds(PATH, "sha256:2")
    assert not await store.trusts.holds(PATH, "SHA256:1")
    assert not await store.trusts.holds(OTHER, "sha256:1")
    assert not await store.trusts.holds(PATH.upper(), "sha256:1")


@promise("trust:exact-content")
async def test_content_that_is_trusted_ends_the_trust_in_the_contents_it_names(store: Store) -> None:
    for trust in (make_trust(PATH, "sha256:1"), make_trust(PATH, "sha256:2"), make_trust(OTHER, "sha256:1")):
        await store.trusts.add(trust)

    await store.trusts.add(make_trust(PATH, "sha256:3", trusted_at=later(1)), ends=["sha256:1", "sha256:9"])

    assert await store.trusts.holds(PATH, "sha256:3")
    assert not await store.trusts.holds(PATH, "sha256:1")
    assert await store.trusts.holds(PATH, "sha256:2")
    assert [content.digest for content in await store.trusts.of(PATH)] == ["sha256:2", "sha256:3"]
    assert await store.trusts.holds(OTHER, "sha256:1")
    assert (await entries_of(store))[3:] == [workspace_trusted(PATH, "sha256:3", at=later(1), by=PERSON)]


@promise("trust:exact-content")
async def test_forgotten_content_is_trusted_no_longer_and_only_that(store: Store) -> None:
    for trust in (make_trust(PATH, "sha256:1"), make_trust(PATH, "sha256:2"), make_trust(OTHER, "sha256:1")):
        await store.trusts.add(trust)

    await store.trusts.forget(PATH, "sha256:1")
    await store.trusts.forget(PATH, "sha256:unknown")

    assert not await store.trusts.holds(PATH, "sha256:1")
    assert await store.trusts.holds(PATH, "sha256:2")
    assert await store.trusts.holds(OTHER, "sha256:1")


async def test_removed_trust_is_gone_for_every_content_of_that_path_only(store: Store) -> None:
    for trust in (make_trust(PATH, "sha256:1"), make_trust(PATH, "sha256:2"), make_trust(OTHER, "sha256:1")):
        await store.trusts.add(trust)

    assert await store.trusts.remove(PATH, at=later(1), by=PERSON) == 2

    assert not await store.trusts.holds(PATH, "sha256:1")
    assert not await store.trusts.holds(PATH, "sha256:2")
    assert await store.trusts.holds(OTHER, "sha256:1")


async def test_trust_given_twice_is_one_trust(store: Store) -> None:
    await store.trusts.add(make_trust())
    await store.trusts.add(make_trust(trusted_at=later(1)))
    await store.trusts.add(make_trust(trusted_at=later(1)))

    assert await store.trusts.remove(PATH, at=later(2), by=PERSON) == 1


async def test_giving_and_taking_trust_is_recorded_and_taking_none_is_not(store: Store) -> None:
    await store.trusts.add(make_trust(PATH, "sha256:1"))
    await store.trusts.remove(PATH, at=later(1), by=PERSON)

    assert await store.trusts.remove(PATH, at=later(2), by=PERSON) == 0
    assert await entries_of(store) == [
        workspace_trusted(PATH, "sha256:1", at=NOW, by=PERSON),
        workspace_untrusted(PATH, at=later(1), by=PERSON),
    ]


@promise("trust:kept")
async def test_the_content_trusted_last_is_kept_until_another_is_found_trusted_or_all_is_forgotten(
    store: Store,
) -> None:
    assert await store.trusts.standing(PATH, "sha256:1") == Standing(trusted=False, kept=None)
    assert await store.trusts.kept(PATH) is None
    for digest in ("sha256:1", "sha256:2"):
        await store.trusts.add(make_trust(PATH, digest))
    two = make_trust(PATH, "sha256:2")
    assert await store.trusts.kept(PATH) == Content(digest=two.digest, content=two.content)
    assert await store.trusts.standing(PATH, None) == Standing(trusted=False, kept="sha256:2")

    await store.trusts.keep(PATH, Content(digest="sha256:1", content="{}"))
    assert await store.trusts.standing(PATH, "sha256:2") == Standing(trusted=True, kept="sha256:1")

    await store.trusts.forget(PATH, "sha256:1")
    assert await store.trusts.remove(PATH, at=later(1), by=PERSON) == 1
    assert await store.trusts.kept(PATH) == Content(digest="sha256:1", content="{}")
    assert await store.trusts.kept(OTHER) is None

    assert await store.trusts.remove(PATH, at=later(2), by=PERSON, kept=True) == 0
    assert await store.trusts.kept(PATH) is None
    assert (await entries_of(store))[-1] == workspace_untrusted(PATH, at=later(2), by=PERSON)
    assert await store.trusts.remove(PATH, at=later(3), by=PERSON, kept=True) == 0
    assert len(await entries_of(store)) == 4


# --- intents


async def test_an_intent_stays_open_until_its_rule_stands_in_the_file(store: Store) -> None:
    first = make_intent(1, entry={"tool": "fs:read", "args": {"path": {"is": "*"}, "n": 1.0}})
    second = make_intent(2, created_at=later(1))
    await store.intents.add(second)
    await store.intents.add(first)
    assert await store.intents.open() == [first, second]

    await store.intents.close(first.id, at=later(2))

    assert await store.intents.open() == [second]
    assert await entries_of(store) == [
        rule_added(WORKSPACE, "allow", first.entry, at=later(2), approval_id=first.approval_id)
    ]


async def test_closing_an_intent_again_or_an_unknown_one_changes_nothing(store: Store) -> None:
    await store.intents.add(make_intent(1))
    await store.intents.close(uuid(1), at=later(1))
    before = await entries_of(store)

    await store.intents.close(uuid(1), at=later(2))
    await store.intents.close(uuid(2), at=later(2))

    assert await entries_of(store) == before


async def test_a_forgotten_intent_is_gone_and_nothing_is_recorded_for_it(store: Store) -> None:
    for n in (1, 2):
        await store.intents.add(make_intent(n))

    await store.intents.forget(uuid(1))
    await store.intents.forget(uuid(3))
    await store.intents.close(uuid(1), at=later(1))

    assert await store.intents.open() == [make_intent(2)]
    assert await entries_of(store) == []


@promise("consent:model-plain-only")
async def test_a_rule_that_a_model_had_written_is_marked_as_its_until_a_person_writes_it(
    store: Store,
) -> None:
    by_model = msgspec.structs.replace(make_intent(1, entry={"tool": "fs:read", "n": 1}), model="agent")
    for intent in (by_model, make_intent(2)):
        await store.intents.add(intent)
        assert [*(await store.intents.of_models(WORKSPACE)).values()] == ["agent"]  # before it is written
        await store.intents.close(intent.id, at=later(1))
    entry = '{"n":1,"tool":"fs:read"}'

    assert await store.intents.of_models(WORKSPACE) == {entry: "agent"}
    assert await store.intents.of_models("/elsewhere") == {}
    await store.intents.unmark(WORKSPACE, {"n": 1, "tool": "fs:read"})
    assert await store.intents.of_models(WORKSPACE) == {}
