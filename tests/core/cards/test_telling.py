"""What a question is about, as a person is told it: whole, in words, with nothing hidden."""

import pytest
from msgspec.structs import replace

from pml.core.approvals.reasons import AllowRule, AskRule, BrokenFile, DefaultRule, Reason
from pml.core.approvals.record import Channel, Decider, DeciderKind, Subject
from pml.core.approvals.states import advance
from pml.core.approvals.subjects import asked_facts, why_asked
from pml.core.cards.facts import who_decided
from pml.core.config.trust_facts import launch_lines
from pml.core.values import Json, JsonObject
from tests.builders import allow, make_approval
from tests.promises import promise

RULE = AskRule(entry='"github:*"', file="/home/ana/.pml/config.json", line=3)
TRUST: JsonObject = {
    "path": "/repo/shop/.pml.json",
    "digest": "sha256:1",
    "allows": ['"fs:*"'],
    "launches": [
        {
            "name": "notes",
            "command": "notes-server",
            "args": ["--all", "a b"],
            "cwd": "/repo",
            "env_names": ["TOKEN", "PATH"],
            "steering": {"PATH": "/repo/bin"},
            "permissions": {"net": True},
        }
    ],
    "settings": {"prespawn": ["notes"]},
}


@promise("show:nothing-hidden")
def test_a_call_is_told_by_its_whole_input() -> None:
    record = make_approval(tool_input={"title": "a\u202eb\n" * 3, "n": 1})

    assert asked_facts(record) == [
        ("input", '{\n  "title": "a\\u202eb\\na\\u202eb\\na\\u202eb\\n",\n  "n": 1\n}')
    ]


def test_an_edited_call_is_told_by_what_was_asked_and_what_would_run() -> None:
    record = make_approval(tool_input={"title": "old"})
    edited = advance(record, allow(record, updated_input={"title": "new"}))

    assert asked_facts(edited) == [
        ("input", '{\n  "title": "old"\n}'),
        ("edited to", '{\n  "title": "new"\n}'),
    ]


@pytest.mark.parametrize(
    ("setting", "who"),
    [
        ({"unlisted": "every_call"}, "PML asks"),
        ({"unlisted": "if_client_cannot"}, "the client asks, PML does not"),
        ({}, "the client asks, PML does not"),  # asked by a PML whose default that was
    ],
)
def test_trust_is_told_by_what_the_file_allows_starts_and_sets(setting: JsonObject, who: str) -> None:
    asked = {**TRUST, **setting}
    record = make_approval(subject=Subject.WORKSPACE_TRUST, tool_name="pml:trust", tool_input=asked)

    assert asked_facts(record) == [
        ("file", "/repo/shop/.pml.json"),
        ("content", "sha256:1"),
        ("allows", '"fs:*"'),
        (
            "starts",
            'notes: ["notes-server", "--all", "a b"]\n  with TOKEN, PATH set\n'
            '  PATH = "/repo/bin"\n  in "/repo"\n  permitted {"net": true}',
        ),
        ("unlisted", f"tools without a rule: {who}"),
        ("sets", '{\n  "prespawn": [\n    "notes"\n  ]\n}'),
    ]


def test_trust_in_a_file_that_starts_and_allows_nothing_says_so() -> None:
    record = make_approval(
        subject=Subject.WORKSPACE_TRUST,
        tool_name="pml:trust",
        tool_input={"path": "/a", "digest": "sha256:1", "allows": [], "launches": [], "settings": {}},
    )

    assert asked_facts(record)[2:] == [("allows", "nothing"), ("starts", "nothing")]


@promise("show:nothing-hidden")
def test_what_would_be_started_cannot_forge_a_line() -> None:
    shown = launch_lines([{"name": "a\nb", "command": "x\ny\u202e", "args": ["\r"], "env_names": ["T\nU"]}])

    assert shown == ['a\\nb: ["x\\ny\\u202e", "\\r"]', "  with T\\nU set"]


@pytest.mark.parametrize("launches", [None, "notes", ["notes", 1]])
def test_launches_of_another_shape_are_no_lines(launches: Json) -> None:
    assert launch_lines(launches) == []


