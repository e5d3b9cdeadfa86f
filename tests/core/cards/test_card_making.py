"""A card tells all that an answer would do; a short one tells that it is short."""

import dataclasses
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from pml.agents.known import KNOWN
from pml.core.approvals.memory import always_entry, is_rememberable
from pml.core.approvals.reasons import AskRule, Reserved
from pml.core.approvals.record import Approval, Scope, State, Subject
from pml.core.approvals.states import advance
from pml.core.approvals.subjects import call_input
from pml.core.cards.blocks import Asked
from pml.core.cards.build import Around, make_card
from pml.core.cards.card import Always, Ancestor, Arguments, Card, Code, Command, Diff, Facts
from pml.core.cards.files import Present
from pml.core.cards.shorten import SHORT_CHARS, SHORT_LINES, shortened
from pml.core.text import has_hidden
from pml.core.values import Json, JsonObject
from tests.builders import NOW, PATH, PERSON, SESSION, WORKSPACE, allow, deny, make_approval, make_session
from tests.promises import promise

DEFINITION: JsonObject = {"name": "create_issue", "inputSchema": {"type": "object"}}


def made(
    record: Approval,
    *,
    whole: bool = True,
    is_trusted: bool = True,
    broken: tuple[str, ...] = (),
    definition: JsonObject | None = DEFINITION,
) -> Card:
    always: Json = None
    if record.status is State.PENDING and is_rememberable(record.tool_name):
        always = always_entry(record.tool_name, call_input(record))
    around = Around(
        asked=Asked(
            record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools, definition=definition
        ),
        session=make_session(),
        lineage=(),
        always=always,
        rules_file=PATH,
        is_trusted=is_trusted,
        broken=broken,
    )
    return make_card(around, read=lambda path: Present(path=path, is_missing=True), whole=whole)


def bash(command: str) -> Approval:
    return make_approval(tool_name="Bash", tool_input={"command": command, "description": "x"})


def test_a_card_has_all_that_is_known_of_the_question() -> None:
    record = make_approval()
    card = made(record)
    assert card == Card(
        id=record.id,
        digest=record.digest,
        status=State.PENDING,
        subject=Subject.TOOL_CALL,
        tool="github:create_issue",
        title="Call github:create_issue",
        sentence="Call github:create_issue",
        blocks=(Arguments(title="arguments", lines=("{", '  "title": "it is broken"', "}")),),
        why="no rule covers github:create_issue",
        rule=None,
        session=record.session_id,
        session_name="shop",
        lineage=(),
        workspace=WORKSPACE,
        created_at=NOW,
        expires_at=NOW + timedelta(seconds=300),
        input={"title": "it is broken"},
        schema={"type": "object"},
        remember="every github:create_issue until the session ends",
        always=Always(entry="github:create_issue", text="github:create_issue", file=PATH),
        always_exactly=Always(
            entry={
                "tool": "github:create_issue",
                "args": {"title": {"is": "it is broken"}},
                "exact": True,
            },
            text='{"tool": "github:create_issue", "args": {"title": {"is": "it is broken"}}, "exact": true}',
            file=PATH,
        ),
        may_allow=("person",),
    )


def test_what_runs_code_is_remembered_only_as_it_is() -> None:
    card = made(bash("ls"))
    assert card.remember == "this exact command, in any folder, until the session ends"
    served = made(make_approval(tool_name="db:query", tool_input={"sql": "SELECT 1"}))
    assert served.remember == "exactly this db:query, until the session ends"
    assert card.always_exactly is None
    assert card.always is not None
    assert card.always.entry == {"tool": "Bash", "args": {"command": {"is": "ls"}}, "exact": True}
    assert card.always.note == "also allows a tool called Bash of any server with these arguments"


def test_an_entry_in_a_file_that_is_not_trusted_says_when_it_counts() -> None:
    card = made(make_approval(), is_trusted=False)
    assert card.always is not None
    assert card.always.note == f"it applies once {PATH} is trusted"


