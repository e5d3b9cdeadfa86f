"""Resources, prompts and completions: found at the right server, judged like calls, refused with reasons."""

import json
from typing import Any

import pytest

from pml.core.errors import ServerFailed, ServerRefused
from pml.core.values import JsonObject
from pml.downstream.protocol.eras import LEGACY, MODERN
from pml.downstream.resources import _fits  # pyright: ignore[reportPrivateUsage]
from tests.downstream.parties import FORMS, Party, tool
from tests.promises import promise

READ: JsonObject = {"uri": "memo://one"}


@pytest.fixture
def library(party: Party) -> Party:
    """A party whose servers `memo` and `docs` offer resources and prompts."""
    party.serve(
        "memo",
        tool("add"),
        resources=({"uri": "memo://one", "name": "one"}, {"uri": "memo://b", "name": "b", "odd": 1}),
        templates=({"uriTemplate": "memo://{id}/page{?n}", "name": "page"},),
        prompts=({"name": "greet", "arguments": [{"name": "who"}], "odd": [1]},),
    )
    party.serve(
        "docs",
        resources=({"uri": "docs://x", "name": "x"}, {"uri": "memo://one", "name": "shadow"}),
        prompts=({"name": "greet"},),
    )
    return party


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_the_lists_hold_what_all_servers_offer_in_one_order(library: Party, version: str) -> None:
    await library.connect(version)
    resources = (await library.result("resources/list"))["resources"]
    templates = (await library.result("resources/templates/list"))["resourceTemplates"]
    prompts = (await library.result("prompts/list"))["prompts"]

    assert [resource["uri"] for resource in resources] == ["docs://x", "memo://b", "memo://one"]
    assert resources[1] == {"uri": "memo://b", "name": "b", "odd": 1}
    assert [template["name"] for template in templates] == ["page"]
    assert [prompt["name"] for prompt in prompts] == ["docs__greet", "memo__greet"]
    assert prompts[1] == {"name": "memo__greet", "arguments": [{"name": "who"}], "odd": [1]}


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_a_resource_is_read_from_the_server_that_offers_it(library: Party, version: str) -> None:
    await library.connect(version)
    party = library
    for uri in ("memo://b", "docs://x", "memo://7/page?n=1"):
        result = await party.result("resources/read", {"uri": uri})
        assert result["contents"] == [{"uri": uri, "text": "read"}]

    assert library.servers.sent == [
        ("memo", "resources/read", {"uri": "memo://b"}),
        ("docs", "resources/read", {"uri": "docs://x"}),
        ("memo", "resources/read", {"uri": "memo://7/page?n=1"}),
    ]


async def test_an_address_that_two_servers_offer_is_the_first_ones(library: Party) -> None:
    await library.connect()
    await library.result("resources/read", READ)

    assert [server for server, _, _ in library.servers.sent] == ["docs"]


async def test_a_prompt_is_got_from_its_server_under_the_servers_own_name(library: Party) -> None:
    await library.connect()
    await library.result("prompts/get", {"name": "memo__greet", "arguments": {"who": "ana"}})
    await library.result("prompts/get", {"name": "docs__greet"})

    assert library.servers.sent == [
        ("memo", "prompts/get", {"name": "greet", "arguments": {"who": "ana"}}),
        ("docs", "prompts/get", {"name": "greet"}),
    ]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_completion_is_asked_of_the_server_that_offers_what_it_is_for(
    library: Party, version: str
) -> None:
    await library.connect(version)
    argument: JsonObject = {"name": "who", "value": "a"}
    prompt: JsonObject = {"type": "ref/prompt", "name": "memo__greet"}
    page: JsonObject = {"type": "ref/resource", "uri": "memo://{id}/page{?n}"}
    for ref in (prompt, page):
        await library.result("completion/complete", {"ref": ref, "argument": argument})

    assert library.servers.sent == [
        ("memo", "completion/complete", {"ref": {**prompt, "name": "greet"}, "argument": argument}),
        ("memo", "completion/complete", {"ref": page, "argument": argument}),
    ]


