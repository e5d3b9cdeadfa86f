"""What a server asks of the client, and what it is told."""

import asyncio

import pytest

from pml.core.values import JsonObject
from tests.upstream.fleets import FakeClient, Harbour, odd, until, use

FORM: JsonObject = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}


async def test_a_form_is_put_before_the_client_and_its_answer_returned(harbour: Harbour) -> None:
    said = await use(harbour.fleet(), odd(), "ask", method="elicitation/create", params=FORM)
    assert said == {"result": {"action": "accept", "content": {"name": "Ana"}}}
    assert harbour.client.forms == [("odd", FORM)]


async def test_a_client_without_forms_is_not_asked(harbour: Harbour) -> None:
    harbour.client = FakeClient(can_elicit=False)
    said = await use(harbour.fleet(), odd(), "ask", method="elicitation/create", params=FORM)
    assert said["error"]["code"] == -32601
    assert harbour.client.forms == []


async def test_only_forms_are_relayed(harbour: Harbour) -> None:
    url = {"mode": "url", "url": "https://example.com", "message": "Sign in"}
    said = await use(harbour.fleet(), odd(), "ask", method="elicitation/create", params=url)
    assert said["error"]["code"] == -32601


async def test_roots_are_answered(harbour: Harbour) -> None:
    said = await use(harbour.fleet(), odd(), "ask", method="roots/list")
    assert said == {"result": {"roots": [{"uri": "file:///repo"}]}}


@pytest.mark.parametrize("has_roots", [True, False])
async def test_a_server_hears_of_roots_only_if_the_client_has_some(harbour: Harbour, has_roots: bool) -> None:
    harbour.client = FakeClient(has_roots=has_roots)
    declared = await use(harbour.fleet(), odd(), "capabilities")
    assert ("roots" in declared) is has_roots


async def test_a_ping_is_answered(harbour: Harbour) -> None:
    assert await use(harbour.fleet(), odd(), "ask", method="ping") == {"result": {}}


@pytest.mark.parametrize(
    ("method", "words"),
    [("sampling/createMessage", "PML does not offer sampling"), ("made/up", "PML does not")],
)
async def test_everything_else_is_refused_in_words(harbour: Harbour, method: str, words: str) -> None:
    said = await use(harbour.fleet(), odd(), "ask", method=method)
    assert said["error"]["code"] == -32601
    assert words in said["error"]["message"]


async def test_a_form_that_the_server_withdraws_is_closed(harbour: Harbour) -> None:
    harbour.client.patience = asyncio.Event()
    fleet, spec = harbour.fleet(), odd()
    asking = asyncio.create_task(use(fleet, spec, "ask_and_cancel"))
    await until(lambda: len(harbour.client.forms) == 1)
    other = asyncio.create_task(use(fleet, spec, "echo", go="on"))
    assert await asking == "cancelled"
    await until(lambda: harbour.client.closed_forms == 1)
    other.cancel()


async def test_a_form_of_a_server_that_died_is_closed(harbour: Harbour) -> None:
    harbour.client.patience = asyncio.Event()
    fleet, spec = harbour.fleet(), odd()
    asking = asyncio.create_task(use(fleet, spec, "ask", method="elicitation/create", params=FORM))
    await until(lambda: len(harbour.client.forms) == 1)
    await fleet.close()
    assert harbour.client.closed_forms == 1
    await asyncio.gather(asking, return_exceptions=True)