def test_a_changed_tool_is_told_by_its_difference() -> None:
    record = make_approval(
        subject=Subject.TOOL_CHANGED, tool_input={"diff": ["-title: a", "+title: b"], "was": "1", "now": "2"}
    )

    assert asked_facts(record) == [("changes", "-title: a\n+title: b")]


@pytest.mark.parametrize(
    ("subject", "rule", "words"),
    [
        (Subject.TOOL_CALL, None, "no rule covers github:create_issue"),
        (Subject.TOOL_CALL, RULE, 'your rule "ask github:*" says so (/home/ana/.pml/config.json, line 3)'),
        (
            Subject.TOOL_CALL,
            replace(RULE, entry='{"tool":"Bash"}', file="/repo/.pml.json"),
            'your rule "ask {"tool": "Bash"}" says so (.pml.json, line 3)',
        ),
        (
            Subject.TOOL_CALL,
            DefaultRule(entry='"*"'),
            'only your catch-all "ask *" matches github:create_issue',
        ),
        (
            Subject.TOOL_CALL,
            BrokenFile(problem="expected a comma", file=RULE.file, line=RULE.line),
            "/home/ana/.pml/config.json:3 is broken: expected a comma\n"
            "until it is fixed its denies are unknown: look closely",
        ),
        (
            Subject.WORKSPACE_TRUST,
            AllowRule(entry=RULE.entry, file=RULE.file, line=RULE.line),
            'it would allow a call that waits, by "allow github:*" (/home/ana/.pml/config.json, line 3)',
        ),
        (
            Subject.TOOL_CHANGED,
            None,
            "the server changed the description of this tool since it was first used",
        ),
    ],
)
def test_why_pml_asks_is_told_in_words(subject: Subject, rule: Reason | None, words: str) -> None:
    assert why_asked(replace(make_approval(subject=subject), rule=rule)) == words


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"launches": [{"name": "db"}], "allows": ['"db:*"']},
            "its servers are not started and what it allows does not apply",
        ),
        ({"launches": [{"name": "db"}], "allows": []}, "its servers are not started"),
        ({"launches": [], "allows": ['"db:*"']}, "what it allows does not apply"),
        ({"launches": [], "allows": [], "settings": {"idle_s": 3}}, "what it changes does not apply"),
    ],
)
def test_why_trust_is_asked_names_only_what_the_file_has(asked: JsonObject, words: str) -> None:
    record = replace(make_approval(subject=Subject.WORKSPACE_TRUST), rule=None, tool_input=asked)

    assert why_asked(record) == f"until you trust this file, {words}"


@promise("show:nothing-hidden")
def test_a_rule_cannot_forge_a_line() -> None:
    rule = replace(RULE, entry='"a\nb"', file="/x\ny")

    assert (
        why_asked(replace(make_approval(), rule=rule)) == 'your rule "ask "a\\nb"" says so (/x\\ny, line 3)'
    )


@pytest.mark.parametrize(
    ("kind", "name", "channel", "told"),
    [
        (DeciderKind.PERSON, "ana", Channel.TERMINAL, "ana"),
        (DeciderKind.PERSON, "jo.söder@shop", Channel.INBOX, "jo.söder@shop"),
        (DeciderKind.PERSON, "You", Channel.INBOX, "the person `You`"),
        (DeciderKind.PERSON, "a rule", Channel.INBOX, "the person `a rule`"),
        (DeciderKind.PERSON, "ana\u3164", Channel.INBOX, r"the person `ana\u{3164}`"),
        (DeciderKind.CLIENT, "ana", Channel.FORM, "the client `ana`"),
        (DeciderKind.CLIENT, "You", Channel.MODEL, "the client `You` (its model)"),
        (DeciderKind.CLIENT, "\u202eana", Channel.FORM, r"the client `\u{202e}ana`"),
        (DeciderKind.PARENT, "ana", Channel.LOOPBACK, "session `ana`"),
        (DeciderKind.RULE, "ana", Channel.RULES, "a rule"),
    ],
)
def test_only_a_person_is_told_by_name_alone(
    kind: DeciderKind, name: str, channel: Channel, told: str
) -> None:
    assert who_decided(Decider(kind=kind, id=name, channel=channel)) == told