@pytest.mark.parametrize(
    ("method", "params", "legacy", "modern"),
    [
        ("resources/read", {"uri": "memo://none"}, -32002, -32602),
        ("resources/read", {"uri": 7}, -32602, -32602),
        ("resources/read", {}, -32602, -32602),
        ("prompts/get", {"name": "greet"}, -32602, -32602),
        ("prompts/get", {"name": "nobody__greet"}, -32602, -32602),
        ("prompts/get", {}, -32602, -32602),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}}, -32602, -32602),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "x://"}}, -32002, -32602),
        ("completion/complete", {"ref": "x"}, -32602, -32602),
        ("completion/complete", {}, -32602, -32602),
    ],
)
async def test_what_no_server_offers_is_an_error_and_sends_nothing(
    library: Party, method: str, params: JsonObject, legacy: int, modern: int
) -> None:
    await library.connect()
    assert (await library.error(method, params))["code"] == legacy
    await library.connect(MODERN)
    assert (await library.error(method, params))["code"] == modern
    assert library.servers.sent == []


GET: JsonObject = {"name": "memo__greet"}
COMPLETE: JsonObject = {
    "ref": {"type": "ref/prompt", "name": "memo__greet"},
    "argument": {"name": "who", "value": ""},
}


@promise("rules:deny-wins")
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "memo://b"}),
        ("prompts/get", GET),
        ("completion/complete", COMPLETE),
    ],
)
@pytest.mark.parametrize("denied", ["memo:*", "memo:{method}", "{method}", "*"])
async def test_a_deny_holds_for_what_is_no_tool(
    library: Party, version: str, method: str, params: JsonObject, denied: str
) -> None:
    await library.connect(version)
    await library.result(method, params)
    library.servers.sent.clear()
    library.rules(allow=["*"], deny=[denied.format(method=method)])
    error = await library.error(method, params)

    assert error["code"] == -32000
    assert error["data"]["error"]["code"] == "TOOL_DENIED"
    assert library.servers.sent == []


async def test_a_deny_on_another_method_does_not_hold(library: Party) -> None:
    library.rules(deny=["memo:resources/read", "docs:*"])
    await library.connect()
    await library.result("prompts/get", GET)

    assert [method for _, method, _ in library.servers.sent] == ["prompts/get"]


@pytest.mark.parametrize(("version", "capabilities"), [("2025-11-25", {}), (MODERN, {})])
async def test_what_a_rule_asks_about_is_decided_elsewhere_and_asked_for_again(
    library: Party, version: str, capabilities: JsonObject
) -> None:
    library.rules(ask=["memo:resources/read"])
    await library.connect(version, capabilities)
    error = await library.error("resources/read", {"uri": "memo://b"})
    (record,) = await library.pending()

    assert error["code"] == -32000
    assert error["message"] == (
        f"Approval required to call memo:resources/read: `pml approvals allow {record.id[:8]}`"
        " in a terminal, then ask for it again"
    )
    assert library.servers.sent == []
    await library.decide(allow=True)
    assert (await library.result("resources/read", {"uri": "memo://b"}))["contents"]
    assert len(library.servers.sent) == 1


async def test_a_legacy_form_is_shown_for_a_resource_too(library: Party) -> None:
    library.rules(ask=["memo:resources/read"])
    await library.connect("2025-11-25", FORMS)
    id = library.start("resources/read", {"uri": "memo://b"})
    form = await library.asked()
    assert form["params"]["message"].startswith("Call memo:resources/read?\n")
    library.reply(form, {"action": "accept", "content": {"remember": "once"}})

    assert (await library.result_of(id, "resources/read"))["contents"]


