"""What names PML itself: a person decides it, whatever rules, grants, switches and parents say."""

import pytest

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Role, Scope, State
from pml.core.config.file import FileKind
from pml.core.errors import Changed, Invalid, MayNotDecide, NotApproved
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.ports.records import Grant
from pml.core.rules.ruleset import Call, Source
from pml.core.servers.process_launch import Artefact, ProcessLaunch
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from pml.service.approvals.cards import card
from pml.service.approvals.claims import claim
from pml.service.approvals.lifecycle import Decision, decide
from pml.service.approvals.previews import preview
from pml.service.call import Gate
from pml.service.calls.workflows import can_last
from pml.service.policy.policy import judge_in_session, remembered_digest
from pml.service.sessions.loopback import due_requests, pending, respond
from tests.builders import FORM, PERSON
from tests.fakes import FakeAsking
from tests.promises import promise
from tests.service.families import BASH, Asker, Family, ask_at_once, gather, join, questions
from tests.service.gatehouses import Gatehouse
from tests.service.offices import Office

ANSWERS: JsonObject = {"command": "pml approvals allow 1234"}
HARMLESS: JsonObject = {"command": "ls"}

ONLY_PERSON = frozenset({Role.PERSON})


@pytest.fixture
async def family(office: Office) -> Family:
    return await gather(office)


@promise("approval:alone")
async def test_it_is_never_allowed_with_others(office: Office, family: Family) -> None:
    record = await Asker(office, family.child, input=ANSWERS).question()
    together = Decision(by=PERSON, digest=record.digest, allow=True, is_batch=True)
    with pytest.raises(MayNotDecide, match="by itself"):
        await decide(office.context, record.id, together)
    await office.deny(record)


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "config",
    [
        {"permissions": {"allow": ["*"]}},
        {"permissions": {"allow": [{"tool": BASH, "args": {"command": {"is": ANSWERS["command"]}}}]}},
        {"approval": {"enabled": False}},
        {"approval": {"parent_may_decide": True}},
        {"approval": {"model_may_approve": "always"}},
    ],
)
async def test_no_rule_and_no_switch_lets_it_pass(office: Office, family: Family, config: JsonObject) -> None:
    office.write(FileKind.USER, config)
    asker = Asker(office, family.child, input=ANSWERS)
    record = await asker.question()

    assert record.deciders == ONLY_PERSON
    assert record.rule is not None
    assert matched(record.rule).verdict == "reserved"

    await office.deny(record)
    assert not (await asker.answer()).allow


@promise("reserved:person-only")
async def test_no_grant_lets_it_pass(office: Office, family: Family) -> None:
    first = Asker(office, family.child, input=ANSWERS, use="use-1")
    record = await first.question()
    grant = Grant(
        id="grant-1",
        session_id=family.child.id,
        tool=BASH,
        digest=remembered_digest(BASH, ANSWERS),
        definition=None,
        artefact=None,
        approval_id=record.id,
        by=PERSON,
        created_at=office.context.clock.now(),
    )
    await office.context.store.grants.add(grant)
    await office.allow(record)
    assert (await first.answer()).allow

    second = Asker(office, family.child, input=ANSWERS, use="use-2")

    assert (await second.question()).deciders == ONLY_PERSON
    await second.lose()


@promise("reserved:not-remembered")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_an_answer_is_neither_offered_nor_taken_for_longer_than_once(
    office: Office, family: Family, scope: Scope
) -> None:
    asker = Asker(office, family.child, input=ANSWERS)
    record = await asker.question()

    shown = await card(office.context, record, whole=True)
    assert (shown.remember, shown.always, shown.always_exactly) == (None, None, None)
    assert ((await preview(office.context, record, by=PERSON)).always, can_last(record)) == (None, False)
    with pytest.raises(Invalid, match="asked about every time"):
        await office.allow(record, scope=scope)
    assert await office.status(record) is State.PENDING
    await asker.lose()


@promise("reserved:person-only")
async def test_a_command_that_names_the_home_of_this_very_pml_is_one(office: Office, family: Family) -> None:
    office.write_rules(allow=["*"])
    asker = Asker(office, family.child, "Read", {"file_path": f"{office.home}/config.json"})

    assert (await asker.question()).deciders == ONLY_PERSON
    await asker.lose()


@promise("reserved:settings-files")
@pytest.mark.parametrize("file", [".pml.json", ".mcp.json", ".claude/settings.local.json"])
async def test_a_write_to_a_settings_file_is_a_persons_whatever_allows_it(
    office: Office, family: Family, file: str
) -> None:
    office.write_rules(allow=["*", "Write"])
    asker = Asker(office, family.child, "Write", {"file_path": file, "content": "{}"})

    record = await asker.question()
    assert record.deciders == ONLY_PERSON
    assert record.rule is not None
    assert "says what agents may do" in matched(record.rule).entry
    await asker.lose()


@promise("reserved:settings-files")
async def test_a_forms_answer_does_not_reach_a_settings_file_by_a_link_made_after_it(office: Office) -> None:
    draft = office.workspace / "draft.txt"
    draft.write_text("x")
    asked = await office.ask("files:write", {"path": "draft.txt"}, deciders=frozenset({Role.FORM}))
    await office.allow(asked, by=FORM)
    draft.unlink()
    draft.symlink_to(".pml.json")

    with pytest.raises(Changed, match="was not a person's to give"):
        await claim(office.context, asked.id)
    assert await office.status(asked) is State.CANCELLED


