"""Rows of tokens, runs, messages and receipts to values and back. Column order is that of the schema."""

import msgspec

from pml.core.agents import Message, MessageKind, Order, Run, RunState
from pml.core.approvals import OwnerId, SessionId
from pml.core.identity import Token, TokenId, TokenRole
from pml.core.supervising import Receipt
from pml.store.database import Row, Value
from pml.store.rows import at_micros, maybe_at, maybe_micros, micros


def token_values(token: Token) -> tuple[Value, ...]:
    return (
        token.id,
        token.role,
        token.name,
        token.hash,
        token.session_id,
        micros(token.created_at),
        maybe_micros(token.expires_at),
        maybe_micros(token.revoked_at),
        token.forms,
    )


def token_of(row: Row) -> Token:
    return Token(
        id=TokenId(row[0]),
        role=TokenRole(row[1]),
        name=row[2],
        hash=row[3],
        session_id=None if row[4] is None else SessionId(row[4]),
        created_at=at_micros(row[5]),
        expires_at=maybe_at(row[6]),
        revoked_at=maybe_at(row[7]),
        forms=bool(row[8]),
    )


def run_values(run: Run) -> tuple[Value, ...]:
    return (
        run.session_id,
        msgspec.json.encode(run.order).decode(),
        run.owner,
        run.state,
        run.config,
        run.turns,
        run.cost_usd,
        run.result,
        run.exit_code,
        run.told_seq,
        micros(run.started_at),
        maybe_micros(run.ended_at),
    )


def run_of(row: Row) -> Run:
    return Run(
        session_id=SessionId(row[0]),
        order=msgspec.json.decode(row[1], type=Order),
        owner=OwnerId(row[2]),
        state=RunState(row[3]),
        config=row[4],
        turns=row[5],
        cost_usd=row[6],
        result=row[7],
        exit_code=row[8],
        told_seq=row[9],
        started_at=at_micros(row[10]),
        ended_at=maybe_at(row[11]),
    )


def message_of(row: Row) -> Message:
    return Message(
        seq=row[0],
        session_id=SessionId(row[1]),
        kind=MessageKind(row[2]),
        text=row[3],
        at=at_micros(row[4]),
    )


def receipt_values(receipt: Receipt) -> tuple[Value, ...]:
    return (
        receipt.principal,
        receipt.key,
        receipt.request,
        receipt.body,
        receipt.status,
        micros(receipt.made_at),
    )


def receipt_of(row: Row) -> Receipt:
    return Receipt(
        principal=row[0],
        key=row[1],
        request=row[2],
        body=row[3],
        status=row[4],
        made_at=at_micros(row[5]),
    )
