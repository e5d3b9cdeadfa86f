"""A question as a person reads it: what, by whom, why, what it would change, and what an answer would do.

The web page and the terminal both draw a `Card`; neither knows what an approval is made of. A text that
came from outside is a `Line`, in which a hidden character is a number, never a character: so a drawn mark
cannot be forged by the text, and what is drawn hides nothing. Texts in plain `str` are visible already.
"""

from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

import msgspec

from pml.core.approvals.fact import Fact
from pml.core.approvals.reasons import MatchedRule
from pml.core.approvals.record import ApprovalId, Decider, Scope, SessionId, State, Subject
from pml.core.values import Json, JsonObject

Line: TypeAlias = tuple[str | int, ...]  # pieces of text, and the code points of hidden characters


class Mark(StrEnum):
    """What a line of a diff is."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    GAP = "gap"  # lines that are the same were left out here


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    mark: Mark
    line: Line
    old: int | None = None  # its number in the file as it is
    new: int | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="facts"):
    """What installing, trusting or accepting something means."""

    rows: tuple[Fact, ...]


class Diff(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="diff"):
    """What a file, or a tool's description, would become, against what it is now.

    `note` tells what a reader must know of it: that the file is new, or that its text was not found.
    """

    title: str
    note: str | None = None
    lines: tuple[DiffLine, ...]
    more: int = 0  # lines that were left out of this card


class Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="command"):
    """A command, where it would run, and what the agent says of it."""

    lines: tuple[Line, ...]
    cwd: str
    says: str | None = None
    more: int = 0


class Code(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="code"):
    """Code, or another long text, as it is."""

    title: str
    language: str | None
    lines: tuple[Line, ...]
    more: int = 0


class Arguments(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="arguments"):
    """The input as JSON, indented, with hidden characters as JSON's own escapes.

    `raw`: the whole input, of which the other blocks show every value already; to be unfolded.
    """

    title: str
    lines: tuple[str, ...]
    more: int = 0
    raw: bool = False


Block: TypeAlias = Facts | Diff | Command | Code | Arguments


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the line from the one that nobody started down to the one that asks."""

    id: SessionId
    name: str
    is_agent: bool
    has_ended: bool


class Always(msgspec.Struct, frozen=True, kw_only=True):
    """What "always" would write, and into which file; `note`: what else it would allow."""

    entry: Json
    text: str
    file: str
    note: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the question; `edited`: the call that ran is not the one that was asked for."""

    text: str
    by: Decider | None
    scope: Scope | None
    message: str | None
    reason: str | None
    edited: bool = False
    at: datetime


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """Another waiting call that "always" would let run too; `glimpse`: how its input begins, and where."""

    id: ApprovalId
    tool: str
    sentence: str
    glimpse: str


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """All there is to know before deciding.

    `sentence` says in plain words what would happen; `quoted`: they are those of the server, in `sentence`,
    and `touches` is what the arguments name: a file, a command, an address.
    `remember` says what "for this session" would cover, None where nothing can be remembered.
    `verb` says what allowing it does; `kind` what it is, where it is no call like others: read by itself, and
    never answered with others. `chip` marks it in a list, where it is no call. `server` says what the server
    is that it is about.
    `missing` are the variables that a server wants set. `hidden` counts hidden characters in the input.
    `cut`: the card was shortened, and is not whole until it is fetched by itself. Headings, names and what
    the agent says of a call are bounded in every card; its arguments or facts have them whole.
    """

    id: ApprovalId
    digest: str
    status: State
    subject: Subject
    tool: str
    title: str
    sentence: str
    verb: str = "Allow"
    kind: str | None = None
    chip: str | None = None
    server: str | None = None
    quoted: bool = False
    touches: str | None = None
    warnings: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    why: str
    rule: MatchedRule | None
    session: SessionId
    session_name: str
    lineage: tuple[Ancestor, ...]
    workspace: str
    created_at: datetime
    expires_at: datetime
    hidden: int = 0
    input: JsonObject | None = None  # what an edit begins with; None where it cannot be edited
    schema: Json = None
    remember: str | None = None
    always: Always | None = None
    always_exactly: Always | None = None  # with these arguments only, where `always` is wider
    covers: tuple[Covered, ...] = ()
    missing: tuple[str, ...] = ()
    page: str | None = None  # of the inbox, where it is settled
    may_allow: tuple[str, ...]
    run_id: str | None = None
    outcome: Outcome | None = None
    cut: bool = False
