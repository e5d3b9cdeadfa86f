"""Cards: each question as a person reads it, with what is known around it looked up.

A card of a page is shortened and cheap; a whole one also tells which of the waiting "always" would let run.
Files are read, and texts compared, in a thread: a slow disk does not hold up others.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from time import monotonic
from typing import Final

import msgspec

from pml.core.approvals.memory import always_of
from pml.core.approvals.record import Approval, Channel, Decider, DeciderKind, SessionId, Subject
from pml.core.cards.blocks import Asked
from pml.core.cards.build import Around, make_card, unshown_card
from pml.core.cards.card import Ancestor, Card, Covered
from pml.core.cards.files import MAX_HEADING, Present
from pml.core.cards.sentences import glimpse_of, sentence_of
from pml.core.cards.shorten import brief
from pml.core.errors import PmlError, Unavailable
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.ports.records import Session
from pml.core.servers.manifest import definition_digest
from pml.core.sessions.launch import SCHEMA as LAUNCH_SCHEMA
from pml.core.text import visible
from pml.core.values import JsonObject
from pml.host.textfiles import read_text, real_path
from pml.service.approvals.previews import preview
from pml.service.context import Context
from pml.service.policy.policy import Policy, current_policy
from pml.service.session_tree import session_of

_MAX_LINEAGE: Final = 16  # agents that launch agents; a page has no room for more
_READ_S: Final = 10.0  # a network disk that hangs must not keep the question from being seen
_DRAW_S: Final = 3.0  # of comparing texts for one page; an agent may have written them to be slow
_DRAWERS: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="cards")  # so that others have theirs
_PERSON: Final = Decider(kind=DeciderKind.PERSON, id="person", channel=Channel.INBOX)


async def card(context: Context, record: Approval, *, whole: bool) -> Card:
    """Return the question as a person reads it. Raises: NotFound."""
    return (await _make(context, [record], whole=whole))[0]


async def cards(context: Context, records: Sequence[Approval]) -> list[Card]:
    """Return a page of shortened cards; one that cannot be made keeps no other from being seen."""
    try:
        return await _make(context, records, whole=False)
    except Unavailable:
        raise
    except Exception:
        return [await _one_of(context, record) for record in records]


async def _one_of(context: Context, record: Approval) -> Card:
    try:
        return await card(context, record, whole=False)
    except Unavailable:
        raise
    except Exception as exc:  # a mistake of ours, or a record that was tampered with
        return unshown_card(record, exc.message if isinstance(exc, PmlError) else type(exc).__name__)


async def _make(context: Context, records: Sequence[Approval], *, whole: bool) -> list[Card]:
    lookups = _Lookups(context)
    found = [await lookups.around(record, whole=whole) for record in records]

    def draw() -> list[Card]:
        until = monotonic() + _DRAW_S
        return [_draw(each, context.home, whole=whole, plain=monotonic() > until) for each in found]

    def draw_plainly() -> list[Card]:
        return [_draw(each, context.home, whole=whole, plain=True) for each in found]

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_READ_S):
            return await loop.run_in_executor(_DRAWERS, draw)
    except TimeoutError:
        return await asyncio.to_thread(draw_plainly)


def _draw(around: Around, home: str, *, whole: bool, plain: bool) -> Card:
    """Return the card; plainly if need be: what cannot be laid out must still be seen, and the others too."""

    @cache
    def read(path: str) -> Present:
        return read_text(path, forbidden=home)

    if not plain:
        with contextlib.suppress(Exception):
            return make_card(_resolved(around), read=read, whole=whole)
    plainly = replace(around, asked=replace(around.asked, is_plain=True))
    shown = make_card(plainly, read=_unread, whole=whole)
    return shown if whole else msgspec.structs.replace(shown, cut=True)  # by itself there may be time for it


def _resolved(around: Around) -> Around:
    """Return it with the folders that are meant: a link may lead out of the workspace, or into it."""
    asked = around.asked
    cwd, workspace = real_path(asked.cwd), real_path(asked.workspace)
    return replace(around, asked=replace(asked, cwd=cwd, workspace=workspace))


def _unread(path: str) -> Present:
    return Present(path=path, problem="the file was not read")


class _Lookups:
    """What the cards of a page share, each looked up once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sessions: dict[SessionId, tuple[Session, str, tuple[Ancestor, ...]]] = {}
        self._definitions: dict[tuple[str, str | None, str | None], JsonObject | None] = {}
        self._policies: dict[str, Policy] = {}

    async def around(self, record: Approval, *, whole: bool) -> Around:
        session, cwd, lineage = await self._session(record.session_id)
        if session.workspace not in self._policies:
            self._policies[session.workspace] = await current_policy(self._context, session.workspace)
        run = None if record.run_id is None else await self._context.store.journals.get(record.run_id)
        asked = Asked(
            record=record,
            cwd=record.cwd or cwd,
            workspace=session.workspace,
            clients=self._context.clients.tools,
            definition=await self._definition(record),
            starts=_starts(self._policies[session.workspace], record),
            code=None if run is None else run.code,
            language=None if run is None else run.language,
        )
        policy = self._policies[session.workspace]
        file = policy.loaded.workspace
        return Around(
            asked=asked,
            session=session,
            lineage=lineage,
            always=always_of(record),
            rules_file=file.path,
            is_trusted=policy.trusted or file.digest is None,
            broken=tuple(str(error) for error in policy.broken),
            covers=await self._covers(record) if whole else (),
        )

    async def _session(self, session_id: SessionId) -> tuple[Session, str, tuple[Ancestor, ...]]:
        if session_id not in self._sessions:
            session = await session_of(self._context, session_id)
            run = await self._context.store.runs.get(session_id)
            cwd = session.workspace if run is None else run.order.cwd
            self._sessions[session_id] = session, cwd, await self._lineage(session)
        return self._sessions[session_id]

    async def _lineage(self, session: Session) -> tuple[Ancestor, ...]:
        line = [session]
        while line[-1].parent_id is not None and len(line) < _MAX_LINEAGE:
            above = await self._context.store.sessions.get(line[-1].parent_id)
            if above is None or above in line:
                break
            line.append(above)
        return tuple(
            Ancestor(
                id=each.id,
                name=visible(brief(each.name, MAX_HEADING)),
                is_agent=each.is_agent,
                has_ended=each.ended_at is not None,
            )
            for each in reversed(line)
        )

    async def _definition(self, record: Approval) -> JsonObject | None:
        key = record.tool_name, record.artefact, record.definition
        if key not in self._definitions:
            self._definitions[key] = await _definition(self._context, record)
        return self._definitions[key]

    async def _covers(self, record: Approval) -> tuple[Covered, ...]:
        shown = await preview(self._context, record, by=_PERSON)
        found: list[Covered] = []
        for other in shown.covered:
            session, cwd, _ = await self._session(other.session_id)
            asked = Asked(
                record=other,
                cwd=other.cwd or cwd,
                workspace=session.workspace,
                clients=self._context.clients.tools,
                definition=await self._definition(other),
            )
            words, _ = sentence_of(asked)
            told = visible(other.tool_name)
            found.append(Covered(id=other.id, tool=told, sentence=words, glimpse=glimpse_of(asked)))
        return tuple(found)


def _starts(policy: Policy, record: Approval) -> str | None:
    """Return how the tool's server is started, None where no file says so; visible."""
    spec = policy.settings.servers.get(parse_tool(record.tool_name).namespace or "")
    if spec is None:
        return None
    return brief(visible(spec.target.line), MAX_HEADING)


async def _definition(context: Context, record: Approval) -> JsonObject | None:
    """Return the tool as its server described it when the question was asked, None if that is not known."""
    if record.tool_name == LAUNCH_TOOL:
        return {"inputSchema": LAUNCH_SCHEMA}
    tool = parse_tool(record.tool_name)
    if tool.namespace is None or record.artefact is None or record.subject is not Subject.TOOL_CALL:
        return None
    pin = await context.store.pins.get(tool.namespace, record.artefact, tool.action)
    if pin is not None and record.definition in (None, pin.digest):
        return pin.definition
    manifest = await context.store.manifests.get(tool.namespace, record.artefact)
    told = None if manifest is None else manifest.tool(tool.action)
    is_same = told is not None and record.definition in (None, definition_digest(told))
    return told if is_same else None
