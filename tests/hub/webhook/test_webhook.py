"""The webhook against a receiver on this machine: what it is told, how often, and what it can do to us."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pml.core.approvals.record import Role
from pml.core.config.file import FileKind
from pml.core.errors import Invalid, Unavailable
from pml.hub.origins import allowed_names
from pml.hub.webhook.notifier import AT_ONCE, Pace, Webhook
from pml.hub.webhook.post import SECRET, Target, check_webhook, shown_url
from pml.testing.store import MemoryStore
from pml.web.clients import open_client
from tests.promises import promise
from tests.service.offices import BOUND_S, Office

KEY: Final = "not-a-secret-in-a-message"
BASE: Final = "https://hub.example"
LOOKS: Final = 10
QUICK: Final = Pace(waits_s=(0.01,), jitter=0.0, timeout_s=BOUND_S, look_s=0.02)
PAGE: Final = (Path(__file__).parents[3] / "docs" / "webhook.md").read_text(encoding="utf-8")
Reply = Callable[["Got", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Got:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def status(code: int, *headers: str) -> Reply:
    async def reply(got: Got, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} x", "content-length: 0", "connection: close", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode())

    return reply


async def silence(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drip(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 x\r\n")
    while True:
        writer.write(b"a: b\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def no_end(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 x\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_headers(got: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 x\r\n")
    while True:
        writer.write(b"a: " + b"x" * 65536 + b"\r\n")
        await writer.drain()


@dataclass
class Receiver:
    """Keeps what it is sent; answers with the next of `replies`, and with the last of them from then on."""

    replies: list[Reply] = field(default_factory=lambda: [status(204)])
    got: list[Got] = field(default_factory=list[Got])
    open_now: int = 0
    most_open: int = 0
    port: int = 0
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?of=ana"

    @property
    def told(self) -> list[str]:
        """The questions that it was told of, in order."""
        return [got.json["approval"]["id"] for got in self.got]

    async def received(self, count: int) -> list[Got]:
        async with asyncio.timeout(BOUND_S), self._came:
            await self._came.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await reader.readexactly(int(headers["content-length"]))
            got = Got(path=head[0].split(" ")[1], headers=headers, body=body)
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            async with self._came:
                self.got.append(got)
                self._came.notify_all()
            await reply(got, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the hub has hung up
        finally:
            self.open_now -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def listening(receiver: Receiver, port: int = 0) -> AsyncGenerator[Receiver]:
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(receiver.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@dataclass
class Hub:
    """The part of a hub that delivers, started and ended like one."""

    office: Office
    key: str | None = KEY
    said: list[str] = field(default_factory=list[str])
    looks: int = 0  # at what is configured: it does so all the time
    _looked: asyncio.Event = field(default_factory=asyncio.Event)
    _spoke: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def configure(self, url: str | None, which: FileKind = FileKind.USER) -> None:
        self.office.write(which, {} if url is None else {"notify": {"webhook": url}})

    def hear(self, line: str) -> None:
        self.said.append(line)
        self._spoke.set()

    async def complaint(self) -> str:
        async with asyncio.timeout(BOUND_S):
            await self._spoke.wait()
        return self.said[0]

    def give_key(self) -> str | None:
        self._loop.call_soon_threadsafe(self._note_look)
        return self.key

    def _note_look(self) -> None:
        self.looks += 1
        self._looked.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when it holds, which is looked at as often as the webhook itself looks around."""
        async with asyncio.timeout(BOUND_S):
            while not holds():
                self._looked.clear()
                await self._looked.wait()

    async def look_around(self) -> None:
        """Let it look often enough to do all that there is to do."""
        enough = self.looks + LOOKS
        await self.until(lambda: self.looks >= enough)

    async def delivered(self, webhook: Webhook, count: int) -> None:
        await self.until(lambda: webhook.counts.delivered >= count)

    def webhook(self, pace: Pace = QUICK) -> Webhook:
        return Webhook(
            self.office.context,
            workspace=str(self.office.workspace),
            base=BASE,
            key=self.give_key,
            tell=self.hear,
            pace=pace,
        )

    @asynccontextmanager
    async def running(self, pace: Pace = QUICK) -> AsyncGenerator[Webhook]:
        webhook = self.webhook(pace)
        task = asyncio.ensure_future(self._repeat(webhook))
        try:
            yield webhook
            assert not task.done(), "the loop must not end by itself"
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                raise failure

    async def _repeat(self, webhook: Webhook) -> None:
        while True:
            await webhook.follow()
            await asyncio.sleep(QUICK.look_s)


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with listening(Receiver()) as receiver:
        yield receiver


