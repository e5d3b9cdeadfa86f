"""What a client is offered: the list of tools, `discover`, and how changes of both are announced."""

import asyncio
import json
import re
from typing import Any

import pytest

from pml.core.config.file import FileKind
from pml.core.errors import ServerFailed
from pml.core.values import JsonObject
from pml.downstream import gateway
from pml.downstream.protocol.eras import LEGACY, MODERN
from pml.downstream.tools import tool_table
from pml.service.calls import tools as discovery
from pml.service.policy.policy import current_policy
from tests.downstream.parties import FORMS, LATEST, SUBSCRIPTION, Message, Party, code_of, text_of, tool
from tests.promises import promise

CHANGED = "notifications/tools/list_changed"


def names(tools: list[Message]) -> list[str]:
    return [tool["name"] for tool in tools]


async def discover(party: Party, **arguments: Any) -> Message:
    result = await party.call("discover", arguments)
    assert json.loads(text_of(result)) == result["structuredContent"]
    return result["structuredContent"]


def found(result: Message) -> list[str]:
    return [entry["tool"] for entry in result["tools"]]


# tools/list


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_every_version_lists_the_same_tools_in_the_same_order(party: Party, version: str) -> None:
    party.serve("alpha", tool("z"), tool("a"))
    tools = await party.connect(version)

    assert names(tools) == [
        "discover",
        "call",
        "execute",
        "alpha__a",
        "alpha__z",
        "files__read",
        "files__stat",
        "files__write",
    ]
    assert (await party.result("tools/list"))["tools"] == tools


async def test_a_modern_list_says_how_long_it_holds_and_for_whom(party: Party) -> None:
    party.be_modern()
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        result = await party.result(method)
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    await party.shake_hands()
    assert set(await party.result("tools/list")) == {"tools"}


@promise("names:wire-fits")
async def test_every_listed_name_fits_and_leads_to_its_own_tool(party: Party) -> None:
    odd = ["a.b", "a/b", "a:b", "ü", "x" * 200, "plain"]
    party.serve("odd", *(tool(name) for name in odd))
    listed = [entry for entry in await party.connect() if entry["name"].startswith("odd")]

    assert len(listed) == len(odd)
    for entry in listed:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", entry["name"])
        await party.call(entry["name"])
    assert sorted(str(call["name"]) for call in party.servers.calls) == sorted(odd)


async def test_a_tool_without_a_usable_name_is_not_listed(party: Party) -> None:
    party.serve("odd", tool("a b"), tool(""), tool("a*"), tool("fine"))

    assert [name for name in names(await party.connect()) if name.startswith("odd")] == ["odd__fine"]


async def test_tools_that_would_share_a_wire_name_are_reached_by_call_only(party: Party) -> None:
    party.serve("a", tool("b__c"), tool("d"))
    party.serve("a__b", tool("c"), tool("d"))
    party.rules(allow=["*"])
    listed = names(await party.connect())

    assert [name for name in listed if name.startswith("a_")] == ["a__b__d", "a__d"]
    entries = (await discover(party, tools=["a:b__c", "a__b:c"]))["tools"]
    assert [entry["call"] for entry in entries] == ["call", "call"]
    for colon in ("a:b__c", "a__b:c"):
        assert not (await party.call("call", {"tool": colon})).get("isError")
    assert [server for server, _, _ in party.servers.sent] == ["a", "a__b"]


@promise("list:schemas-unchanged")
@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_a_tool_is_listed_as_its_server_describes_it(party: Party, version: str) -> None:
    described = tool(
        "edit",
        required=["path"],
        title="Edit",
        annotations={"destructiveHint": True},
        outputSchema={"type": "object"},
        _meta={"x/y": [1]},
        icons=[{"src": "data:,"}],
    )
    party.serve("docs", described)
    (listed,) = [entry for entry in await party.connect(version) if entry["name"] == "docs__edit"]

    assert listed == {
        **described,
        "outputSchema": {
            "type": "object",
            "anyOf": [{"type": "object"}, {"required": ["approval_required"]}, {"required": ["error"]}],
        },
        "name": "docs__edit",
    }


