"""What "always" writes: exactly the entry shown, into the session's own workspace, also after a crash."""

import os
from pathlib import Path

import pytest

from pml.core.approvals.memory import always_entry
from pml.core.approvals.record import Approval, Scope, SessionId, State
from pml.core.config.file import FileKind
from pml.core.errors import ConfigInvalid, Unavailable
from pml.core.ports.records import Intent, Workflow
from pml.core.rules.ruleset import Effect, VerdictKind
from pml.core.values import Json, JsonObject
from pml.service.policy.memory import INTENT_S, WRITING_S, Remembered, init_workspace, redo_intents
from pml.service.policy.policy import current_policy
from pml.service.rules.rulebook import drop_rule
from pml.service.upkeep import Swept, sweep
from tests.builders import NOW, PERSON
from tests.promises import promise
from tests.service.offices import ARGUMENTS, TOOL, Office, rules_of

DEFAULTS: Json = {"version": "0.1.0", "permissions": {"allow": [TOOL], "deny": [], "ask": ["*"]}}
BROKEN = '{"permissions": {"allow": ["a:b"'


async def always(office: Office, tool: str = TOOL, arguments: JsonObject = ARGUMENTS) -> Approval:
    return (await office.allow(await office.ask(tool, arguments), scope=Scope.ALWAYS)).record


def file_of(office: Office) -> str:
    return str(office.path(FileKind.WORKSPACE))


async def test_always_creates_the_file_with_defaults_and_the_entry_that_was_shown(office: Office) -> None:
    record = await office.ask()

    decided = await office.allow(record, scope=Scope.ALWAYS)

    assert decided.remembered == Remembered(scope=Scope.ALWAYS, entry=TOOL, file=file_of(office))
    assert office.read() == DEFAULTS
    assert (await office.judge(arguments={"title": "another"})).kind is VerdictKind.ALLOW
    assert await office.context.store.intents.open() == []


@promise("always:only-what-was-shown")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (TOOL, ARGUMENTS),
        ("Bash", {"command": "git status"}),
        ("pml:execute", {"code": "1", "args": {"n": [1, 2.5, None]}}),
        ("shell:run", {"command": "ls *"}),
        ("Bash", {"command": "ls", "/tmp": "a~b"}),
    ],
)
async def test_the_entry_written_is_the_entry_that_is_shown(
    office: Office, tool: str, arguments: JsonObject
) -> None:
    await always(office, tool, arguments)

    assert rules_of(office.read(), "allow") == [always_entry(tool, arguments)]
    assert (await office.judge(tool, arguments)).kind is VerdictKind.ALLOW


@promise("always:only-what-was-shown")
@pytest.mark.parametrize("value", ["*", "?", "[draft]", "rm -rf /*", "a\\*", "${HOME}", "~/x", "../x"])
async def test_literal_values_with_metacharacters_stay_literal(office: Office, value: str) -> None:
    record = await office.ask(arguments={"title": value})
    await office.allow(record, scope=Scope.ALWAYS, literal=True)

    assert (await office.judge(arguments={"title": value})).kind is VerdictKind.ALLOW
    for other in ("anything", "d", "x", value + "x", ""):
        assert (await office.judge(arguments={"title": other})).kind is not VerdictKind.ALLOW
    assert (await office.judge(arguments={"title": value, "body": "more"})).kind is not VerdictKind.ALLOW
    assert (await office.judge(arguments={})).kind is not VerdictKind.ALLOW


@promise("always:only-what-was-shown")
async def test_edited_arguments_are_the_ones_that_are_written(office: Office) -> None:
    record = await office.ask("Bash", {"command": "rm -rf /"})
    await office.allow(record, scope=Scope.ALWAYS, updated_input={"command": "ls"})

    assert rules_of(office.read(), "allow") == [always_entry("Bash", {"command": "ls"})]