@pytest.fixture
async def hub(tmp_path: Path, receiver: Receiver) -> Hub:
    hub = Hub(Office(MemoryStore(), tmp_path))
    hub.configure(receiver.url)
    return hub


def documented_check() -> Callable[..., bool]:
    """Return the check that docs/webhook.md gives to receivers."""
    code = PAGE.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    return names["is_genuine"]


@promise("webhook:signed")
async def test_a_receiver_can_check_that_a_message_is_ours_and_unchanged(
    hub: Hub, receiver: Receiver
) -> None:
    async with hub.running():
        record = await hub.office.ask()
        [got] = await receiver.received(1)

    is_genuine, header = documented_check(), got.headers["pml-signature"]
    now = hub.office.clock.now().timestamp()
    assert is_genuine(header, got.body, KEY, now=now)
    assert not is_genuine(header, got.body.replace(b"create", b"delete"), KEY, now=now)
    assert not is_genuine(header, got.body, "another-key", now=now)
    assert not is_genuine(header.replace("t=1", "t=2"), got.body, KEY, now=now)
    assert not is_genuine(header, got.body, KEY, now=now + 3600)
    assert got.headers["pml-delivery"] == got.json["id"] == f"{record.id}.requested"


@promise("webhook:no-arguments")
async def test_a_message_tells_who_wants_what_and_neither_arguments_nor_the_secret(
    hub: Hub, receiver: Receiver
) -> None:
    async with hub.running():
        record = await hub.office.ask("github:create_issue", {"title": "hush", "token": "sk-1"})
        [got] = await receiver.received(1)

    assert got.path == "/hook?of=ana"
    assert got.json == {
        "id": f"{record.id}.requested",
        "type": "approval.requested",
        "at": "2026-11-03T12:00:00Z",
        "approval": {
            "id": record.id,
            "subject": "tool_call",
            "tool": "github:create_issue",
            "title": "Approval required to call github:create_issue",
            "session_name": "session-1",
            "workspace": str(hub.office.workspace),
            "created_at": "2026-11-03T12:00:00Z",
            "expires_at": "2026-11-03T12:05:00Z",
        },
        "url": f"{BASE}/#/card/{record.id}",
    }
    sent = repr(got.headers) + got.body.decode()
    for secret in ("hush", "sk-1", KEY):
        assert secret not in sent
    assert set(got.headers) == {
        *("host", "accept", "accept-encoding", "connection", "content-type", "content-length"),
        *("pml-delivery", "pml-signature", "user-agent"),
    }
    assert got.headers["user-agent"].startswith("pml/")


@promise("webhook:at-least-once")
@pytest.mark.parametrize(
    "first", [status(500), status(404), status(429), status(503, "retry-after: 0"), endless_headers]
)
async def test_what_was_not_taken_is_sent_again_the_same_until_it_is(
    hub: Hub, receiver: Receiver, first: Reply
) -> None:
    receiver.replies = [first, first, status(200)]
    async with hub.running() as webhook:
        await hub.office.ask()
        await hub.delivered(webhook, 1)
        await hub.look_around()

    assert len(receiver.got) == 3
    assert len({(got.body, got.headers["pml-delivery"]) for got in receiver.got}) == 1
    assert len(hub.said) == 1, "one complaint, however often it fails"
    assert f"the webhook at `http://127.0.0.1:{receiver.port}` " in hub.said[0]
    assert "of=ana" not in hub.said[0], "a path or a query may be the receiver's secret"