@pytest.mark.parametrize(
    "own",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"type": "object", "properties": {"a": {}, "b": {"$ref": "#/properties/a"}}},
        {"type": "object", "$id": "https://example.com/s", "properties": {}},
        True,
    ],
    ids=["refers to itself", "refers to a part of itself", "has an address", "no object"],
)
async def test_an_output_schema_that_cannot_be_opened_for_pmls_results_is_left_out(
    party: Party, own: Any
) -> None:
    party.serve("docs", tool("edit", outputSchema=own))
    (listed,) = [entry for entry in await party.connect() if entry["name"] == "docs__edit"]

    assert "outputSchema" not in listed


async def test_shared_definitions_of_an_output_schema_stay_where_references_find_them(party: Party) -> None:
    shared = {"at": {"type": "string"}}
    own = {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}}}
    party.serve("docs", tool("edit", outputSchema={**own, "$defs": shared}))
    (listed,) = [entry for entry in await party.connect() if entry["name"] == "docs__edit"]

    assert listed["outputSchema"]["$defs"] == shared
    assert listed["outputSchema"]["anyOf"][0] == own


@promise("list:schemas-unchanged")
async def test_the_reserved_argument_is_advertised_by_call_and_execute_only(party: Party) -> None:
    party.serve("odd", {"name": "bare"}, {"name": "null", "inputSchema": None})
    listed = {entry["name"]: entry["inputSchema"] for entry in await party.connect()}

    said = [name for name, schema in listed.items() if "continue_workflow" in json.dumps(schema)]
    assert said == ["call", "execute"]
    assert listed["odd__bare"] == listed["odd__null"] == {"type": "object"}
    assert listed["files__write"] == party.servers.named["files"].tools[1]["inputSchema"]


async def test_a_hundred_tools_cost_little_more_than_their_server_says_of_them(party: Party) -> None:
    tools = [tool(f"tool_{n:03}", required=["path"]) for n in range(100)]
    party.serve("many", *tools)
    party.configure(expose=["many:*"])
    own, listed = len(json.dumps(tools)), len(json.dumps(await party.connect()))

    names_and_pmls_own = 100 * len("many__") + 4000
    assert listed <= own + names_and_pmls_own


async def test_what_a_schema_requires_is_checked_before_anything_is_sent(party: Party) -> None:
    await party.connect()
    result = await party.call("files__write", {"path": "a"})

    assert code_of(result) == "invalid_arguments"
    assert "`files:write` needs `text`" in text_of(result)
    assert party.servers.calls == []


async def test_only_what_expose_names_is_listed_and_the_rest_is_found(party: Party) -> None:
    party.configure(expose=["files:read", "st*"])

    assert names(await party.connect()) == ["discover", "call", "execute", "files__read", "files__stat"]
    entries = {entry["tool"]: entry for entry in (await discover(party, query="files"))["tools"]}
    assert entries["files:read"]["call"] == "files__read"
    assert entries["files:write"]["call"] == "call"
    assert entries["files:write"]["with"] == {"tool": "files:write"}


async def test_a_list_starts_a_server_that_is_unknown_and_no_other(party: Party) -> None:
    party.rules(deny=["denied:*"])
    await party.connect()
    assert party.servers.started == ["files"]
    await party.result("tools/list")
    assert party.servers.started == ["files"]


async def test_a_server_that_is_denied_whole_is_not_started_for_a_list(party: Party) -> None:
    party.serve("denied", tool("a"))
    party.rules(deny=["denied:*"])

    assert "denied__a" not in names(await party.connect())
    assert party.servers.started == ["files"]


async def test_a_server_that_starts_too_slowly_for_the_list_is_announced_later(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "LIST_S", 0.0)
    monkeypatch.setattr(tool_table, "FINISH_S", 0.0)
    monkeypatch.setattr(tool_table, "LEARN_S", 0.01)
    slow = party.serve("slow", tool("a"))
    slow.ready = asyncio.Event()
    assert "slow__a" not in names(await party.connect())
    assert (await discover(party))["servers_not_ready"] == {"slow": "starting"}

    slow.ready.set()
    await party.told(CHANGED)
    assert "slow__a" in names((await party.result("tools/list"))["tools"])