@pytest.mark.parametrize("tool", ["pml:call", "pml:session_launch"])
def test_what_only_carries_other_calls_is_never_remembered(tool: str) -> None:
    card = made(make_approval(tool_name=tool, tool_input={"prompt": "x"}))
    assert (card.remember, card.always, card.always_exactly) == (None, None, None)


def test_what_names_pml_itself_offers_no_memory_since_none_would_be_heeded() -> None:
    rule = Reserved(why="it names PML itself")
    card = made(replace(bash("pml trust"), rule=rule))
    assert (card.remember, card.always) == (None, None)


def test_a_question_about_a_server_is_not_remembered_for_the_session_nor_edited() -> None:
    asked: JsonObject = {"server": "m@1", "missing": ["KEY", "B\u202e"]}
    card = made(make_approval(subject=Subject.API_KEY_REQUIRED, tool_input=asked))
    assert (card.remember, card.input, card.schema) == (None, None, None)
    assert card.missing == ("KEY", "B\\u{202e}")
    assert card.title == "m@1 requires KEY, B\\u{202e}"


def test_a_decided_question_tells_its_outcome_and_offers_nothing() -> None:
    record = make_approval()
    denied = made(advance(record, deny(record, by=PERSON, message="no\u202e")))
    assert denied.outcome is not None
    assert (denied.outcome.by, denied.outcome.message) == (PERSON, "no\\u{202e}")
    assert (denied.remember, denied.always, denied.input) == (None, None, None)
    allowed = made(advance(record, allow(record, scope=Scope.SESSION, updated_input={"title": "y"})))
    assert allowed.outcome is not None
    assert (allowed.outcome.scope, len(allowed.blocks)) == (Scope.SESSION, 3)
    assert (denied.outcome.edited, allowed.outcome.edited) == (False, True)


def test_a_broken_file_is_warned_of_while_the_question_waits() -> None:
    record = make_approval()
    assert made(record, broken=("config.json:1: oops",)).warnings == (
        "config.json:1: oops: until it is fixed its denies are unknown",
    )
    assert made(advance(record, deny(record)), broken=("config.json:1: oops",)).warnings == ()


@promise("card:nothing-hidden")
def test_texts_of_others_are_visible_wherever_they_stand() -> None:
    rule = AskRule(entry="\u202e*", file="/x/\u200b.json", line=1)
    card = made(replace(make_approval(tool_input={"a": "\u202e"}), rule=rule))
    assert card.hidden == 1
    assert card.rule is not None
    for text in (card.why, card.rule.entry, card.rule.file or "", *card.warnings):
        assert not has_hidden(text)


@promise("card:cut-is-told")
def test_a_small_card_is_whole_at_once_and_a_large_one_says_that_it_is_cut() -> None:
    assert made(bash("ls"), whole=False) == made(bash("ls"))
    command = "x\n" * (SHORT_LINES + 50)
    short, full = made(bash(command), whole=False), made(bash(command))
    assert (short.cut, full.cut) == (True, False)
    assert isinstance(short.blocks[0], Command)
    assert (len(short.blocks[0].lines), short.blocks[0].more) == (SHORT_LINES, 50)
    assert isinstance(full.blocks[0], Command)
    assert (len(full.blocks[0].lines), full.blocks[0].more) == (SHORT_LINES + 50, 0)


@promise("card:cut-is-told")
def test_of_a_megabyte_in_one_line_a_short_card_has_the_start() -> None:
    record = bash("x" * 1_000_000 + "\u202e")
    short, full = made(record, whole=False), made(record)
    assert isinstance(short.blocks[0], Command)
    assert (short.blocks[0].lines, short.blocks[0].more) == ((("x" * SHORT_CHARS,),), 1)
    assert (short.cut, short.hidden, short.input, short.always) == (True, 1, None, None)
    assert isinstance(full.blocks[0], Command)
    assert full.blocks[0].lines == (("x" * 1_000_000, 0x202E),)
    assert full.input == record.tool_input


