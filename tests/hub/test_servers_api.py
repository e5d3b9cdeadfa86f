"""Servers over HTTP: how they stand, and what they wrote."""

import pytest

from pml.core.sessions.token import TokenRole
from tests.hub.hubs import HubRig


async def test_the_last_lines_of_a_servers_log_are_given(rig: HubRig) -> None:
    whole = await rig.send("GET", "/api/servers/shop/logs")
    assert (whole.json["name"], whole.json["lines"]) == ("shop", ["line 0", "line 1", "line 2"])
    assert (await rig.send("GET", "/api/servers/shop/logs?limit=1")).json["lines"] == ["line 2"]


async def test_the_log_is_that_of_the_workspace_which_is_named(rig: HubRig) -> None:
    other = rig.office.home.parent / "other"
    other.mkdir()
    got = await rig.send("GET", f"/api/servers/shop/logs?workspace={other}")
    assert got.json["path"] == str(other)
    assert (await rig.send("GET", "/api/servers/shop/logs?workspace=/no/such/place")).status == 404


@pytest.mark.parametrize("limit", ["0", "1001", "x", "-1"])
async def test_how_many_lines_is_bounded(rig: HubRig, limit: str) -> None:
    assert (await rig.send("GET", f"/api/servers/shop/logs?limit={limit}")).status == 400


@pytest.mark.parametrize("path", ["/api/servers", "/api/servers/shop/logs"])
async def test_servers_are_a_persons_to_look_at(rig: HubRig, path: str) -> None:
    for role in (TokenRole.SESSION, TokenRole.CHILD):
        assert (await rig.send("GET", path, role)).status == 403