async def test_always_is_written_into_the_sessions_workspace_wherever_the_decider_is(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    session = await office.session(SessionId("theirs"), workspace=theirs)
    monkeypatch.chdir(office.workspace)

    await office.allow(await office.ask(session=session), scope=Scope.ALWAYS)

    assert (theirs / ".pml.json").exists()
    assert not office.path(FileKind.WORKSPACE).exists()
    assert (await office.judge()).kind is not VerdictKind.ALLOW


async def test_nothing_is_added_twice(office: Office) -> None:
    await always(office)
    before = office.path(FileKind.WORKSPACE).read_bytes()
    office.write_rules(ask=[])
    session = await office.session(SessionId("session-2"))
    await office.allow(await office.ask(session=session), scope=Scope.ALWAYS)

    assert office.path(FileKind.WORKSPACE).read_bytes() == before


async def test_what_stands_in_the_file_is_kept(office: Office) -> None:
    office.write(FileKind.WORKSPACE, {"mine": [1], "permissions": {"deny": ["x:y"]}, "expose": ["a:*"]})
    await always(office)

    assert office.read() == {
        "mine": [1],
        "permissions": {"deny": ["x:y"], "allow": [TOOL]},
        "expose": ["a:*"],
    }


# --- trust


@promise("trust:exact-content")
async def test_a_trusted_file_stays_trusted_when_pml_writes_it(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"])
    await office.trust()

    decided = await office.allow(await office.ask(), scope=Scope.ALWAYS)

    assert decided.remembered == Remembered(scope=Scope.ALWAYS, entry=TOOL, file=file_of(office))
    assert (await office.judge("fs:read")).kind is VerdictKind.ALLOW
    assert (await office.judge()).kind is VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_an_untrusted_file_does_not_become_trusted_when_pml_writes_it(office: Office) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"])

    decided = await office.allow(await office.ask(), scope=Scope.ALWAYS)

    assert decided.remembered == Remembered(
        scope=Scope.ALWAYS, entry=TOOL, file=file_of(office), counts=False
    )
    assert rules_of(office.read(), "allow") == ["fs:read", TOOL]
    for tool in ("fs:read", TOOL):
        assert (await office.judge(tool)).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_a_file_edited_since_it_was_trusted_does_not_become_trusted_when_pml_writes_it(
    office: Office,
) -> None:
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"])
    await office.trust()
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read", "fs:write"])

    await always(office)

    assert not (await current_policy(office.context, str(office.workspace))).trusted
    assert (await office.judge("fs:write")).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
async def test_a_trusted_file_that_pml_replaced_is_not_trusted_when_it_is_put_back(office: Office) -> None:
    file = office.path(FileKind.WORKSPACE)
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read", "fs:write"])
    await office.trust()
    with_both = file.read_bytes()

    await drop_rule(
        office.context, str(office.workspace), Effect.ALLOW, "fs:write", which=FileKind.WORKSPACE, by=PERSON
    )
    without = file.read_bytes()
    assert (await office.judge("fs:read")).kind is VerdictKind.ALLOW
    file.write_bytes(with_both)
    assert not (await current_policy(office.context, str(office.workspace))).trusted
    assert (await office.judge("fs:write")).kind is not VerdictKind.ALLOW

    file.write_bytes(without)
    assert (await office.judge("fs:read")).kind is VerdictKind.ALLOW
    await always(office)
    file.write_bytes(without)
    assert (await office.judge("fs:read")).kind is not VerdictKind.ALLOW


@promise("trust:exact-content")
@pytest.mark.parametrize("by_init", [True, False])
async def test_a_file_that_pml_creates_ends_the_trust_in_the_one_that_stood_there(
    office: Office, by_init: bool
) -> None:
    file = office.path(FileKind.WORKSPACE)
    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"])
    await office.trust()
    before = file.read_bytes()
    file.unlink()

    if by_init:
        assert await init_workspace(office.context, str(office.workspace))
    else:
        await always(office)
    assert (await current_policy(office.context, str(office.workspace))).trusted

    file.write_bytes(before)
    assert (await office.judge("fs:read")).kind is not VerdictKind.ALLOW


async def test_a_file_that_could_not_be_replaced_stays_trusted(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "no space left on device")

    office.write_rules(FileKind.WORKSPACE, allow=["fs:read"])
    await office.trust()
    monkeypatch.setattr("pml.settings.config_files.replace_file", refuse)

    decided = await office.allow(await office.ask(), scope=Scope.ALWAYS)

    assert decided.remembered is not None
    assert isinstance(decided.remembered.problem, Unavailable)
    assert (await office.judge("fs:read")).kind is VerdictKind.ALLOW


# --- what cannot be written now


async def test_a_broken_file_leaves_the_decision_standing_and_is_not_touched(office: Office) -> None:
    record = await office.ask()
    office.path(FileKind.WORKSPACE).write_text(BROKEN)

    decided = await office.allow(record, scope=Scope.ALWAYS)

    assert decided.record.status is State.ALLOWED
    assert decided.remembered is not None
    assert not decided.remembered.counts
    assert isinstance(decided.remembered.problem, ConfigInvalid)
    assert office.path(FileKind.WORKSPACE).read_text() == BROKEN
    assert [intent.entry for intent in await office.context.store.intents.open()] == [TOOL]


async def test_what_a_broken_file_held_up_is_written_once_it_is_mended(office: Office) -> None:
    record = await office.ask()
    office.path(FileKind.WORKSPACE).write_text(BROKEN)
    await office.allow(record, scope=Scope.ALWAYS)
    office.clock.advance(WRITING_S)
    assert await sweep(office.context) == Swept()
    assert office.path(FileKind.WORKSPACE).read_text() == BROKEN

    office.write_rules(FileKind.WORKSPACE, allow=["a:b"])

    assert await sweep(office.context) == Swept(rules_written=1)
    assert rules_of(office.read(), "allow") == ["a:b", TOOL]
    assert await sweep(office.context) == Swept()
    assert (await office.kinds()).count("rule.added") == 1


async def test_what_could_not_be_written_for_a_day_is_forgotten_and_not_before(office: Office) -> None:
    record = await office.ask()
    office.path(FileKind.WORKSPACE).write_text(BROKEN)
    await office.allow(record, scope=Scope.ALWAYS)
    office.clock.advance(INTENT_S)
    await redo_intents(office.context)
    assert len(await office.context.store.intents.open()) == 1

    office.clock.advance(1)
    office.write_rules(FileKind.WORKSPACE, allow=["a:b"])
    before = await office.kinds()

    assert await redo_intents(office.context) == 0
    assert rules_of(office.read(), "allow") == ["a:b"]
    assert await office.context.store.intents.open() == []
    assert await office.kinds() == before


async def intend(office: Office, record: Approval) -> None:
    """Leave behind what a process leaves that died before it had written its "always"."""
    intent = Intent(
        id="1",
        workspace=str(office.workspace),
        effect=Effect.ALLOW,
        entry=TOOL,
        approval_id=record.id,
        created_at=NOW,
    )
    await office.context.store.intents.add(intent)


async def test_a_decision_whose_process_died_before_writing_is_written_by_the_next_sweep(
    office: Office,
) -> None:
    await intend(office, await office.ask())
    assert await sweep(office.context) == Swept(), "the process may still be at it, and offer to undo it"

    office.clock.advance(WRITING_S)
    assert await sweep(office.context) == Swept(rules_written=1)

    assert office.read() == DEFAULTS
    assert await office.context.store.intents.open() == []


async def test_a_decision_whose_process_died_after_writing_is_not_written_twice(office: Office) -> None:
    record = await always(office)
    before = office.path(FileKind.WORKSPACE).read_bytes()
    await intend(office, record)

    office.clock.advance(WRITING_S)
    assert await sweep(office.context) == Swept(rules_written=1)

    assert office.path(FileKind.WORKSPACE).read_bytes() == before


async def test_a_link_in_the_workspace_is_not_written_through(office: Office, tmp_path: Path) -> None:
    target = tmp_path / "precious.json"
    target.write_text("{}")
    record = await office.ask()
    os.symlink(target, office.path(FileKind.WORKSPACE))

    decided = await office.allow(record, scope=Scope.ALWAYS)

    assert decided.remembered is not None
    assert decided.remembered.problem is not None
    assert target.read_text() == "{}"


@promise("always:only-what-was-shown")
async def test_always_with_edited_arguments_binds_them_exactly(office: Office) -> None:
    record = await office.ask("db:run", {"sql": "select 1"})

    await office.allow(record, scope=Scope.ALWAYS, updated_input={"name": "nightly"})

    assert (await office.judge("db:run", {"sql": "drop table users"})).kind is VerdictKind.UNLISTED
    assert (await office.judge("db:run", {"name": "nightly"})).kind is VerdictKind.ALLOW


@promise("always:only-what-was-shown")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_an_edited_call_is_remembered_as_edited_and_no_wider(office: Office, scope: Scope) -> None:
    await office.allow(await office.ask("fs:read", {"path": "a"}), scope=scope, updated_input={"path": "b"})

    kinds = [(await office.judge("fs:read", {"path": path})).kind for path in ("a", "b", "c")]
    assert kinds == [VerdictKind.UNLISTED, VerdictKind.ALLOW, VerdictKind.UNLISTED]


@promise("always:only-what-was-shown")
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_an_edit_that_python_takes_for_the_same_is_remembered_as_edited(
    office: Office, scope: Scope
) -> None:
    await office.allow(await office.ask("fs:clean", {"deep": 1}), scope=scope, updated_input={"deep": True})

    kinds = [(await office.judge("fs:clean", {"deep": deep})).kind for deep in (1, True, 2)]
    assert kinds == [VerdictKind.UNLISTED, VerdictKind.ALLOW, VerdictKind.UNLISTED]


@promise("trust:exact-content")
async def test_a_write_that_failed_leaves_nothing_trusted_that_was_not_written(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.write_rules(FileKind.WORKSPACE, ask=["*"])
    await office.trust()
    meant: list[bytes] = []

    def refuse(path: Path, content: bytes, **_: object) -> None:
        meant.append(content)
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("pml.settings.config_files.replace_file", refuse)
        await always(office)
    office.path(FileKind.WORKSPACE).write_bytes(meant[0])

    assert not (await current_policy(office.context, str(office.workspace))).trusted


async def test_what_was_to_be_remembered_in_a_session_that_ended_is_said_not_to_be(office: Office) -> None:
    record = await office.ask()
    await office.context.store.workflows.issue(
        Workflow(id=record.id, approval_id=record.id, principal="ana", created_at=NOW)
    )
    await office.context.store.sessions.end(record.session_id, at=NOW)

    remembered = (await office.allow(record, scope=Scope.SESSION)).remembered

    assert remembered is not None
    assert not remembered.counts
    assert "has ended" in str(remembered.problem)