@promise("reserved:bounded")
async def test_more_than_is_looked_through_asks_a_person_whatever_allows_it(
    office: Office, family: Family
) -> None:
    office.write_rules(allow=["*"])
    paths = [f"/x{number}" for number in range(15_000)]
    asker = Asker(office, family.child, "files:read", {"paths": paths})

    record = await asker.question()
    assert record.deciders == ONLY_PERSON
    assert record.rule is not None
    assert "more than PML looks through" in matched(record.rule).entry
    await asker.lose()


async def test_a_deny_still_denies_it(office: Office, family: Family) -> None:
    office.write_rules(deny=[BASH])

    assert not (await ask_at_once(office, family.child, input=ANSWERS)).allow
    assert await questions(office) == []


@promise("reserved:person-only")
async def test_no_parent_decides_it_or_is_woken_by_it(office: Office, family: Family) -> None:
    asker = Asker(office, family.child, input=ANSWERS)
    record = await asker.question()

    for allow in (True, False):
        with pytest.raises(MayNotDecide):
            await respond(office.context, family.parent, record.id, allow=allow)
    with pytest.raises(MayNotDecide):
        await respond(office.context, family.parent, record.id, allow=True, updated_input=HARMLESS)

    assert await office.stored(record) == record
    assert [each.may_decide for each in await pending(office.context, family.parent)] == [False]
    assert await due_requests(office.context, family.parent, of=None) == ([], None)
    await asker.lose()


@promise("reserved:person-only")
async def test_no_parent_edits_another_command_into_one(office: Office, family: Family) -> None:
    asker = Asker(office, family.child, input=HARMLESS)
    record = await asker.question()

    with pytest.raises(MayNotDecide, match="names PML itself"):
        await respond(office.context, family.parent, record.id, allow=True, updated_input=ANSWERS)

    assert await office.stored(record) == record
    await asker.lose()


async def test_a_person_may_allow_it_and_edit_a_command_into_one(office: Office, family: Family) -> None:
    plain, edited = (
        Asker(office, family.child, input=ANSWERS, use="use-1"),
        Asker(office, family.child, input=HARMLESS, use="use-2"),
    )

    await office.allow(await plain.question())
    await office.allow(await edited.question(), updated_input=ANSWERS)

    assert (await plain.answer()).allow
    assert (await edited.answer()).input == ANSWERS


async def test_a_text_with_the_name_in_it_asks_nobody(office: Office, family: Family) -> None:
    office.write_rules(allow=["notes:*"])

    assert (await ask_at_once(office, family.child, "notes:add", {"text": "what is pml?"})).allow


@promise("reserved:person-only")
@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("config", [{"permissions": {"allow": ["*"]}}, {"approval": {"enabled": False}}, {}])
async def test_the_gateway_asks_a_person_too(house: Gatehouse, config: JsonObject, offered: bool) -> None:
    house.office.write(FileKind.USER, {"mcpServers": house.configured, **config})
    asking = FakeAsking(house.denying(), has_form=True)

    with pytest.raises(NotApproved):
        await house.call(arguments={"text": "x", "command": "pml trust"}, asking=asking, offered=offered)

    assert [record.deciders for record in asking.asked] == [ONLY_PERSON]
    assert house.servers.ran == []


async def test_the_gateway_runs_it_when_a_person_allowed_it(house: Gatehouse) -> None:
    await house.call(
        arguments={"text": "x", "command": "pml trust"}, asking=FakeAsking(house.allowing(), has_form=True)
    )

    assert len(house.servers.ran) == 1
    assert await house.states() == [State.COMPLETED]


@promise("reserved:person-only")
async def test_the_gateway_asks_a_person_for_what_a_child_calls(house: Gatehouse, family: Family) -> None:
    child = await join(house.office, "launched", parent=family.parent, waits=True)
    gate = Gate(context=house.office.context, session=child, servers=house.servers)
    house.gate = gate
    asking = FakeAsking(house.denying())

    with pytest.raises(NotApproved):
        await house.call(arguments={"text": "x", "command": "pml trust"}, asking=asking)

    assert [record.deciders for record in asking.asked] == [ONLY_PERSON]


@promise("reserved:own-folder")
async def test_an_installed_server_may_be_told_what_looks_like_a_path_in_its_own_folder(
    office: Office,
) -> None:
    office.write_rules(allow=["*"])
    artefact = Artefact(
        version="1.0.0",
        terms="terms",
        path=f"{office.home}/servers/time",
        tree="tree",
        state=f"{office.home}/state/time",
        needs=(),
        env_required=(),
        containment=Containment.BUBBLEWRAP,
        is_accepted=True,
    )
    spec = ServerSpec(
        name="time",
        target=ProcessLaunch(
            command="time",
            env={"HOME": artefact.state},
            permissions=Permissions(workspace=Access.NONE),
            artefact=artefact,
        ),
        source=Source(file="deps.json", line=1),
    )
    session = await office.session()
    starts = spec.target.starts(workspace=session.workspace, home=str(office.home))

    async def is_reserved(text: str) -> bool:
        call = Call(tool="time:now", arguments={"timezone": text}, cwd=session.workspace, starts=starts)
        return (await judge_in_session(office.context, session, call)).reserved

    assert not await is_reserved("Asia/Tokyo")
    assert await is_reserved("../../config.json")
    assert await is_reserved("../other/notes")
    assert await is_reserved(f"{office.home}/config.json")
