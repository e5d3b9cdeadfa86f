"""An approval as a person reads it in the terminal: whole, with hidden characters made visible."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pml.cli.output import console
from pml.core.approvals import Approval, State, Subject, instant, told
from pml.core.text import visible, visible_json
from pml.core.values import Json
from pml.core.wire import headline

SHORT_ID: Final = 8
GLIMPSE: Final = 100


def short(approval_id: str) -> str:
    return approval_id[:SHORT_ID]


def left(record: Approval, now: datetime) -> str:
    """Return how long there is to decide, or what became of it."""
    if record.status is not State.PENDING:
        return told(record)
    return f"{span((record.expires_at - now).total_seconds())} left"


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that matter."""
    whole = max(0, int(seconds))
    for size, big, small in ((86400, "d", "h"), (3600, "h", "min"), (60, "min", "s")):
        if whole >= size:
            part = whole % size // {"d": 3600, "h": 60, "min": 1}[big]
            return f"{whole // size} {big} {part} {small}"
    return f"{whole} s"


def print_card(
    record: Approval,
    *,
    now: datetime,
    always: Json = None,
    covered: Sequence[Approval] = (),
    to_stderr: bool = False,
) -> None:
    """Print all there is to know before deciding; nothing of it is cut."""
    from rich.text import Text

    out = console(to_stderr=to_stderr)
    title = Text(visible(headline(record)), style="bold")
    out.print(title.append(f"  {visible(left(record, now))}", style="not bold dim"))
    for name, value in _facts(record, always, covered):
        first, *rest = value.split("\n")
        out.print(Text(f"  {name:<10}", style="dim").append(first, style="not dim"))
        for line in rest:
            out.print(Text(" " * 12 + line))
    if record.status is State.PENDING:
        out.print(Text(f"\n  pml approvals allow {short(record.id)}"))
        out.print(Text(f"  pml approvals deny {short(record.id)} --message 'why not'"))


def _facts(record: Approval, always: Json, covered: Sequence[Approval]) -> list[tuple[str, str]]:
    facts = [
        ("id", record.id),
        ("session", visible(record.session_id)),
        ("asked", instant(record.created_at)),
    ]
    if record.subject is Subject.TOOL_CALL:
        facts.append(("why", _why(record)))
    facts += [
        ("may allow", ", ".join(sorted(record.deciders))),
        ("digest", record.digest),
        ("input", visible_json(record.tool_input)),
    ]
    if record.updated_input is not None:
        facts.append(("edited to", visible_json(record.updated_input)))
    if record.response_message is not None:
        facts.append(("message", visible(record.response_message)))
    if record.reason is not None:
        facts.append(("reason", visible(record.reason)))
    if always is not None and record.status is State.PENDING:
        entry = visible_json(always, indent=None)
        facts.append(("always", f"would add {entry} to the workspace's .pml.json"))
    if covered:
        ids = " ".join(short(other.id) for other in covered)
        facts.append(
            ("covers", f"{len(covered)} more that wait; `--remember always --release {ids}` frees them")
        )
    return facts


def _why(record: Approval) -> str:
    rule = record.rule
    if rule is None:
        return "no rule names this tool"
    where = f" ({visible(rule.file)}:{rule.line})" if rule.file else ""
    word = "no rule names this tool, only" if rule.verdict == "unlisted" else rule.verdict
    return f"{word} {visible(rule.entry)}{where}"


def print_lines(records: Sequence[Approval], *, now: datetime) -> None:
    """Print two lines for each approval: what and how long, then as much of the input as fits."""
    from rich.text import Text

    out = console()
    widest = max(len(visible(record.tool_name)) for record in records)
    for record in records:
        line = Text(f"{short(record.id)}  ", style="bold cyan")
        line.append(f"{visible(record.tool_name):<{widest}}  ", style="bold not cyan")
        line.append(f"{visible(left(record, now))}  ", style="not bold not cyan")
        out.print(line.append(visible(record.session_id), style="not bold not cyan dim"))
        out.print(Text(f"          {_glimpse(record)}", style="dim"))


def _glimpse(record: Approval) -> str:
    """Return the start of the input; `show` has all of it."""
    text = visible_json(record.tool_input, indent=None)
    return text if len(text) <= GLIMPSE else f"{text[:GLIMPSE]}… {len(text):,} characters; `show` has all"
