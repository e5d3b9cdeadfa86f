"""What a capability needs is told before it runs, asked about once, and allowed for that run only."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from pml.core.approvals.reasons import matched
from pml.core.approvals.record import Role, Scope, SessionId, State, Subject
from pml.core.approvals.subjects import asked_facts, why_asked
from pml.core.code.sandbox import Language
from pml.core.code.static_calls import static_calls
from pml.core.config.file import FileKind
from pml.core.errors import Changed, NotApproved, ServerFailed, ToolDenied
from pml.core.packages.capability import CapabilityType
from pml.core.ports.queries import AuditQuery
from pml.core.values import Json, JsonObject
from pml.service.call import Paused
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.promises import promise
from tests.service.codehouses import (
    Library,
    add,
    catching,
    code_that_calls,
    enter_library,
    one_by_one,
)
from tests.service.offices import Office, rules_of

CAP = "digest:run"
TWO = one_by_one(add("one"), ("notes:list", {}))
LISTED = ("notes:add", "notes:list")


@pytest.fixture
async def house(office: Office) -> Library:
    house = await enter_library(office)
    house.publish("digest", TWO, *LISTED)
    return house


def nothing_happened(house: Library) -> bool:
    return not (house.sandbox.opened or house.servers.started or house.servers.ran)


# Denied: nothing of it runs


@promise("capability:needs-first")
@pytest.mark.parametrize("deny", ["notes:list", "notes:*", "*:list"])
async def test_a_capability_that_calls_a_denied_tool_is_refused_before_anything_runs(
    house: Library, deny: str
) -> None:
    house.configure(deny=[deny], allow=[CAP, "notes:add"])

    with pytest.raises(ToolDenied) as refused:
        await house.use(CAP)

    assert "acme.tools.digest" in (refused.value.hint or "")
    assert nothing_happened(house)
    assert await house.questions() == []


@promise("capability:needs-first")
async def test_nothing_is_fetched_or_installed_for_a_capability_that_calls_a_denied_tool(
    house: Library,
) -> None:
    house.publish("digest", TWO, *LISTED, "memory:add", dependencies=[make_dependency()])
    house.configure(deny=["notes:list"])

    with pytest.raises(ToolDenied):
        await house.use(CAP)

    assert house.sources.read == ["acme.tools.digest"]
    assert (house.installer.resolved, house.installs) == ([], [])


@promise("capability:needs-first")
@pytest.mark.parametrize("allow", ["*", CAP])
async def test_a_capability_of_a_session_that_was_not_given_its_tools_is_refused(
    house: Library, allow: str
) -> None:
    session = await house.office.session(SessionId("given"), parent_id=house.session.id)
    house.equip(session=replace(session, tools=(CAP, "notes:add")))
    house.configure(allow=[allow])

    with pytest.raises(ToolDenied, match="notes:list"):
        await house.use(CAP)

    assert nothing_happened(house)


async def test_a_deny_that_depends_on_arguments_stops_only_the_call_that_has_them(house: Library) -> None:
    house.configure(deny=[{"tool": "notes:add", "args": {"text": "two"}}], allow=[CAP, "notes:*"])
    house.publish("digest", catching(add("one"), add("two"), add("three")), *LISTED)

    assert await house.use(CAP) == [None, "TOOL_DENIED", None]
    assert house.added == ["one", "three"]


def _listed(rule: Any) -> list[str]:
    assert rule is not None
    return json.loads(matched(rule).entry)["calls"]


@promise("gate:deny-starts-nothing")
async def test_the_code_of_a_denied_capability_is_not_even_read(house: Library) -> None:
    house.configure(deny=[CAP])

    with pytest.raises(ToolDenied):
        await house.use(CAP)

    assert (house.sources.looked_up, house.sources.read) == ([], [])


# Asked: one question with the whole list


@promise("capability:needs-first")
async def test_a_capability_asks_once_with_the_whole_list_of_what_it_calls(house: Library) -> None:
    house.configure(allow=["notes:list"], ask=["notes:add"])
    asking = FakeAsking(house.allowing())

    assert await house.use(CAP, asking=asking) == "done"

    (record,) = asking.asked
    assert _listed(record.rule) == ["notes:add", "notes:list (allowed)"]
    facts = dict(asked_facts(record))
    assert facts["calls"] == "notes:add\nnotes:list (allowed)"
    assert "this run only" in facts["covers"]
    assert why_asked(record) == "no rule allows this capability and all that its code calls"
    assert house.added == ["one", None]


async def test_code_that_may_call_others_says_so_in_its_question(house: Library) -> None:
    house.publish("digest", TWO, *LISTED, dynamic=True)

    paused = await house.leave(CAP)

    assert _listed(paused.record.rule) == [*LISTED, "others, each of which is asked about"]


async def test_a_python_capability_is_read_like_a_typescript_one(house: Library) -> None:
    code = "async def run(args, mcp):\n    await mcp.notes.add(text='one')\n    return mcp.notes.list()"
    house.publish("digest", TWO, code=code, kind=CapabilityType.PYTHON)
    house.configure(deny=["notes:list"], allow=[CAP, "notes:add"])

    with pytest.raises(ToolDenied):
        await house.use(CAP)


@promise("gate:asks-before-running")
async def test_a_capability_that_is_allowed_asks_for_tools_that_are_not(house: Library) -> None:
    house.configure(allow=[CAP])

    await house.leave(CAP)

    assert nothing_happened(house)


async def test_a_capability_whose_tools_are_all_allowed_runs_unasked(house: Library) -> None:
    house.configure(allow=[CAP, "notes:*"])
    asking = FakeAsking()

    assert await house.use(CAP, asking=asking) == "done"
    assert asking.asked == []


@promise("consent:model-plain-only")
@promise("consent:parent-unlisted-only")
@pytest.mark.parametrize("ask", [[], ["notes:add"]])
async def test_neither_model_nor_parent_allows_a_capability_that_calls_a_tool_that_a_rule_names(
    house: Library, ask: list[Json]
) -> None:
    session = await house.office.session(SessionId("child"), parent_id=house.session.id)
    house.configure(approval={"model_may_approve": "always", "parent_may_decide": "unlisted"}, ask=ask)
    of_model = await house.leave(CAP)
    house.equip(session=session)
    of_child = await house.leave(CAP)

    assert (Role.MODEL in of_model.record.deciders) is (ask == [])
    assert (Role.PARENT in of_child.record.deciders) is (ask == [])


@promise("gate:asks-before-running")
async def test_a_capability_that_somebody_says_no_to_does_not_run(house: Library) -> None:
    with pytest.raises(NotApproved, match="denied by user"):
        await house.use(CAP, asking=FakeAsking(house.denying()))

    assert nothing_happened(house)


@promise("capability:list-shown")
async def test_a_call_that_names_pml_itself_also_tells_what_its_allowing_covers(house: Library) -> None:
    arguments: JsonObject = {"path": f"{house.office.home}/config.json"}
    asking = FakeAsking(house.allowing(), house.allowing(), house.allowing(), has_form=True)

    assert await house.use(CAP, arguments, asking=asking) == "done"

    told = [line for record in asking.asked for line in (_told(record.rule), record.tool_name)]
    assert all(any(tool in line for line in told) for tool in LISTED)


def _told(rule: Any) -> str:
    return "" if rule is None else matched(rule).entry


# Allowed: the listed tools, in this run


@promise("capability:covers-this-run")
async def test_what_was_not_listed_asks_for_itself(house: Library) -> None:
    house.publish("digest", one_by_one(add("one"), ("notes:list", {})), "notes:add", dynamic=True)
    asking = FakeAsking(house.allowing())

    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=asking)

    assert paused.value.record.tool_name == "notes:list"
    assert house.added == ["one"]


@promise("capability:covers-this-run")
async def test_a_second_run_asks_again(house: Library) -> None:
    assert await house.use(CAP, asking=FakeAsking(house.allowing())) == "done"

    again = await house.leave(CAP)

    assert again.record.tool_name == CAP
    assert len(house.sandbox.opened) == 1


@promise("capability:covers-this-run")
async def test_what_a_run_was_allowed_does_not_hold_outside_it(house: Library) -> None:
    house.publish("digest", one_by_one(add("one"), add("two")), "notes:add")
    outside: list[Paused] = []

    async def call_meanwhile() -> None:
        house.servers.before_request = None
        outside.append(await house.pause("notes:add", {"text": "outside"}))

    house.servers.before_request = call_meanwhile
    await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert [paused.record.tool_name for paused in outside] == ["notes:add"]
    assert house.added == ["one", "two"]


@promise("capability:covers-this-run")
async def test_what_an_outer_capability_was_allowed_does_not_hold_for_the_inner_one(house: Library) -> None:
    house.publish("inner", one_by_one(add("inner")), "notes:add")
    house.publish("digest", one_by_one(add("one"), ("inner:run", {})), "notes:add", "inner:run")
    asking = FakeAsking(house.allowing(), has_form=True)

    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=asking)

    assert [record.tool_name for record in asking.asked] == [CAP, "inner:run"]
    assert _listed(paused.value.record.rule) == ["notes:add"]
    assert house.added == ["one"]


@promise("capability:covers-this-run")
async def test_a_command_is_always_shown_itself(house: Library) -> None:
    house.publish("digest", one_by_one(("notes:run", {"command": "ls"})), "notes:run")

    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.tool_name == "notes:run"
    assert paused.value.record.tool_input == {"command": "ls"}
    assert house.servers.ran == []


@promise("reserved:person-only")
async def test_a_call_that_names_pml_itself_is_a_persons_whatever_the_run_was_allowed(house: Library) -> None:
    house.publish("digest", one_by_one(add(f"see {house.office.home}/config.json")), "notes:add")

    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.deciders == frozenset({Role.PERSON})
    assert house.servers.ran == []


@promise("reserved:person-only")
async def test_a_call_that_names_pml_itself_is_a_persons_though_the_run_was_allowed_its_tool_by_name(
    house: Library,
) -> None:
    house.configure(ask=["notes:add"])
    house.publish("digest", one_by_one(add(f"see {house.office.home}/config.json")), "notes:add")

    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.tool_name == "notes:add"
    assert paused.value.record.deciders == frozenset({Role.PERSON})
    assert house.servers.ran == []


@promise("capability:covers-this-run")
async def test_while_a_file_is_broken_nothing_is_covered(house: Library) -> None:
    house.publish("digest", one_by_one(add("one"), add("two")), "notes:add")

    async def break_file() -> None:
        house.office.path(FileKind.WORKSPACE).write_text("{")

    house.servers.before_request = break_file
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.tool_input == {"text": "two"}
    assert house.added == ["one"]


@promise("capability:covers-this-run")
async def test_while_a_file_is_broken_nothing_is_covered_that_a_rule_asked_about(house: Library) -> None:
    house.configure(ask=["notes:add"])
    house.publish("digest", one_by_one(add("one"), add("two")), "notes:add")

    async def break_file() -> None:
        house.office.path(FileKind.WORKSPACE).write_text("{")

    house.servers.before_request = break_file
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.tool_input == {"text": "two"}
    assert house.added == ["one"]


@promise("claim:judged-again")
async def test_a_deny_that_comes_while_it_runs_stops_the_next_call(house: Library) -> None:
    house.publish("digest", catching(add("one"), add("two"), ("notes:list", {})), *LISTED)

    async def deny() -> None:
        house.configure(deny=["notes:add"])

    house.servers.before_request = deny
    told = await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert told == [None, "TOOL_DENIED", None]
    assert house.added == ["one", None]


@promise("claim:judged-again")
async def test_a_rule_that_asks_since_the_run_was_allowed_is_asked_about(house: Library) -> None:
    house.publish("digest", one_by_one(add("one"), add("two")), *LISTED)

    async def tighten() -> None:
        house.servers.before_request = None
        house.configure(ask=["notes:add"])

    house.servers.before_request = tighten
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert (paused.value.record.tool_name, house.added) == ("notes:add", ["one"])


@promise("claim:judged-again")
async def test_a_call_that_a_rule_asks_about_for_its_arguments_is_not_covered_by_the_name_of_its_tool(
    house: Library,
) -> None:
    house.configure(ask=["notes:add"])
    house.publish("digest", one_by_one(add("one"), add("two"), add("three")), "notes:add")

    async def narrow() -> None:
        house.servers.before_request = None
        house.configure(ask=[{"tool": "notes:add", "args": {"text": "three"}}])

    house.servers.before_request = narrow
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))

    assert paused.value.record.tool_input == {"text": "three"}
    assert house.added == ["one", "two"]


@promise("capability:covers-this-run")
async def test_what_a_rule_asked_about_when_the_run_was_allowed_is_covered(house: Library) -> None:
    house.configure(ask=["notes:add"])

    assert await house.use(CAP, asking=FakeAsking(house.allowing())) == "done"


@promise("claim:judged-again")
@pytest.mark.parametrize("deny", ["notes:list", CAP])
async def test_a_deny_that_comes_before_an_allowed_capability_runs_stops_it(
    house: Library, deny: str
) -> None:
    paused = await house.leave(CAP)
    await house.allow(paused.record)
    house.configure(deny=[deny])

    with pytest.raises(ToolDenied):
        await house.resume(paused)

    assert nothing_happened(house)


@promise("claim:judged-again")
async def test_a_deny_that_comes_while_code_waits_stops_the_call_that_was_allowed(house: Library) -> None:
    house.publish("digest", catching(add("one"), ("notes:run", {"command": "ls"}), add("two")), *LISTED)
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))
    await house.allow(paused.value.record)
    house.configure(deny=["notes:run", {"tool": "notes:add", "args": {"text": "two"}}])

    assert await house.resume(paused.value) == [None, "TOOL_DENIED", "TOOL_DENIED"]
    assert house.added == ["one"]


@promise("claim:judged-again")
async def test_a_capability_that_is_denied_while_it_waits_does_not_go_on(house: Library) -> None:
    house.publish("digest", one_by_one(("notes:run", {"command": "ls"}), add("after")), *LISTED)
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))
    await house.allow(paused.value.record)
    house.configure(deny=[CAP])

    with pytest.raises(ToolDenied):
        await house.resume(paused.value)

    assert house.servers.ran == []


# Remembered


@promise("always:only-what-was-shown")
async def test_a_session_remembers_the_name_and_asks_again_for_what_it_calls(house: Library) -> None:
    asking = FakeAsking(house.allowing(scope=Scope.SESSION))
    await house.use(CAP, asking=asking)
    again = await house.leave(CAP)

    assert again.record.artefact == asking.asked[0].artefact
    assert len(house.sandbox.opened) == 1


@promise("always:only-what-was-shown")
async def test_a_session_remembers_a_capability_with_exactly_this_code(house: Library) -> None:
    house.configure(allow=["notes:*"])
    asking = FakeAsking(house.allowing(scope=Scope.SESSION))
    await house.use(CAP, asking=asking)
    assert await house.use(CAP, asking=asking) == "done"
    assert len(asking.asked) == 1

    house.publish("digest", TWO, *LISTED, note="another text, the same calls")
    changed = await house.leave(CAP)

    assert changed.record.artefact != asking.asked[0].artefact
    assert len(house.sandbox.opened) == 2


@promise("always:only-what-was-shown")
async def test_what_the_registry_says_of_it_is_part_of_what_was_remembered(house: Library) -> None:
    house.configure(allow=["notes:*"])
    await house.use(CAP, asking=FakeAsking(house.allowing(scope=Scope.SESSION)))

    house.publish("digest", TWO, *LISTED, dependencies=[make_dependency()])

    assert (await house.leave(CAP)).record.tool_name == CAP


@promise("always:only-what-was-shown")
async def test_always_writes_the_capabilitys_name_and_none_of_its_tools(house: Library) -> None:
    await house.use(CAP, asking=FakeAsking(house.allowing(scope=Scope.ALWAYS)))

    assert rules_of(house.office.read(FileKind.WORKSPACE), "allow") == [CAP]
    again = await house.leave(CAP)
    assert _listed(again.record.rule) == list(LISTED)
    assert (await house.pause("notes:list", {})).record.tool_name == "notes:list"


# Changed between question and claim


@promise("gate:approved-is-executed")
async def test_code_that_changed_since_it_was_asked_about_does_not_run_on_that_answer(
    house: Library,
) -> None:
    async def change_and_allow(record: Any) -> Any:
        house.publish("digest", one_by_one(add("other")), *LISTED, note="other code")
        return (await house.office.allow(record)).record

    with pytest.raises(Changed):
        await house.use(CAP, asking=FakeAsking(change_and_allow))

    assert nothing_happened(house)


@promise("gate:approved-is-executed")
async def test_code_that_changed_while_its_question_waited_is_asked_about_anew(house: Library) -> None:
    paused = await house.leave(CAP)
    await house.allow(paused.record)
    house.publish("digest", one_by_one(add("other")), *LISTED, note="other code")

    with pytest.raises(Paused) as again:
        await house.resume(paused)

    assert again.value.record.id != paused.record.id
    assert nothing_happened(house)


async def test_a_capability_that_is_gone_from_the_registry_does_not_run_on_an_answer(house: Library) -> None:
    async def withdraw_and_allow(record: Any) -> Any:
        house.sources.publish(
            "acme.tools.digest", None, make_dependency("digest"), kind=CapabilityType.SERVER
        )
        return (await house.office.allow(record)).record

    with pytest.raises(Changed):
        await house.use(CAP, asking=FakeAsking(withdraw_and_allow))

    assert nothing_happened(house)


# Who may allow it


@promise("supervise:deny-never-lifted")
@pytest.mark.parametrize(
    ("globs", "may"),
    [
        ([CAP], False),
        ([CAP, "notes:add"], False),
        ([CAP, "notes:add", "notes:list"], True),
        ([CAP, "notes:*"], True),
        (["notes:*"], False),
        (True, True),
        (False, False),
    ],
)
async def test_a_parent_decides_about_a_capability_only_if_it_may_for_all_it_calls(
    house: Library, globs: Any, may: bool
) -> None:
    child = await house.office.session(SessionId("child"), parent_id=house.session.id)
    house.equip(session=child)
    house.configure(approval={"parent_may_decide": globs})

    paused = await house.leave(CAP)

    assert (Role.PARENT in paused.record.deciders) is may


@promise("supervise:deny-never-lifted")
async def test_a_parent_need_not_be_trusted_with_what_a_rule_allows_anyway(house: Library) -> None:
    child = await house.office.session(SessionId("child"), parent_id=house.session.id)
    house.equip(session=child)
    house.configure(approval={"parent_may_decide": [CAP, "notes:add"]}, allow=["notes:list"])

    assert Role.PARENT in (await house.leave(CAP)).record.deciders


# The servers that it brings along


@promise("load:asked-before-installed")
async def test_a_capabilitys_server_is_installed_after_consent_and_used(house: Library) -> None:
    house.publish("digest", one_by_one(("memory:add", {"text": "kept"})), dependencies=[make_dependency()])
    with pytest.raises(Paused) as paused:
        await house.use(CAP, asking=FakeAsking(house.allowing()))
    assert paused.value.record.subject is Subject.DEPENDENCY_INSTALL
    assert house.installs == []

    await house.allow(paused.value.record)
    assert await house.resume(paused.value) == "done"

    assert house.installs == ["memory@1.2.3"]
    assert house.servers.ran == [("memory", "tools/call", {"name": "add", "arguments": {"text": "kept"}})]


@promise("load:asked-before-installed")
async def test_a_no_to_a_capabilitys_server_is_an_error_in_its_code(house: Library) -> None:
    house.publish("digest", catching(("memory:add", {"text": "kept"})), dependencies=[make_dependency()])

    told = await house.use(CAP, asking=FakeAsking(house.allowing(), house.denying()))

    assert told == ["dependency_refused"]
    assert (house.installs, house.servers.ran) == ([], [])


async def test_a_capability_whose_server_has_the_name_of_a_configured_one_is_refused(house: Library) -> None:
    house.publish("digest", TWO, *LISTED, dependencies=[make_dependency("notes")])
    house.configure(allow=["*"])

    with pytest.raises(ServerFailed, match="that name means another one"):
        await house.use(CAP)

    assert nothing_happened(house)
    assert house.sources.read == []


async def test_a_capability_whose_server_has_the_name_of_one_in_the_catalog_is_refused(
    house: Library,
) -> None:
    house.sources.offer("memory", make_dependency())
    house.publish("digest", TWO, *LISTED, dependencies=[make_dependency(version="6.6.6")])
    house.configure(allow=["*"])

    with pytest.raises(ServerFailed, match="that name means another one"):
        await house.use(CAP)

    assert nothing_happened(house)


@promise("gate:deny-starts-nothing")
async def test_a_capability_whose_server_is_denied_as_a_whole_is_refused(house: Library) -> None:
    house.publish("digest", TWO, *LISTED, dependencies=[make_dependency()])
    house.configure(deny=["memory:*"], allow=["*"])

    with pytest.raises(ToolDenied):
        await house.use(CAP)

    assert nothing_happened(house)


async def test_the_server_of_one_capability_is_not_found_by_other_code(house: Library) -> None:
    house.publish("digest", TWO, *LISTED, dependencies=[make_dependency()])
    house.configure(allow=["*"])
    house.sandbox.scripts["other"] = catching(("memory:add", {"text": "x"}))

    assert await house.run("other") == ["not_found"]
    assert (house.installer.resolved, house.servers.ran) == ([], [])


@promise("load:exactly-what-was-approved")
async def test_a_server_that_is_installed_on_other_terms_is_not_taken_for_the_capabilitys_own(
    house: Library,
) -> None:
    house.place(make_dependency(args=("--everything",)))
    house.publish("digest", one_by_one(("memory:add", {"text": "kept"})), dependencies=[make_dependency()])
    house.configure(allow=[CAP])

    paused = await house.leave(CAP)

    assert paused.record.subject is Subject.DEPENDENCY_INSTALL
    assert house.servers.ran == []


@promise("load:exactly-what-was-approved")
@pytest.mark.parametrize("first", ["first", "digest"])
async def test_a_server_that_was_loaded_on_other_terms_is_not_used_either(house: Library, first: str) -> None:
    script = one_by_one(("memory:add", {"text": "kept"}))
    other = make_dependency(args=("--everything",))
    house.place(other)
    house.publish(first, script, dependencies=[other])
    house.configure(allow=[CAP, "first:run", "memory:*"])
    await house.use(f"{first}:run")
    house.publish("digest", script, dependencies=[make_dependency()])

    with pytest.raises(Paused) as paused:
        await house.use(CAP)

    assert paused.value.record.subject is Subject.DEPENDENCY_INSTALL
    assert len(house.servers.ran) == 1


# What is kept of it


@promise("audit:payloads-can-go")
async def test_the_audit_log_tells_each_inner_call_and_no_result(house: Library) -> None:
    house.publish("digest", catching(add("SECRET-INPUT"), ("notes:run", {"command": "x"})), *LISTED)
    house.configure(deny=["notes:run"])

    await house.use(CAP, asking=FakeAsking(house.allowing()))

    links = await house.office.context.store.audit.list(AuditQuery(limit=1000))
    told = [(it.entry.kind, it.entry.tool, it.entry.detail.get("why")) for it in links]
    assert ("call.allowed", "notes:add", "allowed for this run") in told
    assert any(kind == "call.denied" and tool == "notes:run" for kind, tool, _ in told)
    assert "SECRET" not in str(links)
    assert "ran" not in [key for it in links for key in it.entry.detail]


async def test_an_answer_to_a_capability_is_used_up_when_it_begins(house: Library) -> None:
    paused = await house.leave(CAP)
    await house.allow(paused.record)
    await house.resume(paused)

    assert (await house.office.stored(paused.record)).status is State.COMPLETED


async def test_no_journal_stays_when_a_capability_has_ended(house: Library) -> None:
    paused = await house.leave(CAP)
    await house.allow(paused.record)
    await house.resume(paused)

    journals = house.office.context.store.journals
    assert await journals.owners() == []
    house.office.clock.advance(3600)
    assert await journals.forget(older_than=house.office.clock.now(), dead=()) == 0


def test_code_that_calls_is_read_as_the_tests_here_mean_it() -> None:
    read = static_calls(code_that_calls(*LISTED), Language.TYPESCRIPT)
    assert (tuple(map(str, read.tools)), read.dynamic) == (LISTED, False)
    assert static_calls(code_that_calls(dynamic=True), Language.TYPESCRIPT).dynamic
