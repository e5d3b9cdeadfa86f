"""The door: handshakes of every version, the modern envelope, and nothing opened before it is needed."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pml.app import Place
from pml.app_gateway import open_gateway
from pml.core.errors import Unavailable
from pml.core.values import JsonObject
from pml.downstream.protocol.door import Answering, Door
from pml.downstream.protocol.eras import LEGACY, MODERN, Era
from pml.downstream.stdio.stdio import PipeConnection
from pml.service import session_tree as sessions
from tests.downstream.parties import FORMS, PREFIX, SOON_S, Party, text_of
from tests.promises import promise


@pytest.mark.parametrize("version", LEGACY)
async def test_every_version_of_the_handshake_is_spoken_as_it_was_asked_for(
    party: Party, version: str
) -> None:
    result = await party.shake_hands(version)

    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "pml"
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert "resultType" not in result
    assert "tools" in await party.result("tools/list")


@pytest.mark.parametrize("version", ["1999-01-01", "2027-01-01", MODERN, ""])
async def test_a_handshake_of_an_unknown_version_is_answered_with_the_latest(
    party: Party, version: str
) -> None:
    error_or_result = await party.answer(
        party.start("initialize", {"protocolVersion": version, "capabilities": {}})
    )

    assert error_or_result["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    "params",
    [{}, {"protocolVersion": 3}, {"protocolVersion": "2025-11-25", "capabilities": []}],
)
async def test_a_handshake_without_its_parts_is_refused(party: Party, params: JsonObject) -> None:
    assert (await party.error("initialize", params))["code"] == -32602


async def test_discover_tells_of_the_modern_era(party: Party) -> None:
    party.be_modern(FORMS)

    result = await party.result("server/discover")

    assert result["supportedVersions"] == [MODERN]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
    assert result["capabilities"]["tools"] == {"listChanged": True}


@promise("gate:nothing-before-first-request")
async def test_nothing_is_opened_before_the_first_request_that_needs_it(party: Party) -> None:
    await party.shake_hands()
    await party.result("ping")
    party.notify("notifications/roots/list_changed", {})
    party.be_modern()
    await party.result("server/discover")
    await party.error("server/discover", {"_meta": {PREFIX + "protocolVersion": "2027-01-01"}})
    await party.settle()

    assert (party.opened, party.servers.started) == ([], [])
    assert not (party.office.home / "state.db").exists()

    await party.result("tools/list")
    assert [era.version for era in party.opened] == [MODERN]


async def test_a_request_before_the_handshake_is_refused_and_opens_nothing(party: Party) -> None:
    error = await party.error("tools/list")

    assert error == {"code": -32600, "message": "`initialize` must come first"}
    assert party.opened == []


async def test_a_ping_needs_no_handshake(party: Party) -> None:
    assert await party.answer(party.start("ping")) == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("method", ["ping", "initialize"])
async def test_a_modern_request_for_what_only_handshakes_have_is_no_method(party: Party, method: str) -> None:
    party.be_modern()
    params: JsonObject = {"protocolVersion": MODERN, "capabilities": {}}
    assert (await party.error(method, params))["code"] == -32601
    assert party.opened == []


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({PREFIX + "protocolVersion": MODERN}, -32602),
        ({PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": None}, -32602),
        ({PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": []}, -32602),
        ({PREFIX + "protocolVersion": 20260728, PREFIX + "clientCapabilities": {}}, -32602),
        ({PREFIX + "protocolVersion": None, PREFIX + "clientCapabilities": {}}, -32602),
        ({PREFIX + "protocolVersion": "2027-01-01", PREFIX + "clientCapabilities": {}}, -32022),
        ({PREFIX + "protocolVersion": "2027-01-01"}, -32022),
        ({PREFIX + "protocolVersion": "2025-11-25", PREFIX + "clientCapabilities": {}}, -32022),
    ],
)
async def test_a_modern_request_with_a_wrong_envelope_is_refused_and_opens_nothing(
    party: Party, meta: JsonObject, code: int
) -> None:
    for method in ("tools/list", "server/discover"):
        error = await party.error(method, {"_meta": meta})
        assert error["code"] == code
        if code == -32022:
            assert error["data"] == {"supported": [MODERN], "requested": meta[PREFIX + "protocolVersion"]}
    assert party.opened == []


async def test_who_the_client_is_may_be_left_out(party: Party) -> None:
    meta: JsonObject = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
    message = await party.answer(party.start("tools/list", {"_meta": meta}))

    assert message["result"]["resultType"] == "complete"
    assert party.opened[0].client == "unnamed client"


async def test_discover_without_the_modern_envelope_is_no_method(party: Party) -> None:
    assert (await party.error("server/discover"))["code"] == -32601
    await party.shake_hands()
    assert (await party.error("server/discover"))["code"] == -32601


@pytest.mark.parametrize(
    "method", ["tools/run", "resources/subscribe", "sampling/createMessage", "tasks/get", ""]
)
async def test_an_unknown_method_is_told_in_both_eras(party: Party, method: str) -> None:
    await party.shake_hands()
    assert (await party.error(method))["code"] == -32601
    party.be_modern()
    assert (await party.error(method))["code"] == -32601


async def test_a_method_of_the_other_era_is_no_method(party: Party) -> None:
    await party.shake_hands()
    assert (await party.error("subscriptions/listen", {"notifications": {}}))["code"] == -32601
    party.be_modern()
    assert (await party.error("logging/setLevel", {"level": "info"}))["code"] == -32601


async def test_both_eras_are_served_on_one_pipe(party: Party) -> None:
    await party.connect()
    legacy = await party.call("files__read", {"path": "a"})
    party.be_modern()
    modern = await party.call("files__read", {"path": "a"})

    assert "resultType" not in legacy
    assert modern["resultType"] == "complete"
    assert text_of(legacy) == text_of(modern) == '{"path": "a"}'
    assert len(party.opened) == 1


@pytest.mark.parametrize(
    ("version", "has_batches"),
    [("2024-11-05", True), ("2025-03-26", True), ("2025-06-18", False), ("2025-11-25", False)],
)
async def test_a_batch_is_answered_where_the_version_has_batches(
    party: Party, version: str, has_batches: bool
) -> None:
    await party.shake_hands(version)
    before = len(party.lines)
    party.send([{"jsonrpc": "2.0", "id": id, "method": "ping"} for id in ("a", "b")])
    await party.until(lambda: len(party.lines) > before)

    answer = party.lines[-1]
    assert answer.startswith(b"[") is has_batches
    assert (b"-32600" in answer) is not has_batches


class _Opened:
    async def answer(self, exchange: Any, era: Era) -> bytes:
        return b"{}"

    def noticed(self, notification: Any) -> None: ...


class _Opener:
    """Opens when it is told; fails as often as it is told to."""

    def __init__(self, *, failures: int = 0) -> None:
        self.times = 0
        self.go_on = asyncio.Event()
        self._failures = failures

    async def __call__(self, era: Era) -> Answering:
        self.times += 1
        await self.go_on.wait()
        if self.times <= self._failures:
            raise Unavailable("the store is locked", hint="try again")
        return _Opened()


class _Client:
    """Keeps the lines that a door's connection writes."""

    congested = False
    gone = False

    def __init__(self, opener: _Opener) -> None:
        self.lines: list[bytes] = []
        self._came = asyncio.Event()
        door = Door(opener)
        self.connection = PipeConnection(
            outlet=self, answer=door.answer, notice=door.notice, batches=door.batches
        )
        self.connection.feed(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize",'
            b'"params":{"protocolVersion":"2025-11-25","capabilities":{}}}\n'
        )

    def write(self, line: bytes, *, alone: bool = False, lasting: bool = True) -> None:
        self.lines.append(line)
        self._came.set()

    async def flush(self, timeout_s: float) -> None: ...

    def list_tools(self, id: int) -> None:
        self.connection.feed(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % id)

    async def heard(self, count: int) -> list[bytes]:
        async with asyncio.timeout(SOON_S):
            while len(self.lines) < count:
                self._came.clear()
                await self._came.wait()
        return self.lines


