"""Who gets in where: every path, every method of the table, every role, and nobody at all."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from pml.core.approvals.record import Approval, SessionId
from pml.core.config.file import FileKind
from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from pml.hub.api.approvals import BatchBody, DecisionBody, UndoBody
from pml.hub.api.routes import ROUTES
from pml.hub.api.rules import AddBody, ExplainBody, RemoveBody, SwitchBody
from pml.hub.api.secrets import SecretBody
from pml.hub.api.servers import AddressBody
from pml.hub.api.sessions import LaunchBody
from pml.hub.api.trust import RemoveBody as UntrustBody
from pml.hub.api.trust import TrustBody
from tests.hub.hubs import KID, OTHER, STRANGER, TOP, HubRig
from tests.promises import promise

Body = Callable[[Approval], Json]

HUB_MD: Final = (Path(__file__).parents[3] / "docs" / "hub.md").read_text(encoding="utf-8")
TAKES: Final[dict[str, type[msgspec.Struct]]] = {
    "POST /api/approvals/decisions": BatchBody,
    "POST /api/approvals/{id}/decision": DecisionBody,
    "POST /api/approvals/{id}/undo": UndoBody,
    "POST /api/approvals/{id}/login/address": AddressBody,
    "POST /api/rules": AddBody,
    "POST /api/rules/explain": ExplainBody,
    "POST /api/rules/remove": RemoveBody,
    "POST /api/rules/switch": SwitchBody,
    "POST /api/secrets": SecretBody,
    "POST /api/sessions": LaunchBody,
    "POST /api/trust": TrustBody,
    "POST /api/trust/remove": UntrustBody,
}
UNKNOWN: Final = "00000000-0000-4000-8000-00000000ffff"
ROLES: Final = (None, TokenRole.PERSON, TokenRole.SESSION, TokenRole.CHILD)
# what each of ROLES is answered; the ids in the paths are those of the session's own child
TABLE: Final[dict[str, tuple[int, int, int, int]]] = {
    "GET /": (200, 200, 200, 200),
    "GET /health": (200, 200, 200, 200),
    "GET /metrics": (401, 200, 403, 403),
    "POST /mcp": (401, 200, 200, 200),
    "GET /events": (401, 200, 200, 200),
    "GET /api/inbox": (401, 200, 403, 403),
    "GET /api/inbox/{id}": (401, 200, 403, 403),
    "GET /api/approvals": (401, 200, 200, 403),
    "GET /api/approvals/{id}": (401, 200, 200, 403),
    "POST /api/approvals/decisions": (401, 200, 200, 403),
    "POST /api/approvals/{id}/decision": (401, 200, 200, 403),
    "POST /api/approvals/{id}/undo": (401, 400, 403, 403),
    "POST /api/approvals/{id}/login": (401, 400, 403, 403),  # the question is about a call
    "GET /api/approvals/{id}/login": (401, 200, 403, 403),
    "POST /api/approvals/{id}/login/address": (401, 404, 403, 403),  # no login is under way
    "GET /api/rules": (401, 200, 403, 403),
    "POST /api/rules": (401, 200, 403, 403),
    "POST /api/rules/explain": (401, 200, 403, 403),
    "POST /api/rules/remove": (401, 404, 403, 403),
    "POST /api/rules/switch": (401, 404, 403, 403),
    "GET /api/grants": (401, 200, 403, 403),
    "DELETE /api/grants/{id}": (401, 404, 403, 403),
    "GET /api/sessions": (401, 200, 200, 403),
    "POST /api/sessions": (401, 201, 201, 403),
    "GET /api/sessions/{id}": (401, 200, 200, 403),
    "GET /api/sessions/{id}/messages": (401, 200, 200, 403),
    "POST /api/sessions/{id}/stop": (401, 404, 404, 403),  # nothing runs there
    "GET /api/servers": (401, 200, 403, 403),
    "GET /api/servers/{name}/logs": (401, 200, 403, 403),
    "GET /api/trust": (401, 200, 403, 403),
    "POST /api/trust": (401, 404, 403, 403),  # there is no file
    "POST /api/trust/remove": (401, 200, 403, 403),
    "GET /api/secrets": (401, 200, 403, 403),
    "POST /api/secrets": (401, 200, 403, 403),
    "DELETE /api/secrets/{name}": (401, 404, 403, 403),
    "GET /api/audit": (401, 200, 403, 403),
    "GET /api/audit/verify": (401, 200, 403, 403),
    "POST /api/login": (401, 403, 403, 403),  # only a link's token logs in
    "POST /api/logout": (401, 200, 403, 403),
    "GET /api/me": (401, 200, 403, 403),
    "POST /api/hook": (401, 403, 200, 200),  # asking is all that a child may do
}
BODIES: Final[dict[str, Body]] = {
    "POST /api/approvals/decisions": lambda asked: {
        "decisions": [{"id": asked.id, "allow": True, "digest": asked.digest}]
    },
    "POST /api/approvals/{id}/decision": lambda asked: {"allow": True, "digest": asked.digest},
    "POST /api/approvals/{id}/undo": lambda _: {},
    "POST /api/approvals/{id}/login/address": lambda _: {"address": "http://127.0.0.1:1/callback?code=x"},
    "POST /api/rules": lambda _: {"effect": "deny", "entry": "github:*"},
    "POST /api/rules/explain": lambda _: {"tool": "github:create_issue"},
    "POST /api/rules/remove": lambda _: {"entry": "nothing:here"},
    "POST /api/rules/switch": lambda _: {"entry": "nothing:here", "effect": "deny", "enabled": False},
    "POST /api/trust": lambda _: {"digest": "0" * 64},
    "POST /api/trust/remove": lambda _: {},
    "POST /api/secrets": lambda _: {"name": "SHOP_KEY", "value": "hunter2"},
    "POST /api/sessions": lambda _: {"prompt": "look around"},
    "POST /api/hook": lambda _: {
        "hook_event_name": "PreToolUse",
        "tool_name": "Read",
        "tool_input": {},
        "tool_use_id": "use-1",
    },
}


def test_every_route_has_a_row() -> None:
    assert {f"{route.method} {route.path}" for route in ROUTES} == {row for row in TABLE if "/api/" in row}


def test_the_document_has_every_row_with_what_it_takes() -> None:
    cells = {row: takes for row, takes in re.findall(r"^\| `([A-Z]+ /api/[^`]*)` \| ([^|]*)\|", HUB_MD, re.M)}
    assert set(cells) == {f"{route.method} {route.path}" for route in ROUTES}
    for route in ROUTES:
        told = re.findall(r"\?(\w+)", cells[f"{route.method} {route.path}"]) if route.method == "GET" else []
        assert [name for name in route.query if name not in told] == []
    for row, body in TAKES.items():
        (told,) = re.findall(r"^`\{([^}:]*)", cells[row])
        fields = msgspec.structs.fields(body)
        assert told.split(", ") == [f"{field.name}{'' if field.required else '?'}" for field in fields]


@promise("hub:token-required")
@promise("hub:child-only-asks")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("row", TABLE)
async def test_each_role_gets_in_only_where_the_table_says(
    rig: HubRig, row: str, role: TokenRole | None
) -> None:
    rig.office.write_rules(allow=["pml:session_launch", "Read"])
    asked = await rig.ask()
    method, path = row.split(" ")
    named = asked.id if "approvals" in path or "inbox" in path else KID if "sessions" in path else UNKNOWN
    body = BODIES[row](asked) if row in BODIES else None
    name = "shop" if "servers" in path else "SHOP_KEY"
    got = await rig.send(method, path.replace("{id}", named).replace("{name}", name), role, json=body)
    assert got.status == TABLE[row][ROLES.index(role)], got.text
    if got.status in (401, 403):
        assert set(got.json) == {"error"}
        assert await rig.status(asked) == "pending"
        assert rig.agents.orders == []


@promise("hub:child-only-asks")
async def test_a_child_learns_nothing_of_others_and_changes_nothing(rig: HubRig) -> None:
    own, above, strange = await rig.ask(KID), await rig.ask(TOP), await rig.ask(STRANGER)
    for asked in (own, above, strange):
        got = await rig.decide(asked, TokenRole.CHILD)
        assert (got.status, got.json["error"]["code"]) == (403, "forbidden")
        assert await rig.status(asked) == "pending"
    for path in (
        *("/api/approvals", "/api/approvals?all=1", f"/api/approvals/{own.id}", f"/api/approvals/{above.id}"),
        *("/api/sessions", "/api/sessions/top", "/api/sessions/kid", "/api/sessions/top/messages"),
    ):
        got = await rig.send("GET", path, TokenRole.CHILD)
        assert got.status == 403
        assert "github" not in got.text
    assert (await rig.send("POST", "/api/sessions", TokenRole.CHILD, json={"prompt": "go"})).status == 403
    assert (await rig.send("POST", "/api/sessions/top/stop", TokenRole.CHILD)).status == 403
    assert rig.agents.orders == []


async def test_a_session_sees_and_decides_only_what_its_descendants_ask(rig: HubRig) -> None:
    grandchild = await rig.start(SessionId("grandkid"), KID, TokenRole.CHILD)
    mine = [await rig.ask(KID), await rig.ask(grandchild.id)]
    hidden = [await rig.ask(TOP), await rig.ask(STRANGER), await rig.ask(OTHER)]
    listed = await rig.send("GET", "/api/approvals", TokenRole.SESSION)
    assert [each["id"] for each in listed.json["approvals"]] == [record.id for record in mine]
    for record in hidden:
        unknown = await rig.send("GET", f"/api/approvals/{UNKNOWN}", TokenRole.SESSION)
        shown = await rig.send("GET", f"/api/approvals/{record.id}", TokenRole.SESSION)
        assert shown.status == 404
        assert shown.text == unknown.text.replace(UNKNOWN, record.id)
        assert (await rig.decide(record, TokenRole.SESSION)).status == 404
        assert await rig.status(record) == "pending"
        after = await rig.send("GET", f"/api/approvals?after={record.id}", TokenRole.SESSION)
        assert after.status == 404
    assert (await rig.send("GET", "/api/approvals?session=stranger", TokenRole.SESSION)).status == 404
    assert (await rig.send("GET", "/api/approvals?session=top", TokenRole.SESSION)).status == 404
    for record in mine:
        got = await rig.decide(record, TokenRole.SESSION)
        assert got.json["decided_by"] == {"kind": "parent", "id": "top", "channel": "loopback"}


async def test_a_batch_of_a_session_decides_only_its_descendants_questions(rig: HubRig) -> None:
    mine, strange = await rig.ask(KID), await rig.ask(STRANGER)
    items: list[Json] = [
        {"id": record.id, "allow": True, "digest": record.digest} for record in (strange, mine)
    ]
    got = await rig.send("POST", "/api/approvals/decisions", TokenRole.SESSION, json={"decisions": items})
    first, second = got.json["results"]
    assert (first["error"]["code"], second["status"]) == ("not_found", "allowed")
    assert await rig.status(strange) == "pending"


async def test_what_a_session_releases_is_its_descendants_too(rig: HubRig) -> None:
    mine, strange = await rig.ask(KID, n=1), await rig.ask(STRANGER, n=2)
    rig.office.write_rules(allow=["github:create_issue"])
    got = await rig.decide(mine, TokenRole.SESSION, scope="session", release=[strange.id])
    assert (got.status, got.json["released"]) == (200, [])
    assert await rig.status(strange) == "pending"


async def test_a_parent_never_allows_always(rig: HubRig) -> None:
    asked = await rig.ask(KID)
    got = await rig.decide(asked, TokenRole.SESSION, scope="always")
    assert got.status == 403
    assert await rig.status(asked) == "pending"
    assert (await rig.send("GET", f"/api/approvals/{asked.id}", TokenRole.SESSION)).json["always"] is None


async def test_a_session_sees_its_own_tree_and_no_other(rig: HubRig) -> None:
    listed = await rig.send("GET", "/api/sessions", TokenRole.SESSION)
    assert [each["id"] for each in listed.json["sessions"]] == ["top", "kid"]
    for hidden in ("other", "stranger", "nobody"):
        for path in (f"/api/sessions/{hidden}", f"/api/sessions/{hidden}/messages"):
            got = await rig.send("GET", path, TokenRole.SESSION)
            assert (got.status, got.json["error"]["message"]) == (404, f"no session `{hidden}`")
        assert (await rig.send("POST", f"/api/sessions/{hidden}/stop", TokenRole.SESSION)).status == 404


async def test_a_session_stops_those_it_launched_and_nobody_else(rig: HubRig) -> None:
    launched = (await rig.send("POST", "/api/sessions", json={"prompt": "of a person"})).json["id"]
    refused = await rig.send("POST", f"/api/sessions/{launched}/stop", TokenRole.SESSION)
    assert refused.status == 404
    assert (await rig.send("POST", "/api/sessions/top/stop", TokenRole.SESSION)).status == 403
    rig.office.write_rules(allow=["pml:session_launch"])
    own = (await rig.send("POST", "/api/sessions", TokenRole.SESSION, json={"prompt": "of top"})).json
    assert (own["parent"], own["role"]) == ("top", "child")
    await rig.agents.started(2)
    stopped = await rig.send("POST", f"/api/sessions/{own['id']}/stop", TokenRole.SESSION)
    assert (stopped.status, stopped.json["state"]) == (200, "stopped")


@promise("launch:a-persons-to-allow")
@pytest.mark.parametrize("approval", [{}, {"enabled": False}, {"unlisted": "if_client_cannot"}])
@pytest.mark.parametrize(
    "rules",
    [{}, {"ask": ["pml:*"]}, {"deny": ["pml:session_launch"]}, {"allow": ["*"]}, {"allow": ["pml:*"]}],
)
async def test_a_session_launches_only_what_the_users_file_names(
    rig: HubRig, rules: Json, approval: Json
) -> None:
    rig.office.write(FileKind.USER, {"permissions": rules, "approval": approval})
    got = await rig.send("POST", "/api/sessions", TokenRole.SESSION, json={"prompt": "go"})
    assert got.status == 403
    assert rig.agents.orders == []


@promise("launch:a-persons-to-allow")
async def test_a_workspace_allows_no_session_to_launch(rig: HubRig) -> None:
    rig.office.write_rules(FileKind.WORKSPACE, allow=["pml:session_launch"])
    await rig.office.trust()
    got = await rig.send("POST", "/api/sessions", TokenRole.SESSION, json={"prompt": "go"})
    assert got.status == 403
    assert "a person's to allow" in got.json["error"]["message"]
    assert rig.agents.orders == []