@pytest.mark.parametrize(
    ("method", "params"), [("resources/read", {"uri": "memo://b"}), ("prompts/get", GET)]
)
async def test_a_modern_form_is_shown_for_what_is_no_tool_and_its_answer_repeats_the_request(
    library: Party, method: str, params: JsonObject
) -> None:
    library.rules(ask=[f"memo:{method}"])
    await library.connect(MODERN, FORMS)
    form = await library.result(method, params)
    assert form["inputRequests"]["approval"]["params"]["message"].startswith(f"Call memo:{method}?\n")
    assert library.servers.sent == []
    answer: JsonObject = {"action": "accept", "content": {"remember": "once"}}
    back: JsonObject = {"inputResponses": {"approval": answer}, "requestState": form["requestState"]}
    crossed = await library.error("resources/read", {"uri": "docs://x", **back})
    assert crossed["message"] == "`requestState` does not belong to this call"
    result = await library.result(method, {**params, **back})

    assert result["resultType"] == "complete"
    assert [sent for _, sent, _ in library.servers.sent] == [method]


@pytest.mark.parametrize(
    ("method", "params"), [("resources/read", {"uri": "memo://b"}), ("prompts/get", GET)]
)
async def test_a_server_may_ask_the_user_for_what_is_no_tool(
    library: Party, method: str, params: JsonObject
) -> None:
    answers: list[JsonObject] = []
    form: JsonObject = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}

    async def ask(method: str, params: JsonObject, on_progress: Any) -> bytes:
        answers.append(await library.relay.elicit("memo", form))
        return b'{"contents":[],"messages":[],"ttlMs":9,"cacheScope":"public"}'

    library.servers.named["memo"].answer = ask
    await library.connect(MODERN, FORMS)
    asked = await library.result(method, params)
    assert asked["inputRequests"]["server"]["params"]["message"] == "Server memo asks:\n  Which?"
    answer: JsonObject = {"action": "accept", "content": {"a": 1}}
    result = await library.result(
        method, {**params, "inputResponses": {"server": answer}, "requestState": asked["requestState"]}
    )

    assert (result["resultType"], answers) == ("complete", [answer])
    if method == "resources/read":
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_modern_client_is_told_not_to_keep_what_it_reads(library: Party, version: str) -> None:
    await library.connect(version)
    result = await library.result("resources/read", {"uri": "memo://b"})
    hints = {key: result[key] for key in ("ttlMs", "cacheScope") if key in result}

    assert hints == ({"ttlMs": 0, "cacheScope": "private"} if version == MODERN else {})


async def test_errors_of_servers_pass_and_failures_are_told(library: Party) -> None:
    async def refuse(method: str, params: JsonObject, on_progress: Any) -> bytes:
        raise ServerRefused("refused", error=json.dumps({"code": -32002, "message": "gone"}).encode())

    async def fail(method: str, params: JsonObject, on_progress: Any) -> bytes:
        raise ServerFailed("server `memo` died")

    await library.connect()
    library.servers.named["memo"].answer = refuse
    assert await library.error("resources/read", {"uri": "memo://b"}) == {"code": -32002, "message": "gone"}
    library.servers.named["memo"].answer = fail
    error = await library.error("resources/read", {"uri": "memo://b"})
    assert error["message"] == "server `memo` died"
    assert error["data"]["error"]["code"] == "server_failed"


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("a://{x}", "a://1", True),
        ("a://{x}", "a://", False),
        ("a://{x}", "b://1", False),
        ("a://{x}/z", "a://1/z", True),
        ("a://{x}/z", "a://1/y", False),
        ("a://{x}/{y}", "a://1/2", True),
        ("a://{x}/{y}", "a://1", False),
        ("a://{x}/{y}", "a:///2", False),
        ("a://{x}{y}", "a://12", True),
        ("a://{x}{y}", "a://1", False),
        ("a://{x}aa{y}a", "a://1aa2a", True),
        ("a://{x}aa{y}a", "a://1aaa", False),
        ("a://{x}", "a://{x}", True),
        ("a://1", "a://1", True),
        ("a://1", "a://12", False),
        ("a://.*{x}", "a://bc1", False),
        ("ab{x}b", "ab", False),
        (None, "a", False),
        (7, "7", False),
    ],
)
def test_an_address_fits_the_template_it_can_come_from(template: Any, uri: str, fits: bool) -> None:
    assert _fits(template, uri) is fits


def test_no_template_makes_the_search_for_an_address_slow() -> None:
    assert not _fits("a" + "{x}a" * 200 + "b", "a" * 100_000)
