"""Trust over HTTP: what a workspace's file would loosen is told whole, and trusted as it was shown."""

from collections.abc import Mapping

import pytest

from pml.core.approvals.record import Subject
from pml.core.config.file import FileKind
from pml.core.sessions.token import TokenRole
from pml.core.values import Json
from pml.service.approvals.trust import trust_facts
from pml.service.policy.policy import current_policy
from tests.hub.hubs import KID, Got, HubRig
from tests.promises import promise

LOOSE: Mapping[str, Json] = {
    "permissions": {"allow": ["github:*"], "deny": ["Bash"], "ask": [{"tool": "fs:write"}]},
    "mcpServers": {"shop": {"command": "node", "args": ["shop.js"], "env": {"SHOP_KEY": "hunter2"}}},
    "servers": {"idle_s": 9},
}


def write(rig: HubRig, content: Json = LOOSE) -> None:
    rig.office.write(FileKind.WORKSPACE, content)


async def shown(rig: HubRig) -> Got:
    return await rig.send("GET", "/api/trust")


async def test_what_a_file_would_loosen_is_told_before_and_after_it_is_trusted(rig: HubRig) -> None:
    write(rig)
    before = await shown(rig)
    got = await rig.send("POST", "/api/trust", json={"digest": before.json["digest"]})
    after = await shown(rig)
    assert [each.json["trusted"] for each in (before, got, after)] == [False, True, True]
    assert (before.json["needed"], after.json["needed"]) == (True, False)
    for each in (before.json, after.json):
        assert each["allows"] == ['"github:*"']
        assert [launch["name"] for launch in each["launches"]] == ["shop"]
        assert each["starts"] == ['shop: ["node", "shop.js"]', "  with SHOP_KEY set"]
        assert each["tightens"] == [
            {"effect": "deny", "entry": "Bash"},
            {"effect": "ask", "entry": '{"tool": "fs:write"}'},
        ]
        assert each["content"] == rig.office.path(FileKind.WORKSPACE).read_text()
        assert (each["exists"], each["broken"]) == (True, None)


@promise("trust:exact-content")
@pytest.mark.parametrize("prefix", ["", "sha256:"])
async def test_only_the_content_that_was_shown_is_trusted(rig: HubRig, prefix: str) -> None:
    write(rig)
    digest = (await shown(rig)).json["digest"].removeprefix("sha256:")
    write(rig, {**LOOSE, "permissions": {"allow": ["*"]}})
    got = await rig.send("POST", "/api/trust", json={"digest": prefix + digest})
    assert (got.status, got.json["error"]["code"]) == (409, "conflict")
    assert (await shown(rig)).json["trusted"] is False
    write(rig)
    assert (await rig.send("POST", "/api/trust", json={"digest": prefix + digest})).json["trusted"] is True


async def test_trusting_answers_the_questions_that_wait_for_it(rig: HubRig) -> None:
    write(rig)
    session = await rig.context.store.sessions.get(KID)
    policy = await current_policy(rig.context, str(rig.office.workspace))
    asked = await rig.office.ask(
        "pml:trust", trust_facts(policy), session=session, subject=Subject.WORKSPACE_TRUST
    )
    other = await rig.ask()
    got = await rig.send("POST", "/api/trust", json={"digest": policy.loaded.workspace.digest})
    assert got.json["answered"] == [asked.id]
    assert (await rig.status(asked), await rig.status(other)) == ("allowed", "pending")


async def test_trust_can_be_taken_back(rig: HubRig) -> None:
    write(rig)
    await rig.office.trust()
    got = await rig.send("POST", "/api/trust/remove", json={})
    assert (got.json["trusted"], got.json["forgotten"]) == (False, 1)
    again = await rig.send("POST", "/api/trust/remove", json={})
    assert (again.status, again.json["forgotten"]) == (200, 0)


async def test_a_file_that_is_not_there_is_told_and_cannot_be_trusted(rig: HubRig) -> None:
    found = (await shown(rig)).json
    assert (found["exists"], found["digest"], found["content"], found["allows"]) == (False, None, None, [])
    assert (await rig.send("POST", "/api/trust", json={"digest": "0" * 64})).status == 404


async def test_a_broken_file_is_shown_with_what_is_wrong_and_cannot_be_trusted(rig: HubRig) -> None:
    rig.office.path(FileKind.WORKSPACE).write_text('{"permissions": {"allow": ["*"}')
    found = (await shown(rig)).json
    assert (found["exists"], found["trusted"], found["allows"]) == (True, False, [])
    assert str(rig.office.path(FileKind.WORKSPACE)) in found["broken"]
    assert found["content"] == '{"permissions": {"allow": ["*"}'
    got = await rig.send("POST", "/api/trust", json={"digest": found["digest"]})
    assert got.status == 400
    assert (await shown(rig)).json["trusted"] is False


async def test_a_file_too_large_to_be_read_by_a_person_comes_without_its_text(rig: HubRig) -> None:
    write(rig, {"permissions": {"deny": ["a:" + "b" * 300_000]}})
    found = (await shown(rig)).json
    assert (found["content"], found["exists"], len(found["tightens"])) == (None, True, 1)


async def test_another_workspace_is_trusted_by_its_path(rig: HubRig) -> None:
    other = rig.office.home.parent / "other"
    other.mkdir()
    (other / ".pml.json").write_text('{"permissions": {"allow": ["a:b"]}}')
    found = (await rig.send("GET", f"/api/trust?workspace={other}")).json
    body: Json = {"digest": found["digest"], "workspace": str(other)}
    assert (await rig.send("POST", "/api/trust", json=body)).json["path"] == str(other / ".pml.json")
    got = await rig.send("POST", "/api/trust/remove", json={"workspace": str(other)})
    assert got.json["forgotten"] == 1
    assert (await rig.send("GET", "/api/trust?workspace=other")).status == 400


@pytest.mark.parametrize("role", [TokenRole.SESSION, TokenRole.CHILD])
async def test_trust_is_a_persons(rig: HubRig, role: TokenRole) -> None:
    write(rig)
    digest = (await shown(rig)).json["digest"]
    assert (await rig.send("GET", "/api/trust", role)).status == 403
    assert (await rig.send("POST", "/api/trust", role, json={"digest": digest})).status == 403
    assert (await rig.send("POST", "/api/trust/remove", role, json={})).status == 403
    assert (await shown(rig)).json["trusted"] is False