async def test_requests_that_come_while_it_opens_share_one_opening() -> None:
    opener = _Opener()
    client = _Client(opener)
    await client.heard(1)
    for id in range(1, 6):
        client.list_tools(id)
    opener.go_on.set()

    await client.heard(6)
    assert opener.times == 1


async def test_an_opening_that_failed_is_told_and_tried_again_by_the_next_request() -> None:
    opener = _Opener(failures=1)
    opener.go_on.set()
    client = _Client(opener)
    await client.heard(1)
    client.list_tools(1)
    (_, failed) = await client.heard(2)
    client.list_tools(2)
    (*_, served) = await client.heard(3)

    assert b'"code":-32603,"message":"the store is locked","data":{"hint":"try again"}' in failed
    assert served == b'{"jsonrpc":"2.0","id":2,"result":{}}'


async def test_a_client_that_gives_up_the_first_request_does_not_stop_the_opening() -> None:
    opener = _Opener()
    client = _Client(opener)
    await client.heard(1)
    client.list_tools(1)
    await asyncio.sleep(0)
    client.connection.feed(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n')
    client.list_tools(2)
    opener.go_on.set()

    (_, served) = await client.heard(2)
    assert (served, opener.times) == (b'{"jsonrpc":"2.0","id":2,"result":{}}', 1)


async def test_an_opening_that_failed_leaves_nothing_open(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*args: object, **kwargs: object) -> None:
        assert len(locks()) == 1
        raise Unavailable("the store is locked")

    def locks() -> list[str]:
        return [name for name in os.listdir(tmp_path / "home" / "run") if name.endswith(".lock")]

    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    monkeypatch.setattr(sessions, "start_session", fail)
    place = Place(home=tmp_path / "home", workspace=tmp_path, user_home=tmp_path)
    era = Era(version=MODERN, client="party", capabilities={})
    async with AsyncExitStack() as stack:
        before = descriptors()
        for _ in range(3):
            with pytest.raises(Unavailable):
                await open_gateway(place, party.connection, era, stack)
            assert (locks(), descriptors()) == ([], before)
