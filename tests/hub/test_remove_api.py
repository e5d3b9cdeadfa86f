"""Removing a rule over HTTP: of the list that is named, or of the only one that has it."""

from pml.core.config.file import FileKind
from tests.hub.hubs import HubRig


async def test_a_rule_of_several_lists_is_left_alone_until_the_list_is_named(rig: HubRig) -> None:
    rig.office.write_rules(allow=["github:*"], deny=["github:*"])
    refused = await rig.send("POST", "/api/rules/remove", json={"entry": "github:*", "user": True})
    assert refused.status == 400
    error = refused.json["error"]
    file = rig.office.path(FileKind.USER)
    assert "`github:*` stands in several lists" in error["message"]
    assert f"{file}:" in error["message"]
    assert "`--effect deny --user` or `--effect allow --user`" in error["hint"]
    assert rig.office.read(FileKind.USER) == {"permissions": {"allow": ["github:*"], "deny": ["github:*"]}}
    body = {"entry": "github:*", "user": True, "effect": "allow"}
    assert (await rig.send("POST", "/api/rules/remove", json=body)).json["removed"] == 1
    assert rig.office.read(FileKind.USER) == {"permissions": {"allow": [], "deny": ["github:*"]}}
