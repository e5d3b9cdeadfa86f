"""Calls that a cloud runs for others: `POST /mcp/tools/call`, one JSON-RPC request with a token.

Who sends too much, too slowly, or what two parsers could read differently is refused before anything runs; so
is what there is no room for. Every kind of error has its code. A call ends when its client has gone. What a
tool is, and who may call it, is the executor's to know.
"""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from pml.core.errors import ErrorCode, Invalid, PmlError, ServerRefused
from pml.core.sessions.token import AGENT_ROLES, Identity, TokenId
from pml.core.text import quote, visible
from pml.core.values import JsonObject, kind_of, loads
from pml.jsonrpc.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
)
from pml.jsonrpc.lines import error_line, result_line
from pml.jsonrpc.messages import Malformed, RpcError, as_id
from pml.jsonrpc.messages import Request as Call
from pml.web.error_responses import refusal

KEPT_S: Final = 600.0  # a client that sends a call again does so within seconds
MAX_KEYS: Final = 256  # of one token
MAX_ANSWER: Final = 64 * 1024
RPC_CODE: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.INVALID: INVALID_PARAMS,
    ErrorCode.FORBIDDEN: SERVER_ERROR,
    ErrorCode.NOT_FOUND: SERVER_ERROR,
    ErrorCode.CONFLICT: SERVER_ERROR,
    ErrorCode.UNAVAILABLE: SERVER_ERROR,
    ErrorCode.INTERNAL: INTERNAL_ERROR,
}


class Run:
    """A call that runs or has run; `digest` is that of its request. `waiting` want its answer.

    `broken_off` is the answer of a call that was cancelled, `not_kept` that of one whose answer was too long,
    for those who ask later.
    """

    def __init__(
        self, digest: bytes, task: asyncio.Task[bytes], *, broken_off: bytes, not_kept: bytes
    ) -> None:
        self.digest = digest
        self.task: asyncio.Task[bytes] | None = task
        self.waiting = 0
        self.ended_at: float | None = None
        self.answer = not_kept
        self._broken_off = broken_off

    def line(self, task: asyncio.Task[bytes]) -> bytes:
        """Return what the task, which has ended, came to."""
        return self._broken_off if task.cancelled() else task.result()

    def end(self, *, at: float) -> None:
        """Keep what is to be answered from now on."""
        assert self.task is not None
        line = self.line(self.task)
        if len(line) <= MAX_ANSWER:
            self.answer = line
        self.task = None
        self.ended_at = at


class Replays:
    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._runs: dict[TokenId, OrderedDict[str, Run]] = {}

    def find(self, token_id: TokenId, key: str | None) -> Run | None:
        """Return the call that the token's holder made under `key`."""
        runs = self._runs.get(token_id)
        return None if runs is None or key is None else runs.get(key)

    def keep(self, token_id: TokenId, key: str, run: Run) -> None:
        """Keep a call that begins, and forget what is old or too many; what runs is never forgotten."""
        for each in list(self._runs):
            self._forget(each, keep=MAX_KEYS - (each == token_id))
        self._runs.setdefault(token_id, OrderedDict())[key] = run

    def _forget(self, token_id: TokenId, *, keep: int) -> None:
        runs, oldest = self._runs[token_id], self._now() - KEPT_S
        for key in [key for key, run in runs.items() if run.ended_at is not None and run.ended_at < oldest]:
            del runs[key]
        ended = [key for key, run in runs.items() if run.ended_at is not None]
        for key in ended[: max(0, len(runs) - keep)]:
            del runs[key]
        if not runs:
            del self._runs[token_id]


PATH: Final = "/mcp/tools/call"


RETRY_S: Final = 1  # a call takes about that long; a client that is turned away comes again then


CLOSE_S: Final = 2.0  # cancelled calls tell their servers


_STATUS: Final[Mapping[int, int]] = {  # of requests that are none; what came of a call is told with 200
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
}


_BROKEN_OFF: Final = RpcError(SERVER_ERROR, "the call was broken off: nobody knows whether it ran")


_NOT_KEPT: Final = RpcError(SERVER_ERROR, "the call was answered before; that answer was too long to keep")