async def test_a_server_that_does_not_start_does_not_spoil_the_list(party: Party) -> None:
    async def fail(spec: Any) -> Any:
        raise ServerFailed("server `files` ended with exit code 3")

    party.servers.manifest = fail  # type: ignore[method-assign]

    assert names(await party.connect()) == ["discover", "call", "execute"]
    assert (await discover(party))["servers_not_ready"] == {"files": "server `files` ended with exit code 3"}


# discover


async def test_discover_finds_by_words_best_first(party: Party) -> None:
    party.serve(
        "github",
        tool("create_issue", description="Open a new issue."),
        tool("list_issues"),
        tool("merge", description="Merge; closes the issue."),
    )
    await party.connect()

    assert found(await discover(party, query="create issue")) == [
        "github:create_issue",
        "github:list_issues",
        "github:merge",
    ]
    assert found(await discover(party, query="zebra")) == []


async def test_discover_finds_by_a_glob(party: Party) -> None:
    await party.connect()

    assert found(await discover(party, query="files:*")) == ["files:read", "files:stat", "files:write"]
    assert found(await discover(party, query="re*")) == ["files:read"]
    assert found(await discover(party)) == ["files:read", "files:stat", "files:write"]


async def test_discover_tells_schemas_of_named_tools_only(party: Party) -> None:
    await party.connect()
    brief = await discover(party, query="stat")
    whole = await discover(party, tools=["files:stat", "files__read", "files:nothing"])

    assert "inputSchema" not in brief["tools"][0]
    assert found(whole) == ["files:stat", "files:read"]
    assert whole["tools"][0]["outputSchema"]["properties"] == {"size": {"type": "integer"}}
    assert whole["tools"][1]["inputSchema"]["required"] == ["path"]
    assert whole["not_found"] == ["files:nothing"]


async def test_discover_says_how_many_more_there_are(party: Party) -> None:
    party.serve("many", *(tool(f"t{n:02}") for n in range(30)))
    await party.connect()
    result = await discover(party, query="many:*")

    assert (len(result["tools"]), result["more"]) == (25, 5)


@promise("list:small")
async def test_discover_without_a_query_names_tools_in_a_line_each_and_says_how_to_find_the_others(
    party: Party,
) -> None:
    long = tool("t", description="Does a thing.\n" * 200)
    party.serve("many", *({**long, "name": f"t{n:03}"} for n in range(200)))
    await party.connect()
    result = await discover(party)

    assert found(result)[:4] == ["files:read", "files:stat", "files:write", "many:t000"]
    assert (len(result["tools"]), result["more"], result["more_of"]) == (50, 153, {"many": 153})
    assert result["tools"][0] == {
        "tool": "files:read",
        "description": "The tool read.",
        "call": "files__read",
    }
    assert all(len(entry["description"]) <= 80 for entry in result["tools"])
    assert "query" in result["narrow"]
    assert len(json.dumps(result)) < 10_000


@promise("list:small")
async def test_own_tools_take_little_of_a_clients_list(party: Party) -> None:
    tools = await party.connect()
    own = [each for each in tools if each["name"] in ("discover", "call", "execute")]

    # `make bench` has the bar, 27,000 bytes with a hundred tools; these are what PML adds to it.
    assert len(json.dumps(own, separators=(",", ":"), ensure_ascii=False).encode()) <= 2_110


@pytest.mark.parametrize("arguments", [{"query": 7}, {"tools": "files:read"}])
async def test_discover_with_wrong_arguments_is_told_so(party: Party, arguments: JsonObject) -> None:
    await party.connect()

    assert code_of(await party.call("discover", arguments)) == "invalid_arguments"


async def test_a_denied_discover_is_refused_by_the_rule(party: Party) -> None:
    party.rules(deny=["pml:discover"])
    await party.connect()
    result = await party.call("discover")

    assert code_of(result) == "TOOL_DENIED"
    assert text_of(result).startswith("Tool pml:discover is denied by user config")


# servers of a workspace that nobody trusts yet


