"""Rules switched off and on over HTTP."""

import pytest

from pml.core.config.file import FileKind
from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from tests.hub.hubs import HubRig

BODY: dict[str, Json] = {"entry": "github:*", "effect": "deny", "enabled": False, "user": True}


async def test_a_rule_is_switched_off_and_on_again(rig: HubRig) -> None:
    rig.office.write_rules(deny=["github:*"])
    off = await rig.send("POST", "/api/rules/switch", json=BODY)
    assert off.json == {"entry": "github:*", "enabled": False, "switched": 1, "denied": []}
    (listed,) = (await rig.send("GET", "/api/rules")).json["rules"]
    assert (listed["entry"], listed["counts"], listed["note"]) == (
        {"tool": "github:*", "enabled": False},
        False,
        "disabled",
    )
    asked = await rig.ask()
    on = await rig.send("POST", "/api/rules/switch", json={**BODY, "entry": listed["entry"], "enabled": True})
    assert (on.json["switched"], on.json["denied"]) == (1, [asked.id])
    assert await rig.status(asked) == "denied"
    assert rig.office.read(FileKind.USER) == {"permissions": {"deny": ["github:*"]}}


async def test_what_is_not_there_or_switched_so_already_is_told(rig: HubRig) -> None:
    rig.office.write_rules(deny=["github:*"])
    for wrong in ({"enabled": True}, {"entry": "a:b"}, {"effect": "allow"}, {"user": False}):
        assert (await rig.send("POST", "/api/rules/switch", json={**BODY, **wrong})).status == 404
    for wrong in ({"enabled": "no"}, {"effect": None}, {"more": 1}):
        assert (await rig.send("POST", "/api/rules/switch", json={**BODY, **wrong})).status == 400


@pytest.mark.parametrize("role", [TokenRole.SESSION, TokenRole.CHILD])
async def test_switching_is_a_persons(rig: HubRig, role: TokenRole) -> None:
    rig.office.write_rules(deny=["github:*"])
    assert (await rig.send("POST", "/api/rules/switch", role, json=BODY)).status == 403
    assert rig.office.read(FileKind.USER) == {"permissions": {"deny": ["github:*"]}}