async def test_a_receiver_that_is_not_there_yet_is_told_when_it_is(hub: Hub) -> None:
    async with listening(Receiver()) as gone:
        pass
    hub.configure(gone.url)
    async with hub.running():
        record = await hub.office.ask()
        assert "cannot be reached" in await hub.complaint()
        async with listening(Receiver(), gone.port) as back:
            await back.received(1)
            assert back.told == [record.id]


@promise("webhook:harmless")
@pytest.mark.parametrize("first", [silence, drip])
async def test_a_receiver_that_never_answers_is_left_in_time_and_tried_again(
    hub: Hub, receiver: Receiver, first: Reply
) -> None:
    receiver.replies = [first, status(200)]
    async with hub.running(Pace(waits_s=(0.01,), timeout_s=0.1, look_s=0.02)) as webhook:
        await hub.office.ask()
        await hub.delivered(webhook, 1)
    assert (len(receiver.got), webhook.counts.failed) == (2, 1)


@promise("webhook:harmless")
async def test_an_answer_without_end_is_not_read(hub: Hub, receiver: Receiver) -> None:
    receiver.replies = [no_end]
    async with hub.running() as webhook:
        await hub.office.ask()
        await hub.delivered(webhook, 1)
        await hub.until(lambda: not receiver.open_now)


@promise("webhook:harmless")
async def test_a_redirect_is_not_followed(hub: Hub, receiver: Receiver) -> None:
    async with listening(Receiver()) as elsewhere:
        receiver.replies = [
            status(307, f"location: {elsewhere.url}"),
            status(308, "location: /x"),
            status(200),
        ]
        async with hub.running() as webhook:
            await hub.office.ask()
            await hub.delivered(webhook, 1)
        assert elsewhere.got == []
    assert [got.path for got in receiver.got] == ["/hook?of=ana"] * 3
    assert "nothing is sent elsewhere" in hub.said[0]


@pytest.mark.parametrize("decide", ["allow", "deny"])
async def test_a_question_that_was_decided_is_not_sent_again(
    hub: Hub, receiver: Receiver, decide: str
) -> None:
    receiver.replies = [status(500)]
    async with hub.running():
        record = await hub.office.ask()
        await receiver.received(2)
        await getattr(hub.office, decide)(record)
        await hub.look_around()
        before = len(receiver.got)
        await hub.look_around()
        assert len(receiver.got) == before


async def test_a_question_that_was_decided_just_now_is_not_sent(hub: Hub, receiver: Receiver) -> None:
    record = await hub.office.ask()
    await hub.office.allow(record)
    async with open_client(receiver.url, connect_s=BOUND_S, read_s=BOUND_S) as client:
        assert await hub.webhook().deliver(record.id, Target(receiver.url, KEY), client) is None
    assert receiver.got == []


async def test_a_question_whose_time_is_over_is_not_sent_again(hub: Hub, receiver: Receiver) -> None:
    receiver.replies = [status(500)]
    async with hub.running():
        await hub.office.ask()
        await receiver.received(2)
        hub.office.clock.advance(301)
        await hub.look_around()
        before = len(receiver.got)
        await hub.look_around()
        assert len(receiver.got) == before


async def test_gone_ends_it_for_that_question_only(hub: Hub, receiver: Receiver) -> None:
    receiver.replies = [status(410), status(200)]
    async with hub.running() as webhook:
        first = await hub.office.ask()
        await receiver.received(1)
        second = await hub.office.ask(arguments={"title": "another"})
        await hub.delivered(webhook, 1)
        await hub.look_around()
    async with hub.running():
        await hub.look_around()
    assert receiver.told == [first.id, second.id]


