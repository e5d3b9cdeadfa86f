"""One call to a cloud: what is sent, where a key may be sent at all, and what each answer means.

The key goes over https or stays on this machine, and to nobody but the cloud. An answer is used only if it is
strict JSON under the id of the call. How bytes come and go, and when it is tried again, is not known here.
"""

import uuid
from collections.abc import Mapping
from typing import Final, NoReturn

import msgspec

from pml.core.errors import Invalid, ServerFailed, ServerRefused, Unavailable
from pml.core.ports.cloud import KEY
from pml.core.text import quote
from pml.core.values import MAX_BYTES, JsonObject, loads
from pml.jsonrpc.lines import request_line
from pml.jsonrpc.messages import Envelope, read_envelope, read_error
from pml.web.clients import AGENT
from pml.web.hosts import is_loopback
from pml.web.urls import split_url

PATH: Final = "/mcp/tools/call"
BUSY: Final = "busy"  # the word of an answer that says: nothing has run, come again
_SAID: Final = 300  # characters that are passed on of what a cloud says for itself
_KEY_PROBLEM: Final = "no key: it must be printable ASCII without blanks"


class NotRun(Exception):
    """Nothing can have run; `told` is what is said if it is not tried again, `after_s` when it may be."""

    def __init__(self, told: Unavailable, *, after_s: float | None = None) -> None:
        super().__init__(told.message)
        self.told = told
        self.after_s = after_s


class CloudCall:
    """One call under an id of its own; sent again, it is the same."""

    def __init__(self, url: str, name: str, arguments: JsonObject, key: str | None) -> None:
        """Raises: Unavailable where it must not be sent at all."""
        self.url = url
        self.target = _checked(url).rstrip("/") + PATH
        self._key = key
        self.id = str(uuid.uuid4())
        self.body = request_line(self.id, "tools/call", {"name": name, "arguments": arguments})
        self.headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "idempotency-key": self.id,
            "user-agent": AGENT,
        }
        if key is not None:
            self.headers["authorization"] = f"Bearer {_sendable(key)}"

    def result(self, body: bytes, *, max_bytes: int) -> bytes:
        """Return the result as it was written. Raises: ServerRefused, ServerFailed."""
        try:
            answer = self._answer(body, max_bytes=max_bytes)
        except Invalid as exc:
            raise self.unknown(f"answered with what is not strict JSON ({self._shown(exc.message)})") from exc
        if answer is None:
            raise self.unknown("answered with what is not an answer to the call")
        if answer.error is not msgspec.UNSET:
            raise self._refused(bytes(answer.error))
        result = b"" if answer.result is msgspec.UNSET else bytes(answer.result)
        if not result.startswith(b"{"):
            raise self.unknown("answered with what is not a result of a tool")
        return result

    def refuse(self, status: int, body: bytes, *, retry_after: str | None) -> NoReturn:
        """Raise what an answer other than 200 means: NotRun, Unavailable, ServerRefused, ServerFailed."""
        answer, said, word = self._said(body)
        where = f"cloud {quote(self.url)}"
        if status in (401, 403):
            raise self._no_key(said)
        if status == 429 or (status == 503 and word == BUSY):
            told = Unavailable(f"{where} is busy{said}", hint="nothing has run; try again later")
            raise NotRun(told, after_s=_seconds(retry_after))
        if 300 <= status < 400:
            raise Unavailable(
                f"{where} leads elsewhere, where the key is not sent",
                hint="nothing has run; give the address where it really is as `cloud` in .pml.json",
            )
        if answer is not None and answer.error is not msgspec.UNSET:
            raise self._refused(bytes(answer.error))
        if 400 <= status < 500:
            raise Unavailable(f"{where} answered {status}{said}", hint=_hint_of(status))
        raise self.unknown(f"answered {status}{said}")

    def offline(self, problem: str) -> Unavailable:
        return Unavailable(
            f"cloud {quote(self.url)} cannot be reached: {self._shown(problem)}",
            hint="nothing has run; check the network and `cloud` in .pml.json, then try again",
        )

    def unknown(self, what: str) -> ServerFailed:
        return ServerFailed(
            f"cloud {quote(self.url)} {what}; nobody knows whether it ran",
            hint="look at what the tool was to do before it is called again",
        )

    def _answer(self, body: bytes, *, max_bytes: int = MAX_BYTES) -> Envelope | None:
        """Return the answer to this call, None for other JSON. Raises: Invalid."""
        loads(body, what="the answer", max_bytes=max_bytes)
        try:
            answer = read_envelope(body)
        except msgspec.MsgspecError:
            return None
        has_one = (answer.result is msgspec.UNSET) != (answer.error is msgspec.UNSET)
        return answer if has_one and answer.jsonrpc == "2.0" and answer.id == self.id else None

    def _refused(self, error: bytes) -> Exception:
        try:
            found = read_error(error)
        except msgspec.MsgspecError:
            return self.unknown("answered with an error that JSON-RPC does not know")
        said = self._shown(found.message)
        return ServerRefused(f"cloud {quote(self.url)} refused: {said} ({found.code})", error=error)

    def _said(self, body: bytes) -> tuple[Envelope | None, str, str]:
        """Return the answer that a refusal holds, if it does, what it says for itself, and its word."""
        try:
            answer, found = self._answer(body), loads(body)
        except Invalid:
            return None, "", ""
        error = found.get("error") if isinstance(found, Mapping) else None
        message, word = (error.get("message"), error.get("code")) if isinstance(error, Mapping) else ("", "")
        said = f": {self._shown(message)}" if isinstance(message, str) and message else ""
        return answer, said, word if isinstance(word, str) else ""

    def _shown(self, text: str) -> str:
        """Return words that are not ours, without the key: an agent reads them."""
        return quote(text if self._key is None else text.replace(self._key, "***"), limit=_SAID)

    def _no_key(self, said: str) -> Unavailable:
        problem = "refuses the key" if self._key is not None else "wants a key"
        return Unavailable(
            f"cloud {quote(self.url)} {problem}{said}",
            hint=f"nothing has run; `pml secrets set {KEY}` keeps the one that its operator gives you",
        )


def _checked(url: str) -> str:
    """Return the URL if a key may be sent there. Raises: Unavailable."""
    try:
        parts = split_url(url, whose="a cloud")
    except Invalid as exc:
        raise Unavailable(exc.message, hint="check `cloud` in .pml.json") from exc
    host = parts.hostname or ""
    # Names beneath `localhost` may be asked of a name server, which may say anything.
    is_here = is_loopback(host) and not host.rstrip(".").endswith(".localhost")
    if parts.query or parts.fragment:
        raise Unavailable(f"cloud {quote(url)} must be a URL without `?` and `#`")
    if parts.scheme == "http" and not is_here:
        raise Unavailable(
            f"cloud {quote(url)} is plain http, over which no key is sent",
            hint="use https; plain http is for a cloud on this machine",
        )
    return url


def _sendable(key: str) -> str:
    """Return the key if a header can hold it. Raises: Unavailable, without showing it."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise Unavailable(f"{KEY} holds {_KEY_PROBLEM}", hint=f"`pml secrets set {KEY}` sets it again")
    return key


def _seconds(header: str | None) -> float | None:
    """Return a `Retry-After` in seconds; None for none, and for one that names a date."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _hint_of(status: int) -> str:
    match status:
        case 404 | 405:
            return "nothing has run; check `cloud` in .pml.json: does it run tools (`pml cloud --execute`)?"
        case 413:
            return "nothing has run; the arguments are larger than it takes"
        case _:
            return "nothing has run; check `cloud` in .pml.json"