@promise("card:cut-is-told")
@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("Write", {"file_path": "a", "content": "x\n" * 1000}, Diff),
        ("pml:execute", {"code": "x\n" * 1000}, Code),
        ("web:put", {"items": [*range(1000)]}, Arguments),
    ],
)
def test_every_part_of_a_short_card_counts_what_it_leaves_out(
    tool: str, arguments: JsonObject, kind: type[Diff] | type[Code] | type[Arguments]
) -> None:
    record = make_approval(tool_name=tool, tool_input=arguments)
    short, full = made(record, whole=False), made(record)
    part, all_of_it = short.blocks[0], full.blocks[0]
    assert isinstance(part, kind)
    assert isinstance(all_of_it, kind)
    assert part.more == len(all_of_it.lines) - SHORT_LINES
    assert short.cut


@promise("card:cut-is-told")
def test_facts_that_are_too_long_are_cut_too() -> None:
    asked: JsonObject = {"path": "p" * 100_000, "digest": "d"}
    record = make_approval(tool_name="pml:trust", subject=Subject.WORKSPACE_TRUST, tool_input=asked)
    around = Around(
        asked=Asked(record=record, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools),
        session=make_session(),
        lineage=(),
        always=None,
        rules_file=PATH,
        is_trusted=True,
    )
    short = make_card(around, read=lambda path: Present(path=path), whole=False)
    assert isinstance(short.blocks[0], Facts)
    assert (short.blocks[0].rows[0].value, short.cut) == ("p" * (SHORT_CHARS - 1) + "…", True)


def test_what_even_a_whole_card_cannot_lay_out_is_told() -> None:
    card = made(bash("x\n" * 20_007))
    assert card.warnings == ("7 lines are too many to be laid out: they stand only in the arguments",)
    assert not card.cut


def test_a_question_whose_asker_is_gone_says_so_while_it_waits() -> None:
    record = replace(make_approval(), abandoned_at=NOW)
    gone = "the agent disconnected; withdrawn unless it reconnects"
    assert made(record).warnings == (gone,)
    assert made(replace(record, status=State.CANCELLED, resolved_at=NOW)).warnings == ()


LONG = "l" * 300_000
LONG_LINES = "\u202e\n" * 30_000