def define_untrusted(party: Party) -> None:
    party.servers.named["local"] = party.servers.named.pop("files")
    party.configure(mcpServers={})
    party.office.write(FileKind.WORKSPACE, {"mcpServers": {"local": {"command": "run-me"}}})


async def test_an_untrusted_workspace_starts_nothing_and_its_servers_are_named(party: Party) -> None:
    define_untrusted(party)
    tools = await party.connect()

    assert names(tools) == ["discover", "call", "execute"]
    assert "wait for the user to trust the workspace's .pml.json: local" in tools[0]["description"]
    assert party.servers.started == []


async def test_discover_asks_whether_to_trust_and_lists_what_it_may(party: Party) -> None:
    define_untrusted(party)
    await party.connect()
    asked = await party.call("discover")

    assert text_of(asked).startswith("Approval required to trust this workspace's .pml.json\n")
    assert asked["approval_context"]["type"] == "workspace_trust"
    assert asked["approval_context"]["tool"] == "pml:discover"
    assert '["run-me"]' in text_of(asked)
    assert party.servers.started == []

    workflow_id = asked["approval_context"]["workflow_id"]
    again = (await party.continue_("discover", workflow_id))["result"]
    assert again["approval_required"] is True

    await party.decide(allow=True)
    listed = (await party.continue_("discover", workflow_id))["result"]
    assert found(listed["structuredContent"]) == ["local:read", "local:stat", "local:write"]
    assert (await party.told(CHANGED))[0] == {}


async def test_discover_after_a_no_lists_without_what_is_not_trusted_and_does_not_ask_again(
    party: Party,
) -> None:
    define_untrusted(party)
    await party.connect()
    await party.call("discover")
    await party.decide(allow=False)

    for _ in range(2):
        assert await discover(party) == {"tools": [], "servers_not_trusted": ["local"]}
    assert await party.pending() == []
    assert party.servers.started == []


# Changes


async def offer(party: Party, **offers: Any) -> None:
    """Let the server `files` offer something else, and tell so."""
    policy = await current_policy(party.office.context, (await party.office.session()).workspace)
    party.servers.change("files", **offers)
    await party.servers.manifest(policy.settings.servers["files"])


async def test_a_legacy_client_is_told_once_of_changes_that_come_together(party: Party) -> None:
    await party.connect()
    await party.result("prompts/list")
    await offer(party, tools=(tool("read"), tool("newcomer")), prompts=({"name": "hello"},))
    for _ in range(5):
        party.relay.changed("files", "tools")
        party.relay.changed("files", "prompts")

    await party.told(CHANGED)
    await party.told("notifications/prompts/list_changed")
    assert len(party.notifications) == 2


@pytest.mark.parametrize("version", [LATEST, MODERN])
async def test_nobody_is_told_of_a_list_that_is_as_they_have_it(
    party: Party, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "SETTLE_S", 0.0)
    monkeypatch.setattr(gateway, "WATCH_S", 0.0)
    await party.connect(version)  # which starts the server, and so learns what it offers
    if version == MODERN:
        party.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await party.told("notifications/subscriptions/acknowledged")
        party.notifications.clear()
    for kind in ("tools", "prompts", "resources"):
        party.relay.changed("files", kind)
    await party.settle()
    assert party.notifications == []

    await offer(party, tools=(tool("newcomer"),))
    await party.told(CHANGED)
    await party.settle()
    assert len(party.told_now(CHANGED)) == 1  # also where the client does not list again


async def test_a_tool_that_a_server_adds_is_in_the_list_that_the_client_is_told_to_read_again(
    party: Party,
) -> None:
    await party.connect()
    await offer(party, tools=(tool("read"), tool("newcomer")))

    await party.told(CHANGED)
    assert "files__newcomer" in names((await party.result("tools/list"))["tools"])


