"""An approval as a person reads it in the terminal: whole, with hidden characters made visible."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pml.cli.terminal.output import console, count, local_time, print_beside
from pml.core.approvals.record import Approval, SessionId, State, Subject, state_word, told
from pml.core.approvals.subjects import asked_facts, headline, why_asked
from pml.core.cards.card import Card, Command, Diff, Mark
from pml.core.cards.facts import always_note, gone_note, span, who_decided
from pml.core.ports.records import Session
from pml.core.text import pieces, visible, visible_json
from pml.core.values import Json

if TYPE_CHECKING:
    from rich.console import Console

SHORT_ID: Final = 8
GLIMPSE: Final = 100
_SIGNS: Final = {
    Mark.SAME: (" ", "dim"),
    Mark.ADDED: ("+", "green"),
    Mark.REMOVED: ("-", "red"),
    Mark.GAP: ("…", "dim"),
}


def short(approval_id: str) -> str:
    return approval_id[:SHORT_ID]


def session_title(session_id: str, name: str | None) -> str:
    """Return a session as people know it: its name, with the start of its id where that is another."""
    if name is None or name == session_id:
        return visible(session_id)
    return f"{visible(name)} ({visible(short(session_id))})"


def left(record: Approval, now: datetime) -> str:
    """Return in a few words how long there is to decide, or what became of it and how long ago."""
    if record.status is State.PENDING:
        return f"{span((record.expires_at - now).total_seconds())} left"
    ago = "" if record.resolved_at is None else f" {span((now - record.resolved_at).total_seconds())} ago"
    if record.decided_by is None:
        return f"{state_word(record.status)}{ago}"
    verb = "denied" if record.status is State.DENIED else "allowed"
    after = "" if record.status in (State.DENIED, State.ALLOWED) else f", {state_word(record.status)}"
    return f"{verb} by {who_decided(record.decided_by)}{ago}{after}"


def print_card(
    record: Approval,
    *,
    workspace: str,
    session_name: str | None = None,
    now: datetime,
    always: Json = None,
    covered: Sequence[Approval] = (),
    code: str | None = None,
    card: Card | None = None,
    to_stderr: bool = False,
    is_prompted: bool = False,
) -> None:
    """Print all there is to know before deciding; nothing of it is cut.

    `card` has the sentence, and the diff of each file that would change. `is_prompted`: a prompt follows, and
    how to decide elsewhere need not be said.
    """
    from rich.text import Text

    out = console(to_stderr=to_stderr)
    waits = record.status is State.PENDING
    title = Text(visible(headline(record) if waits else record.tool_name), style="bold")
    print_beside(out, Text(), title.append(f"  {left(record, now)}", style="not bold dim"))
    facts = [] if card is None else [("what", said(card))]
    facts += [("why", why_asked(record)), *asked_facts(record), *_about(record, workspace, session_name)]
    if code is not None:
        facts.append(("code", "\n".join(visible(line) for line in code.rstrip().split("\n"))))
    facts += _outcome(record)
    if waits:
        facts += _memory(record, workspace, always, covered)
    width = max(len(name) for name, _ in facts) + 1
    for name, value in facts:
        first, *rest = value.split("\n")
        print_beside(out, Text(f"  {name:<{width}}", style="dim"), Text(first))
        for line in rest:
            print_beside(out, Text(" " * (width + 2)), Text(line))
    for diff in () if card is None else card.blocks:
        if isinstance(diff, Diff):
            _print_diff(out, diff)
    if waits and not is_prompted:
        out.print(Text(f"\n  pml approvals allow {short(record.id)}"))
        out.print(Text(f"  pml approvals deny {short(record.id)} --message 'why not'"))


def said(card: Card) -> str:
    """Return the sentence of a card; words of a server are marked as such, with what the call names."""
    if not card.quoted:
        return visible(card.sentence)
    touches = "" if card.touches is None else f": {card.touches}"
    return f"“{visible(card.sentence)}”, says the server{touches}"


def _print_diff(out: "Console", diff: Diff) -> None:
    from rich.text import Text

    note = "" if diff.note is None else f"  {visible(diff.note)}"
    out.print(Text(f"\n  {visible(diff.title)}", style="bold").append(note, style="not bold yellow"))
    for line in diff.lines:
        sign, style = _SIGNS[line.mark]
        text = "".join(map(_piece, line.line))
        out.print(Text(f"  {sign} {text}", style=style))
    if diff.more:
        out.print(Text(f"  and {count(diff.more, 'more line')}", style="dim"))


def _piece(piece: str | int) -> str:
    """Return a piece of a line of text: as it is, but for what is hidden in it."""
    if isinstance(piece, str):
        return "".join(part if isinstance(part, str) else _piece(part) for part in pieces(piece))
    return "    " if piece == ord("\t") else f"\\u{{{piece:x}}}"


def _about(record: Approval, workspace: str, session_name: str | None) -> list[tuple[str, str]]:
    return [
        ("workspace", visible(workspace)),
        ("session", session_title(record.session_id, session_name)),
        ("asked", local_time(record.created_at)),
        ("may allow", ", ".join(sorted(record.deciders))),
        ("id", record.id),
        ("sha256", record.digest.removeprefix("sha256:")),
    ]


def _outcome(record: Approval) -> list[tuple[str, str]]:
    facts = [] if record.status is State.PENDING else [("outcome", visible(told(record, when=local_time)))]
    if record.response_message is not None:
        facts.append(("message", visible(record.response_message)))
    if record.reason is not None:
        facts.append(("reason", visible(record.reason)))
    return facts


def _memory(
    record: Approval, workspace: str, always: Json, covered: Sequence[Approval]
) -> list[tuple[str, str]]:
    """Return what "always" would write and release, shown before it does."""
    if always is None:
        return []
    line = f"would add {visible_json(always, indent=None)} to {visible(workspace)}/.pml.json"
    if (note := always_note(always)) is not None:
        line += f",\n{note}"
    facts = [("always", line)]
    if covered:
        ids = " ".join(short(other.id) for other in covered)
        more, them = (f"{len(covered)} more wait", "them") if len(covered) > 1 else ("1 more waits", "it")
        facts.append(("covers", f"{more}; `--remember always --release {ids}` lets {them} run"))
    return facts


def print_lines(
    records: Sequence[Approval],
    cards: Sequence[Card],
    sessions: Mapping[SessionId, Session],
    *,
    now: datetime,
) -> None:
    """Print for each approval what would happen and how long there is, its input, and where it comes from."""
    from rich.text import Text

    out = console()
    for record, card in zip(records, cards, strict=True):
        line = Text.assemble((f"{said(card)}  ", "bold"), left(record, now))
        print_beside(out, Text(f"{short(record.id)}  ", style="bold cyan"), line)
        indent = Text(" " * (SHORT_ID + 2))
        # What the sentence above says already is not said twice.
        is_told = record.subject is not Subject.TOOL_CALL
        is_told = is_told or any(isinstance(block, Diff | Command) for block in card.blocks)
        begins = "" if is_told else f"  {glimpse(record)}"
        print_beside(out, indent, Text(f"{visible(record.tool_name)}{begins}", style="dim"))
        session = sessions[record.session_id]
        place = f"{visible(session.workspace)} · {session_title(session.id, session.name)}"
        print_beside(out, indent, Text(f"{place}", style="dim"))
        if (gone := gone_note(record, has_ended=session.ended_at is not None)) is not None:
            print_beside(out, indent, Text(f"{gone}", style="yellow"))


def glimpse(record: Approval) -> str:
    """Return the start of the input; `show` has all of it."""
    if record.subject is Subject.WORKSPACE_TRUST:
        allows, starts = (record.tool_input.get(key) for key in ("allows", "launches"))
        rules = count(len(allows) if isinstance(allows, list | tuple) else 0, "rule")
        commands = count(len(starts) if isinstance(starts, list | tuple) else 0, "command")
        return f"trust this workspace's .pml.json: {rules} to allow, {commands} to start"
    if record.subject is not Subject.TOOL_CALL:
        return visible(headline(record))
    text = visible_json(record.tool_input, indent=None)
    return text if len(text) <= GLIMPSE else f"{text[:GLIMPSE]}… {len(text):,} characters; `show` has all"