@promise("webhook:at-least-once")
async def test_the_next_hub_sends_what_still_waits_and_was_not_delivered(
    hub: Hub, receiver: Receiver
) -> None:
    decided = await hub.office.ask(arguments={"title": "decided"})
    missed = await hub.office.ask(arguments={"title": "stored while no hub ran"})
    await hub.office.allow(decided)
    async with hub.running() as webhook:
        await hub.delivered(webhook, 1)
        receiver.replies = [status(500)]
        failed = await hub.office.ask(arguments={"title": "failed"})
        await receiver.received(2)
    assert (receiver.told[0], set(receiver.told[1:])) == (missed.id, {failed.id})

    count = len(receiver.got)
    receiver.replies = [status(200)]
    async with hub.running() as webhook:
        await hub.delivered(webhook, 1)
        await hub.look_around()
    assert receiver.told[count:] == [failed.id]


async def test_a_file_that_tells_nothing_makes_it_send_rather_twice(hub: Hub, receiver: Receiver) -> None:
    await hub.office.ask()
    async with hub.running() as webhook:
        await hub.delivered(webhook, 1)
    (hub.office.home / "run" / "webhook.json").write_bytes(b"\xff{")
    async with hub.running() as webhook:
        await hub.delivered(webhook, 1)
    assert len(receiver.got) == 2


async def test_what_was_delivered_is_kept_only_while_it_waits(hub: Hub, receiver: Receiver) -> None:
    async with hub.running() as webhook:
        first, second = [await hub.office.ask(arguments={"title": title}) for title in "ab"]
        await hub.delivered(webhook, 2)
        await hub.office.deny(first)
        await hub.look_around()
    kept = json.loads((hub.office.home / "run" / "webhook.json").read_bytes())
    assert kept == {"sent": [second.id]}


async def test_many_questions_are_each_told_once_a_few_at_a_time(hub: Hub, receiver: Receiver) -> None:
    async with hub.running() as webhook:
        records = [await hub.office.ask(arguments={"title": str(n)}) for n in range(20)]
        await hub.delivered(webhook, 20)
        await hub.look_around()
    assert sorted(receiver.told) == sorted(record.id for record in records)
    assert receiver.most_open <= AT_ONCE + 1  # one that was answered may not be closed yet


async def test_a_receiver_that_wants_a_pause_gets_it_for_every_question(hub: Hub, receiver: Receiver) -> None:
    receiver.replies = [status(429, "retry-after: 3600"), status(200)]
    async with hub.running() as webhook:
        await hub.office.ask()
        await receiver.received(1)
        await hub.office.ask(arguments={"title": "another"})
        await hub.look_around()
        assert (len(receiver.got), webhook.counts.delivered) == (1, 0)


async def test_two_hubs_of_one_home_tell_it_once(hub: Hub, receiver: Receiver) -> None:
    async with hub.running() as first, hub.running() as second:
        for n in range(5):
            await hub.office.ask(arguments={"title": str(n)})
        await receiver.received(5)
        await hub.look_around()
        assert (len(receiver.got), {first.counts.delivered, second.counts.delivered}) == (5, {0, 5})


async def test_a_question_that_no_person_may_decide_is_nobodys_business(hub: Hub, receiver: Receiver) -> None:
    async with hub.running() as webhook:
        await hub.office.ask(deciders=frozenset({Role.PARENT}))
        mine = await hub.office.ask(arguments={"title": "mine"})
        await hub.delivered(webhook, 1)
    assert receiver.told == [mine.id]


@promise("webhook:signed")
async def test_without_a_secret_nothing_is_sent_and_it_says_so_until_there_is_one(
    hub: Hub, receiver: Receiver
) -> None:
    hub.key = None
    async with hub.running() as webhook:
        await hub.office.ask()
        await hub.look_around()
        assert (receiver.got, len(hub.said)) == ([], 1)
        assert f"`pml secrets set {SECRET}`" in hub.said[0]
        hub.key = KEY
        await hub.delivered(webhook, 1)