_KEY: Final = re.compile(r"[!-~]{1,128}")


Say = Callable[[str], None]


class Executor(Protocol):
    """What runs the calls, by its own rules."""

    async def identify(self, authorization: str | None) -> Identity | None:
        """Return whose token an `Authorization` header bears, None for every other."""
        ...

    async def call(self, identity: Identity, params: JsonObject) -> bytes:
        """Return the result of `tools/call`, encoded; `params` has a `name` and may have `arguments`.

        Raises: PmlError, RpcError.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """How much a request may bring, how long it may take for that, and how many run at a time."""

    body_bytes: int = 1024 * 1024
    body_s: float = 30.0  # a body is small: slower than that is somebody who holds the connection
    running: int = 32


class Calls:
    """The calls of one cloud."""

    def __init__(self, executor: Executor, *, warn: Say, limits: CallLimits | None = None) -> None:
        self._executor = executor
        self._warn = warn
        self._limits = limits or CallLimits()
        self._replays = Replays(now=asyncio.get_running_loop().time)
        self._running: set[asyncio.Task[bytes]] = set()

    async def answer(self, request: Request) -> Response:
        """Run the call that the request brings, and answer it."""
        try:
            await self._identify(request)
            body = await self._body(request)
            identity = await self._identify(request)  # the token may have been revoked while the body came
            run = self._run(identity, _key(request), _call(body), hashlib.sha256(body).digest())
        except _Refused as exc:
            return exc.answer
        line = await _outcome(run, request.receive)
        return _gone() if line is None else _answered(200, line)

    def stop(self) -> None:
        """Break off all that runs."""
        for task in self._running:
            task.cancel()

    async def close(self) -> None:
        """Break off all that runs, and wait until it has ended, within bounds."""
        self.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_S)

    async def _identify(self, request: Request) -> Identity:
        """Raises: _Refused."""
        if "origin" in request.headers:
            _refuse(403, "this cloud does not answer to web pages")
        given = request.headers.getlist("authorization")
        try:
            identity = await self._executor.identify(given[0]) if len(given) == 1 else None
        except PmlError as exc:
            self._warn(f"cannot tell whose token it is: {visible(exc.message)}")
            raise _busy("this cloud cannot look at tokens now") from exc
        if identity is None:
            _refuse(
                401,
                "no valid token was sent",
                hint="send `Authorization: Bearer TOKEN`; the operator of this cloud makes one",
                headers={"www-authenticate": 'Bearer realm="pml"'},
            )
        if identity.role not in AGENT_ROLES:
            _refuse(403, "a person's token calls no tool", hint="`pml token create --role session` makes one")
        return identity

    async def _body(self, request: Request) -> bytes:
        """Raises: _Refused."""
        media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json" or "content-encoding" in request.headers:
            _refuse(415, "a call is sent as plain application/json")
        limit, body = self._limits.body_bytes, bytearray()
        told = request.headers.get("content-length", "0")
        if int(told) > limit:  # the server has checked that it is a number
            _too_large(limit)
        try:
            async with asyncio.timeout(self._limits.body_s):
                while True:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(_gone())
                    body += message.get("body", b"")
                    if len(body) > limit:
                        _too_large(limit)
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            _refuse(
                408,
                f"the body did not come within {self._limits.body_s:g} s",
                headers={"connection": "close"},
            )

    def _run(self, identity: Identity, key: str | None, call: Call, digest: bytes) -> Run:
        """Return the run of this call: a new one, or that of the same call under the same key.

        Raises: _Refused.
        """
        run = self._replays.find(identity.token_id, key)
        if run is not None:
            if run.digest != digest:
                _refuse(409, "another call was sent under this key", hint="give every call a key of its own")
            return run
        if len(self._running) >= self._limits.running:
            raise _busy(f"{self._limits.running} calls are running")
        run = self._start(identity, call, digest)
        if key is not None:
            self._replays.keep(identity.token_id, key, run)
        return run

    def _start(self, identity: Identity, call: Call, digest: bytes) -> Run:
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._execute(identity, call))
        run = Run(
            digest,
            task,
            broken_off=error_line(call.id, _BROKEN_OFF),
            not_kept=error_line(call.id, _NOT_KEPT),
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: run.end(at=loop.time()))
        return run

    async def _execute(self, identity: Identity, call: Call) -> bytes:
        """Return the answer of the call, whatever comes of it."""
        try:
            return result_line(call.id, await self._executor.call(identity, call.params))
        except ServerRefused as exc:
            return error_line(call.id, RpcError(SERVER_ERROR, exc.message, raw=exc.error))
        except RpcError as exc:
            return error_line(call.id, exc)
        except PmlError as exc:
            data: JsonObject = {"code": exc.code.value, "hint": exc.hint}
            return error_line(call.id, RpcError(RPC_CODE[exc.code], exc.message, data=data))
        except Exception as exc:  # a mistake of ours: the operator is told, the caller is not
            self._warn(f"internal error: {type(exc).__name__}: {visible(str(exc))}")
            return error_line(call.id, RpcError(INTERNAL_ERROR, "internal error"))


class _Refused(Exception):
    """A request that goes no further."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


