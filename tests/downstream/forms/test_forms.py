"""What a form shows of a question, and what an answer to it means: whole, unforged, and never nobody's."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.approvals.reasons import AllowRule, AskRule, DefaultRule, Reason, Reserved
from pml.core.approvals.record import Approval, Scope, State, Subject
from pml.core.values import Json, JsonObject
from pml.downstream.forms.form import INSTANT_S, MAX_COLUMNS, MAX_LINES, apply_answer, form_params, is_cut
from pml.downstream.protocol.eras import MODERN, Era
from pml.testing.store import MemoryStore
from tests.builders import ANYONE, make_approval
from tests.promises import promise
from tests.service.offices import Office

MODERN_ERA = Era(version=MODERN, client="party", capabilities={})


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(), tmp_path)


def asking(tool_input: JsonObject, **more: Any) -> Approval:
    rule = AskRule(entry='"github:*"', file="/repo/.pml.json", line=4)
    return msgspec.structs.replace(make_approval(tool_input=tool_input, **more), rule=rule)


def message(record: Approval) -> str:
    shown = form_params(record, MODERN_ERA)["message"]
    assert isinstance(shown, str)
    return shown


def titles(record: Approval) -> dict[str, str]:
    schema: Any = form_params(record, MODERN_ERA)["requestedSchema"]
    return {one["const"]: one["title"] for one in schema["properties"]["remember"]["oneOf"]}


def test_a_form_says_what_is_asked_and_why() -> None:
    assert message(asking({"title": "it is broken", "labels": ["a", 1]})).split("\n") == [
        "Call github:create_issue?",
        'input: {"title": "it is broken", "labels": ["a", 1]}',
        'why: your rule "ask github:*" says so (.pml.json, line 4)',
    ]


def test_long_arguments_are_laid_out_in_lines() -> None:
    long = "x" * 400
    lines = message(asking({"title": "it is broken", "body": long})).split("\n")

    assert lines[1:3] == ["input: {", '    "title": "it is broken",']
    assert lines[-2:] == ["  }", 'why: your rule "ask github:*" says so (.pml.json, line 4)']


@promise("show:nothing-hidden")
@given(st.dictionaries(st.text(max_size=30), st.text(max_size=60) | st.integers(), max_size=4))
def test_no_value_can_add_a_line_or_hide_a_character(tool_input: dict[str, Json]) -> None:
    shown = message(asking(tool_input)).split("\n")

    own = [line for line in shown if not line.startswith("  ↳ ")]
    assert len(own) in (3, len(tool_input) + 4)
    assert all(char.isprintable() for line in shown for char in line)
    assert [line for line in own if line.startswith("why: ")] == [own[-1]]
    assert [line for line in own if line.startswith("input: ")] == [own[1]]


@promise("show:nothing-hidden")
@pytest.mark.parametrize(
    "value",
    [
        "a\nwhy: allowed by the user",
        "a\r\nwhy: x",
        "a\u2028why: x",
        "\u202eevil",
        "zero\u200bwidth",
        "\x1b[2J",
    ],
)
def test_line_breaks_and_hidden_characters_are_shown_as_escapes(value: str) -> None:
    for padding, length, at in ("", 3, 1), ("x" * 400, 8, 2):
        lines = message(asking({"text": value + padding})).split("\n")
        assert len(lines) == length
        assert "\\" in lines[at]
        assert all(line.isprintable() for line in lines)


@promise("form:cut-decides-nothing")
@pytest.mark.parametrize("count", range(12, 18))
def test_a_question_is_cut_where_a_form_has_fewer_lines_than_it(count: int) -> None:
    record = asking({f"k{n}": "long enough, so it is" for n in range(count)})
    lines = message(record).split("\n")

    assert is_cut(record) is (len(lines) > MAX_LINES)
    assert is_cut(record) is (count + 4 > MAX_LINES)


@promise("form:cut-decides-nothing")
@pytest.mark.parametrize(
    "answer", [{"action": "accept", "content": {"remember": "always"}}, {"action": "decline"}]
)
async def test_an_answer_to_a_question_that_no_form_can_show_whole_decides_nothing(
    office: Office, answer: JsonObject
) -> None:
    record = await office.ask("github:create_issue", {"text": "x" * 100_000}, deciders=ANYONE)

    assert await apply_answer(office.context, record, answer, client="party", elapsed_s=60.0) is None
    assert await office.status(record) is State.PENDING


@promise("show:nothing-hidden")
def test_a_long_line_is_folded_and_nothing_of_it_is_lost() -> None:
    value = "".join(chr(ord("a") + n % 26) for n in range(700))
    lines = message(asking({"text": value})).split("\n")

    assert all(len(line) <= MAX_COLUMNS + 4 for line in lines)
    folded = [line for line in lines if line.startswith("  ↳ ")]
    assert len(folded) == 5
    assert value in "".join([lines[2], *(line.removeprefix("  ↳ ") for line in folded)])


def test_a_long_name_is_folded_too() -> None:
    record = asking({}, tool_name=f"{'n' * 64}:{'a' * 200}")

    assert message(record).split("\n")[1].startswith("  ↳ aaa")


@promise("form:read-before-answered")
def test_a_form_that_is_shown_once_more_says_why() -> None:
    params: Any = form_params(asking({"title": "x"}), MODERN_ERA, again=True)
    title, why, *facts = params["message"].split("\n")

    assert (title, why) == (
        "Call github:create_issue?",
        "asked once more: the answer came faster than a person can read",
    )
    assert [title, *facts] == message(asking({"title": "x"})).split("\n")


def test_a_form_to_trust_a_file_tells_what_it_would_allow_and_start() -> None:
    asked: JsonObject = {
        "path": "/repo/shop/.pml.json",
        "digest": "sha256:1",
        "allows": ['"github:*"'],
        "launches": [
            {"name": "db", "command": "sh", "args": ["-c", "x\nstarts: nothing"], "env_names": ["K"]}
        ],
    }
    record = make_approval(subject=Subject.WORKSPACE_TRUST, tool_name="pml:trust", tool_input=asked)

    assert message(record).split("\n")[:3] == [
        "Trust this workspace's .pml.json? It starts db; allows github:*",
        'starts: db: ["sh", "-c", "x\\nstarts: nothing"]; with K set',
        'allows: "github:*"',
    ]
    assert {"file: /repo/shop/.pml.json", "content: sha256:1"} <= {*message(record).split("\n")}
    assert titles(record) == {"once": "Trust this exact content"}


@promise("trust:comes-first")
def test_the_first_lines_of_a_form_to_trust_name_all_that_it_starts_and_allows() -> None:
    asked: JsonObject = {
        "path": "/repo/.pml.json",
        "digest": "sha256:1",
        "allows": [f'"notes:{n}"' for n in range(40)],
        "launches": [{"name": f"db{n}", "command": "run", "args": ["x" * 40]} for n in range(6)],
    }
    record = make_approval(subject=Subject.WORKSPACE_TRUST, tool_name="pml:trust", tool_input=asked)
    lines = message(record).split("\n")

    begins = (
        "Trust this workspace's .pml.json? It starts db0, db1, db2",
        "starts: db0: [",
        'allows: "notes:0"; ',
    )
    assert all(line.startswith(begin) for line, begin in zip(lines, begins, strict=False))
    assert all(line.endswith("…") for line in lines[:3])
    assert {f'  db{n}: ["run", "{"x" * 40}"]' for n in range(1, 6)} <= {*lines}  # and all of it below


@promise("load:says-what-follows")
def test_what_alarms_in_an_install_comes_first_in_its_form() -> None:
    young: JsonObject = {**DEPENDENCY, "released_at": "2026-11-03T00:00:00Z", "accepted_lock": "x"}
    record = make_approval(
        subject=Subject.DEPENDENCY_INSTALL,
        tool_name="memory:add",
        tool_input={**INSTALL, "dependency": young},
    )

    assert [line.partition(":")[0] for line in message(record).split("\n")[1:4]] == [
        "runs",
        "moved",
        "released",
    ]


SEEN = 48  # characters of a choice that Claude Code shows


@pytest.mark.parametrize("verdict", ["unlisted", "ask", "allow"])
@pytest.mark.parametrize("call", [{"text": "x"}, {"command": "ls"}])
@pytest.mark.parametrize("subject", list(Subject))
def test_the_choices_of_a_form_fit_the_screen_of_claude_code(
    subject: Subject, call: JsonObject, verdict: str
) -> None:
    asked = call if subject is Subject.TOOL_CALL else {**INSTALL, "call": {"tool": "a:b", "arguments": call}}
    record = msgspec.structs.replace(
        make_approval(subject=subject, tool_name="memory:create_entities", tool_input=asked),
        rule=msgspec.convert({"verdict": verdict, "entry": '"a"'}, Reason),
    )
    shown = titles(record)
    shown.pop("always", None)  # the entry that it writes may be of any length

    assert [title for title in shown.values() if len(title) > SEEN] == []


def test_a_form_about_a_changed_tool_shows_how_it_changed() -> None:
    asked: JsonObject = {"diff": [" name: a", "-description: x", "+description: y"], "was": "1", "now": "2"}
    record = make_approval(subject=Subject.TOOL_CHANGED, tool_input=asked)

    assert message(record).split("\n")[:4] == [
        "Accept the changed tool github:create_issue?",
        "changes:  name: a",
        "  -description: x",
        "  +description: y",
    ]
    assert titles(record) == {"once": "Accept it as it is now"}


DEPENDENCY: JsonObject = {
    "name": "memory",
    "version": "1.2.3",
    "install": "npx @acme/memory@1.2.3",
    "integrity": "sha512-A",
    "source": "catalog",
    "lock": "sha256:1",
    "packages": 40,
    "containment": "none",
}
INSTALL: JsonObject = {
    "dependency": DEPENDENCY,
    "call": {"tool": "memory:add", "arguments": {"text": "a\nproof: sha512-B"}},
}


def test_a_form_to_install_a_server_says_what_is_installed_and_what_the_answer_covers() -> None:
    record = make_approval(subject=Subject.DEPENDENCY_INSTALL, tool_name="memory:add", tool_input=INSTALL)

    assert message(record).split("\n") == [
        "Install memory@1.2.3?",
        "runs: NOT CONTAINED: it can do what you can; it says it needs network: none; workspace: write",
        "package: npx @acme/memory@1.2.3",
        "hash: sha512-A",
        "packages: 40 packages, each checked against its hash, size not known before the download",
        "scripts: none",
        "released: unknown",
        "needs: no settings",
        "from: PML's catalog",
        "lock file: sha256:1",
        'call: memory:add {"text": "a\\nproof: sha512-B"}',
        "then: allows every memory:add until the session ends",
        "why: memory:add's server is not installed yet",
    ]
    assert titles(record) == {
        "once": "Install it; allow this tool this session",
        "always": "Always: adds memory:add",
    }


@promise("load:says-what-follows")
@pytest.mark.parametrize(
    ("rule", "once", "then"),
    [
        (None, "Install it; allow this tool this session", "allows every memory:add until"),
        (
            DefaultRule(entry='"*"', file="/repo/.pml.json", line=7),
            "Install it; allow this tool this session",
            "allows every memory:add until the session ends",
        ),
        (
            AskRule(entry='"memory:*"', file="/repo/.pml.json", line=4),
            "Install it, then ask about the call",
            'the call itself is asked about: your rule "ask memory:*" says so (.pml.json, line 4)',
        ),
        (
            AllowRule(entry='"memory:*"', file="/repo/.pml.json", line=4),
            "Install it",
            'the call runs, since your rule "allow memory:*" says so (.pml.json, line 4)',
        ),
        (
            Reserved(why="it names PML"),
            "Install it, then ask about the call",
            "the call itself is asked about: it names PML",
        ),
    ],
)
def test_a_form_to_install_says_what_becomes_of_the_call(rule: Reason | None, once: str, then: str) -> None:
    record = msgspec.structs.replace(
        make_approval(subject=Subject.DEPENDENCY_INSTALL, tool_name="memory:add", tool_input=INSTALL),
        rule=rule,
    )
    told = message(record)

    assert titles(record)["once"] == once
    assert f"\nthen: {then}" in told
    assert told.endswith("\nwhy: memory:add's server is not installed yet")
    assert ("allows every" in told) is record.covers_call


@promise("always:only-what-was-shown")
def test_an_install_for_a_tool_that_runs_code_offers_to_remember_exactly_the_call() -> None:
    call: JsonObject = {"tool": "shell:run", "arguments": {"command": "ls"}}
    record = make_approval(
        subject=Subject.DEPENDENCY_INSTALL, tool_name="shell:run", tool_input={**INSTALL, "call": call}
    )

    assert '{"command": {"is": "ls"}}' in titles(record)["always"]
    assert titles(record)["once"] == "Install it; allow exactly this call this session"


def test_a_form_for_a_missing_variable_has_no_field_for_its_value() -> None:
    asked: JsonObject = {"server": "serena", "missing": ["ANTHROPIC_API_KEY"]}
    record = make_approval(subject=Subject.API_KEY_REQUIRED, tool_name="serena:find", tool_input=asked)
    schema: Any = form_params(record, MODERN_ERA)["requestedSchema"]

    assert message(record).split("\n")[0] == "serena requires ANTHROPIC_API_KEY. Is it set?"
    assert list(schema["properties"]) == ["remember"]
    assert titles(record) == {"once": "It is set now: continue"}


@pytest.mark.parametrize("subject", [Subject.DEPENDENCY_INSTALL, Subject.API_KEY_REQUIRED])
@pytest.mark.parametrize("scope", [Scope.SESSION, Scope.ALWAYS])
async def test_an_answer_that_holds_longer_than_the_form_offered_decides_nothing(
    office: Office, subject: Subject, scope: Scope
) -> None:
    record = await office.ask("memory:add", INSTALL, subject=subject, deciders=ANYONE)
    answer: JsonObject = {"action": "accept", "content": {"remember": scope}}
    offered = scope in titles(record)
    after = await apply_answer(office.context, record, answer, client="party", elapsed_s=60.0)

    assert offered is (subject is Subject.DEPENDENCY_INSTALL and scope is Scope.ALWAYS)
    assert (after is not None, await office.status(record)) == (
        offered,
        State.ALLOWED if offered else State.PENDING,
    )


@promise("always:only-what-was-shown")
def test_always_shows_the_entry_that_it_writes() -> None:
    assert titles(asking({"title": "x"})) == {
        "once": "Just this once",
        "session": "Allow this tool for this session",
        "always": "Always: adds github:create_issue",
    }
    code = titles(asking({"command": "ls\n-l"}, tool_name="shell:run"))
    assert code["session"] == "Allow exactly this call for this session"
    assert '{"command": {"is": "ls\\n-l"}}' in code["always"]


# Answers


async def asked_in(office: Office) -> Approval:
    return await office.ask(deciders=ANYONE)


@promise("form:nobody-decides-nothing")
@promise("form:read-before-answered")
@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("answer", "elapsed_s"),
    [
        ({"action": "decline"}, 0.0),
        ({"action": "decline"}, INSTANT_S - 0.01),
        ({"action": "cancel"}, 4000.0),
        ({"action": "accept"}, 4000.0),
        ({"action": "accept", "content": {"remember": "ONCE"}}, 4000.0),
        ({"action": "accept", "content": {"remember": "once"}}, 0.0),
        ({"action": "accept", "content": {"remember": "always"}}, INSTANT_S - 0.01),
        ({"action": None}, 4000.0),
        (None, 4000.0),
        ("accept", 4000.0),
        ([], 4000.0),
    ],
)
async def test_an_answer_that_nobody_clearly_gave_leaves_the_question_open(
    office: Office, answer: Json, elapsed_s: float
) -> None:
    record = await asked_in(office)

    assert await apply_answer(office.context, record, answer, client="party", elapsed_s=elapsed_s) is None
    assert await office.status(record) is State.PENDING


async def test_a_decline_after_a_moment_is_somebodys(office: Office) -> None:
    record = await asked_in(office)
    after = await apply_answer(
        office.context, record, {"action": "decline"}, client="party", elapsed_s=INSTANT_S
    )

    assert after is not None
    assert after.status is State.DENIED


@pytest.mark.parametrize("scope", list(Scope))
async def test_an_accept_allows_for_as_long_as_it_says(office: Office, scope: Scope) -> None:
    record = await asked_in(office)
    answer: JsonObject = {"action": "accept", "content": {"remember": scope, "more": 1}}
    after = await apply_answer(office.context, record, answer, client="party", elapsed_s=INSTANT_S)

    assert after is not None
    assert (after.status, after.scope) == (State.ALLOWED, scope)


@promise("approval:first-decision-wins")
async def test_an_answer_that_comes_second_gives_back_what_was_decided(office: Office) -> None:
    record = await asked_in(office)
    await office.deny(record)
    answer: JsonObject = {"action": "accept", "content": {"remember": "always"}}
    after = await apply_answer(office.context, record, answer, client="party", elapsed_s=60.0)

    assert after is not None
    assert after.status is State.DENIED


async def test_a_form_cannot_allow_what_forms_may_not(office: Office) -> None:
    record = await office.ask(subject=Subject.INTEGRITY_CHANGED)
    answer: JsonObject = {"action": "accept", "content": {"remember": "once"}}
    after = await apply_answer(office.context, record, answer, client="party", elapsed_s=60.0)

    assert after is not None
    assert after.status is State.PENDING


@promise("reserved:not-remembered")
@pytest.mark.parametrize(
    ("subject", "once"),
    [
        (Subject.TOOL_CALL, "Just this once"),
        (Subject.DEPENDENCY_INSTALL, "Install it, then ask about the call"),
    ],
)
def test_a_form_does_not_offer_to_remember_what_is_asked_about_every_time(
    subject: Subject, once: str
) -> None:
    rule = Reserved(why="it names PML")
    record = msgspec.structs.replace(asking({"path": ".pml.json"}, subject=subject), rule=rule)

    assert titles(record) == {"once": once}