@promise("card:cut-is-told")
@pytest.mark.parametrize(
    ("tool", "arguments", "subject"),
    [
        ("Bash", {"command": LONG, "description": LONG}, Subject.TOOL_CALL),
        ("Bash", {"command": LONG_LINES, "code": LONG, LONG: LONG}, Subject.TOOL_CALL),
        ("shell:run", {"command": "ls", "cwd": LONG}, Subject.TOOL_CALL),
        ("Write", {"file_path": LONG, "content": LONG_LINES}, Subject.TOOL_CALL),
        ("NotebookEdit", {"notebook_path": "n", "cell_id": LONG, "new_source": "x"}, Subject.TOOL_CALL),
        ("notes:add", {f"k{n}{LONG[:900]}": LONG_LINES[:900] for n in range(300)}, Subject.TOOL_CALL),
        ("WebFetch", {"url": f"https://{LONG}\u0430/"}, Subject.TOOL_CALL),
        ("pml:trust", {"path": LONG, "allows": [LONG] * 3, "launches": [LONG]}, Subject.WORKSPACE_TRUST),
        ("notes:add", {"server": LONG, "missing": [LONG] * 3}, Subject.API_KEY_REQUIRED),
        ("notes:add", {"server": "m@1", "missing": [f"K{n}" for n in range(9000)]}, Subject.API_KEY_REQUIRED),
        ("notes:add", {"server": LONG, "changed": [LONG] * 3}, Subject.INTEGRITY_CHANGED),
        ("notes:add", {"diff": [LONG] * 3}, Subject.TOOL_CHANGED),
        ("notes:add", {"dependency": {"name": LONG, "version": LONG}}, Subject.DEPENDENCY_INSTALL),
    ],
)
def test_whatever_is_long_a_short_card_is_short(tool: str, arguments: JsonObject, subject: Subject) -> None:
    record = make_approval(tool_name=tool, tool_input=arguments, subject=subject)
    rule = AskRule(entry=LONG, file=LONG, line=1)
    around = Around(
        asked=Asked(
            record=replace(record, rule=rule),
            cwd=f"/{LONG}",
            workspace=WORKSPACE,
            clients=KNOWN.tools,
            code=LONG_LINES,
            language="sql",
        ),
        session=make_session(name=LONG, workspace=LONG),
        lineage=tuple(Ancestor(id=SESSION, name=LONG, is_agent=True, has_ended=False) for _ in range(16)),
        always={"tool": LONG},
        rules_file=LONG,
        is_trusted=False,
        broken=(LONG,) * 3,
    )
    short = make_card(around, read=lambda path: Present(path=path, problem=LONG), whole=False)
    assert short.cut
    assert len(msgspec.json.encode(short)) < 300_000  # what is hidden takes several characters each
    denied = replace(
        record, status=State.DENIED, resolved_at=NOW, response_message=LONG, reason=LONG, decided_by=PERSON
    )
    told = make_card(
        dataclasses.replace(
            around, asked=Asked(record=denied, cwd=WORKSPACE, workspace=WORKSPACE, clients=KNOWN.tools)
        ),
        read=lambda path: Present(path=path),
        whole=False,
    )
    assert len(msgspec.json.encode(told)) < 300_000


@pytest.mark.parametrize("subject", [Subject.API_KEY_REQUIRED, Subject.DEPENDENCY_INSTALL])
def test_the_headings_of_a_whole_card_are_bounded(subject: Subject) -> None:
    asked: JsonObject = {"missing": [LONG], "server": LONG, "dependency": {"name": LONG, "version": "1"}}
    card = made(make_approval(subject=subject, tool_input=asked), broken=(LONG,))
    assert max(len(text) for text in (card.title, card.sentence, card.session_name, *card.warnings)) < 400


@promise("card:cut-is-told")
@pytest.mark.parametrize("field", ["title", "sentence", "why", "session_name", "workspace", "warnings"])
def test_every_text_around_the_parts_is_cut_and_that_is_told(field: str) -> None:
    full = replace(made(bash("ls")), **{field: (LONG,) if field == "warnings" else LONG})
    short = shortened(full)
    assert len(msgspec.json.encode(short)) < 10_000
    assert short.cut


@promise("card:cut-is-told")
@pytest.mark.parametrize(
    "block",
    [
        Command(lines=(), cwd=LONG),
        Command(lines=(), cwd="/", says=LONG),
        Code(title=LONG, language=None, lines=()),
        Diff(title=LONG, lines=()),
        Diff(title="a", note=LONG, lines=()),
    ],
)
def test_every_text_of_a_part_is_cut_and_that_is_told(block: Command | Code | Diff) -> None:
    short = shortened(replace(made(bash("ls")), blocks=(block,)))
    assert len(msgspec.json.encode(short)) < 10_000
    assert short.cut


@promise("card:cut-is-told")
def test_many_parts_share_the_room_of_a_short_card() -> None:
    parts = tuple(Code(title=f"{n}", language=None, lines=(("x" * SHORT_CHARS,),)) for n in range(12))
    short = shortened(replace(made(bash("ls")), blocks=parts))
    left = [each.more for each in short.blocks if isinstance(each, Code)]
    assert (left, short.cut) == ([0] * 4 + [1] * 8, True)
    assert len(msgspec.json.encode(short)) < 5 * SHORT_CHARS