async def test_a_new_secret_and_a_new_url_count_while_it_runs(hub: Hub, receiver: Receiver) -> None:
    is_genuine = documented_check()
    now = hub.office.clock.now().timestamp()
    receiver.replies = [status(500)]
    slow = Pace(waits_s=(3600.0,), timeout_s=BOUND_S, look_s=0.02)
    async with hub.running(slow) as webhook, listening(Receiver()) as other:
        await hub.office.ask()
        await receiver.received(1)
        hub.key = "a-new-key"
        got = (await receiver.received(2))[1]
        assert is_genuine(got.headers["pml-signature"], got.body, "a-new-key", now=now)
        hub.configure(other.url)
        await hub.delivered(webhook, 1)
        assert len(other.got) == 1


async def test_a_secret_that_cannot_be_read_is_told_and_harms_nothing(hub: Hub, receiver: Receiver) -> None:
    def fails() -> str | None:
        raise Unavailable("the keyring is locked")

    hub.give_key = fails
    async with hub.running():
        await hub.office.ask()
        assert await hub.complaint() == "the keyring is locked"
    assert receiver.got == []


async def test_while_the_users_file_is_broken_it_says_so_and_goes_on_when_it_is_mended(
    hub: Hub, receiver: Receiver
) -> None:
    async with hub.running() as webhook:
        hub.office.home.joinpath("config.json").write_text("{")
        await hub.office.ask()
        assert "config.json" in await hub.complaint()
        assert receiver.got == []
        hub.configure(receiver.url)
        await hub.delivered(webhook, 1)


@promise("webhook:users-file-only")
async def test_the_url_of_a_workspaces_file_is_ignored_also_when_it_is_trusted(
    hub: Hub, receiver: Receiver
) -> None:
    hub.configure(None)
    hub.configure(receiver.url, FileKind.WORKSPACE)
    await hub.office.trust()
    await hub.office.ask()
    await hub.webhook().follow()
    assert (receiver.got, hub.said, hub.looks) == ([], [], 0)


@promise("webhook:signed")
@pytest.mark.parametrize("url", ["http://hooks.example/x", "http://10.0.0.1/", "http://a.localhost/"])
async def test_nothing_is_sent_unencrypted_to_other_machines(hub: Hub, url: str) -> None:
    hub.configure(url)
    await hub.office.ask()
    webhook = hub.webhook()
    await webhook.follow()
    await webhook.follow()
    assert webhook.counts.failed == 0
    assert ["plain http" in line for line in hub.said] == [True]


@pytest.mark.parametrize("url", ["https://\u2603.net/x", "https://a..b\u00e9/", f"https://a/{'x' * 70_000}"])
def test_an_address_that_no_request_can_be_made_for_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="nothing is sent to the webhook"):
        check_webhook(url)


@pytest.mark.parametrize("url", ["https://hooks.example/x?y=z", "http://127.0.0.1:9/x", "http://[::1]/"])
def test_https_and_this_machine_are_good_addresses(url: str) -> None:
    check_webhook(url)


@pytest.mark.parametrize(
    ("names", "public"),
    [
        ((), None),
        (("hub.example",), "https://hub.example:4445"),
        (("hub.example:443", "other.example"), "https://hub.example"),
        (("hub.example:80",), "http://hub.example"),
    ],
)
def test_a_link_begins_with_the_first_name_that_others_know_the_hub_by(
    names: tuple[str, ...], public: str | None
) -> None:
    assert allowed_names("0.0.0.0", "0.0.0.0", 4445, scheme="https", more=names).public == public


def test_of_an_address_only_the_host_is_shown() -> None:
    assert shown_url("https://hooks.example:8443/services/T0/SECRET?k=1") == "`https://hooks.example:8443`"


async def test_nothing_of_a_message_is_logged(
    hub: Hub, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with hub.running() as webhook:
        await hub.office.ask()
        await hub.delivered(webhook, 1)
    assert KEY not in caplog.text