async def test_a_change_while_the_list_is_made_is_not_forgotten(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known_before_a_change(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        tools = await discovery.known_tools(*args, **options)
        party.servers.named["files"].tools = (tool("newcomer"),)
        await party.servers.manifest(args[1].settings.servers["files"])
        return tools

    await party.connect()
    party.relay.changed("files", "tools")
    monkeypatch.setattr(tool_table, "known_tools", known_before_a_change)
    await party.result("tools/list")

    assert "files__newcomer" in names((await party.result("tools/list"))["tools"])


async def test_a_modern_client_is_told_what_it_subscribed_to_under_its_subscription(party: Party) -> None:
    await party.connect(MODERN)
    wanted: JsonObject = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": []}
    id = party.start("subscriptions/listen", {"notifications": wanted})

    (acknowledged,) = await party.told("notifications/subscriptions/acknowledged")
    assert acknowledged == {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION: id}}
    await offer(party, tools=(tool("newcomer"),))
    for kind in ("tools", "prompts", "resources"):
        party.relay.changed("files", kind)
    assert await party.told(CHANGED) == [{"_meta": {SUBSCRIPTION: id}}]
    assert len(party.notifications) == 2


@promise("list:late-tool-reached")
async def test_a_modern_client_that_listens_only_after_a_change_is_told_of_it_then(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "WATCH_S", 0.01)
    monkeypatch.setattr(gateway, "SETTLE_S", 0.0)
    await party.connect(MODERN)
    await party.result("tools/list")
    await offer(party, tools=(tool("newcomer"),))
    party.relay.changed("files", "tools")
    for _ in range(50):
        await asyncio.sleep(0)  # the change is looked at while nobody listens
    id = party.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert await party.told(CHANGED) == [{"_meta": {SUBSCRIPTION: id}}]


async def test_a_modern_client_is_told_nothing_that_it_did_not_subscribe_to(party: Party) -> None:
    await party.connect(MODERN, FORMS)
    ended = party.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await party.told("notifications/subscriptions/acknowledged")
    party.cancel(ended)
    wanted = party.start("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
    await party.told("notifications/subscriptions/acknowledged", count=2)
    for kind in ("prompts", "resources", "tools"):  # told in this order
        party.relay.changed("files", kind)

    assert await party.told("notifications/prompts/list_changed") == [{"_meta": {SUBSCRIPTION: wanted}}]
    await party.settle()
    assert party.told_now(CHANGED) == []


async def test_an_edit_of_the_rules_file_is_noticed_and_announced(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "WATCH_S", 0.01)
    await party.connect()
    party.configure(expose=["files:read"])

    await party.told(CHANGED)
    listed = (await party.result("tools/list"))["tools"]
    assert names(listed) == ["discover", "call", "execute", "files__read"]


async def test_asking_that_is_off_is_told_in_the_list_and_by_discover(party: Party) -> None:
    party.configure(approval={"enabled": False})
    listed = await party.connect()

    assert "ASKING IS OFF" in listed[0]["description"]
    assert (await discover(party))["problems"] == ["ASKING IS OFF: what no rule denies runs without asking"]


async def test_a_broken_file_is_told_in_the_list(party: Party) -> None:
    party.office.write(FileKind.WORKSPACE, "oops")
    listed = await party.connect()

    assert "until it is fixed, everything asks" in listed[0]["description"]


async def test_a_server_that_is_denied_whole_is_not_said_to_start(party: Party) -> None:
    party.rules(deny=["files:*"])
    party.servers.named.clear()
    await party.connect()

    assert "servers_not_ready" not in await discover(party)


async def test_no_argument_is_asked_for_in_a_header(party: Party) -> None:
    region: JsonObject = {"type": "string", "x-mcp-header": "Region", "default": {"x-mcp-header": "kept"}}
    schema: JsonObject = {
        "type": "object",
        "properties": {"region": region, "x-mcp-header": {"type": "string"}},
        "$defs": {"deep": {"anyOf": [{"items": region}]}},
    }
    plain: JsonObject = {"type": "string", "default": {"x-mcp-header": "kept"}}
    party.serve("odd", {"name": "read", "inputSchema": schema})
    (given,) = [entry["inputSchema"] for entry in await party.connect() if entry["name"] == "odd__read"]

    assert given["properties"]["region"] == plain
    assert given["properties"]["x-mcp-header"] == {"type": "string"}
    assert given["$defs"] == {"deep": {"anyOf": [{"items": plain}]}}