async def _outcome(run: Run, receive: Receive) -> bytes | None:
    """Return the answer; None if the client has gone, and then the call is broken off."""
    task = run.task
    if task is None:
        return run.answer
    gone = asyncio.ensure_future(_until_gone(receive))
    run.waiting += 1
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        run.waiting -= 1
        if not run.waiting:
            task.cancel()
    return run.line(task) if task.done() else None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _call(body: bytes) -> Call:
    """Raises: _Refused."""
    call = read_call(body)
    if isinstance(call, Malformed):
        line = error_line(call.id, RpcError(call.code, call.message))
        raise _Refused(_answered(_STATUS[call.code], line))
    return call


def _key(request: Request) -> str | None:
    """Return the key that makes the call the same when it is sent again. Raises: _Refused."""
    given = request.headers.getlist("idempotency-key")
    if len(given) > 1 or (given and not _KEY.fullmatch(given[0])):
        _refuse(400, "`Idempotency-Key` must be there once, with 1 to 128 characters of ASCII and no blank")
    return given[0] if given else None


def _answered(status: int, line: bytes) -> Response:
    return Response(line, status, headers={"cache-control": "no-store"}, media_type="application/json")


def _gone() -> Response:
    return refusal(408, "the caller has gone")


def _busy(message: str) -> _Refused:
    """Nothing has run: the word of this answer says so, and clients rely on it."""
    return _Refused(
        refusal(503, message, hint="nothing has run; try again", headers={"retry-after": str(RETRY_S)})
    )


def _too_large(limit: int) -> NoReturn:
    _refuse(413, f"the body is larger than {limit:,} bytes", headers={"connection": "close"})


def _refuse(
    status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
) -> NoReturn:
    raise _Refused(
        refusal(status, message, hint=hint, headers={"cache-control": "no-store", **(headers or {})})
    )


def read_call(body: bytes) -> Call | Malformed:
    """Return the `tools/call`: it has a `name`, and `arguments` that are an object if they are there."""
    try:
        request = loads(body, what="the request")
    except Invalid as exc:
        return Malformed(None, PARSE_ERROR, exc.message)
    if not isinstance(request, Mapping):
        return Malformed(None, INVALID_REQUEST, f"a request is one object, not {kind_of(request)}")
    id, method, params = as_id(request.get("id")), request.get("method"), request.get("params")
    if id is None:
        return Malformed(None, INVALID_REQUEST, "`id` must be a whole number or a string")
    if request.get("jsonrpc") != "2.0" or not isinstance(method, str):
        return Malformed(id, INVALID_REQUEST, 'a request has `"jsonrpc": "2.0"` and a `method`')
    if method != "tools/call":
        return Malformed(id, METHOD_NOT_FOUND, f"there is only `tools/call` here, not {quote(method)}")
    if not isinstance(params, Mapping):
        return Malformed(id, INVALID_PARAMS, "`params` must be an object")
    name, arguments = params.get("name"), params.get("arguments", {})
    if not isinstance(name, str) or not name or not isinstance(arguments, Mapping):
        return Malformed(id, INVALID_PARAMS, "`tools/call` needs `name`, and `arguments` must be an object")
    return Call(id, method, params)
