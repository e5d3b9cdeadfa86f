"""A card put together from a question and what is known around it; whole, or short for a page of many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from pml.core.approvals.memory import always_entry, scopes_of
from pml.core.approvals.reasons import MatchedRule, matched
from pml.core.approvals.record import Approval, Scope, State, Subject, told
from pml.core.approvals.subjects import call_input, frame_of, row_of, title, why_asked
from pml.core.cards.blocks import Asked, blocks_of, shown_folder
from pml.core.cards.card import Always, Ancestor, Block, Card, Covered, Facts, Outcome
from pml.core.cards.facts import always_note, gone_note, session_memory
from pml.core.cards.files import MAX_HEADING, Read
from pml.core.cards.sentences import sentence_of, touches_of, warnings_of
from pml.core.cards.shorten import brief, short_input, shortened
from pml.core.packages.install_facts import missing_variables
from pml.core.ports.records import Session
from pml.core.text import count_hidden, entry_text, visible
from pml.core.values import Json

_UNSHOWN: Final = "This request cannot be shown"


@dataclass(frozen=True, kw_only=True)
class Around:
    """A question, who asks, and what an answer would do.

    `always` is the entry that "always" would write to `rules_file`, None where nothing can be remembered.
    """

    asked: Asked
    session: Session
    lineage: tuple[Ancestor, ...]
    always: Json
    rules_file: str
    is_trusted: bool
    broken: tuple[str, ...] = ()
    covers: tuple[Covered, ...] = ()


def make_card(around: Around, *, read: Read, whole: bool) -> Card:
    """Return the card; what is still open is looked at with `read`.

    For a page of many, a long input is cut before lines are made of it: `more` counts within that.
    """
    record = around.asked.record
    asked, edited = short_input(record.tool_input), record.updated_input and short_input(record.updated_input)
    if whole or (asked is record.tool_input and edited is record.updated_input):
        full = _full_card(around, read=read)
        return full if whole else shortened(full)
    cut = msgspec.structs.replace(record, tool_input=asked, updated_input=edited)
    card = shortened(_full_card(replace(around, asked=replace(around.asked, record=cut)), read=read))
    hidden = count_hidden(record.tool_input) + count_hidden(record.updated_input)
    return msgspec.structs.replace(card, cut=True, hidden=hidden, input=None, always_exactly=None)


def _full_card(around: Around, *, read: Read) -> Card:
    record = around.asked.record
    waits = record.status is State.PENDING
    asked = replace(around.asked, read=read if waits else None)
    sentence, quoted = sentence_of(asked)
    hidden = count_hidden(record.tool_input) + count_hidden(record.updated_input)
    row = row_of(record)
    can_edit = waits and record.subject is Subject.TOOL_CALL
    blocks = blocks_of(asked)
    warnings = [*map(_broken, around.broken)] if waits else []
    if (gone := gone_note(record, has_ended=around.session.ended_at is not None)) is not None:
        warnings.append(gone)
    if asked.is_plain:
        warnings.append("it could not be laid out in time: what it would do stands in the arguments only")
    return Card(
        id=record.id,
        digest=record.digest,
        status=record.status,
        subject=record.subject,
        tool=visible(record.tool_name),
        title=brief(title(record), MAX_HEADING),
        sentence=brief(sentence, MAX_HEADING),
        verb=row.verb(record),
        kind=frame_of(record),
        chip=row.chip,
        server=row.server(record, asked.starts),
        quoted=quoted,
        touches=touches_of(asked) if quoted else None,
        warnings=(*warnings, *warnings_of(asked, hidden=hidden), *_left_out(blocks)),
        blocks=blocks,
        why=why_asked(record),
        rule=None if record.rule is None else _shown_rule(matched(record.rule)),
        session=record.session_id,
        session_name=visible(brief(around.session.name, MAX_HEADING)),
        lineage=around.lineage,
        workspace=shown_folder(around.session.workspace),
        created_at=record.created_at,
        expires_at=record.expires_at,
        hidden=hidden,
        input=record.tool_input if can_edit else None,
        schema=(asked.definition or {}).get("inputSchema") if can_edit else None,
        remember=_remember(record),
        always=_always(around, around.always),
        always_exactly=_always(around, _exact_entry(around)),
        covers=around.covers,
        missing=tuple(missing_variables(record.tool_input)) if row.wants_key else (),
        page=row.page,
        may_allow=tuple(sorted(record.deciders)),
        run_id=record.run_id,
        outcome=_outcome(record),
    )


def unshown_card(record: Approval, problem: str) -> Card:
    """Return what stands for a question whose card cannot be made: never whole, so that nobody allows it."""
    return Card(
        id=record.id,
        digest=record.digest,
        status=record.status,
        subject=record.subject,
        tool=visible(brief(record.tool_name, MAX_HEADING)),
        title=_UNSHOWN,
        sentence=_UNSHOWN,
        warnings=(f"{visible(brief(problem, MAX_HEADING))}; `pml approvals show {record.id}` may tell more",),
        why="that cannot be told either",
        rule=None,
        session=record.session_id,
        session_name=visible(brief(record.session_id, MAX_HEADING)),
        lineage=(),
        workspace="",
        created_at=record.created_at,
        expires_at=record.expires_at,
        may_allow=tuple(sorted(record.deciders)),
        run_id=record.run_id,
        cut=True,
    )


def _left_out(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield how much is too long to be laid out, even in a whole card."""
    for block in blocks:
        if not isinstance(block, Facts) and block.more:
            yield f"{block.more:,} lines are too many to be laid out: they stand only in the arguments"


def _broken(error: str) -> str:
    return f"{visible(brief(error, MAX_HEADING))}: until it is fixed its denies are unknown"


def _shown_rule(rule: MatchedRule) -> MatchedRule:
    return msgspec.structs.replace(
        rule, entry=visible(rule.entry), file=None if rule.file is None else visible(rule.file)
    )


def _may_cover(record: Approval, scope: Scope) -> bool:
    return record.status is State.PENDING and scope in scopes_of(record)


def _remember(record: Approval) -> str | None:
    if not _may_cover(record, Scope.SESSION):
        return None
    return session_memory(record.tool_name, call_input(record))


def _always(around: Around, entry: Json) -> Always | None:
    if entry is None or not _may_cover(around.asked.record, Scope.ALWAYS):
        return None
    file = visible(around.rules_file)
    notes = [always_note(entry), None if around.is_trusted else f"it applies once {file} is trusted"]
    note = "; ".join(each for each in notes if each is not None)
    return Always(entry=entry, text=entry_text(entry), file=file, note=note or None)


def _exact_entry(around: Around) -> Json:
    """Return the entry for these arguments only, None where "always" is no wider."""
    record = around.asked.record
    if not isinstance(around.always, str):
        return None
    return always_entry(record.tool_name, call_input(record), literal=True)


def _outcome(record: Approval) -> Outcome | None:
    if record.resolved_at is None:
        return None
    by = record.decided_by
    return Outcome(
        text=visible(told(record)),
        by=None if by is None else msgspec.structs.replace(by, id=visible(by.id)),
        scope=record.scope,
        message=None if record.response_message is None else visible(record.response_message),
        reason=None if record.reason is None else visible(record.reason),
        edited=record.updated_input is not None,
        at=record.resolved_at,
    )
