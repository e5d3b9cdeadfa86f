"""Capabilities of a registry, through real clients: asked about with all they call, and run without it later.

The server that they bring along comes from the package index that this machine is set up for. Where that
cannot be reached the tests are skipped.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.commands import Ran
from tests.e2e.claude import run_headless
from tests.e2e.clients import ACCEPT, PYTHON, PYTHON_LEGACY, Kind, Outcome, call, connected
from tests.e2e.code_registry import BOTH, PREFIX, RING, SETTLE, Cloud, Registry, cloud_of
from tests.e2e.code_rig import (
    DONE,
    RETURNED,
    SERVERS,
    Books,
    effects,
    error_of,
    question,
    shown,
    value_of,
)
from tests.e2e.installed import bare_environment, need_clients, network_settings
from tests.e2e.messages_api import Conversation, Use, scripted
from tests.e2e.workspaces import Workspace, take_time
from tests.promises import promise

INSTALL_S: Final = 300.0  # only ever reached by a network that hangs
RULES: Final = {"allow": ["ledger:open"], "deny": [], "ask": ["*"]}
SETTLING: Final = {"allow": ["books:settle", "ledger:open", "ledger:shut"], "deny": [], "ask": ["*"]}
HOUR: Final[Mapping[str, object]] = {"tool": "clock:hour", "arguments": {"zone": "UTC"}}
RENT: Final[Mapping[str, object]] = {"what": "rent"}
FAR: Final[Mapping[str, object]] = {"tool": "far:settle", "arguments": RENT}
ALL: Final = ["far:settle", "ledger:*"]


@dataclass(frozen=True, kw_only=True)
class FirstUse:
    """What a person on a fresh machine did: called a capability, and allowed what it asked, until it ran."""

    place: Path
    calls: tuple[Ran, ...]
    asked: tuple[str, ...]

    @property
    def home(self) -> Path:
        return self.place / ".pml"


@pytest.fixture(scope="module")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> FirstUse:
    """Use a capability whose server is not installed yet, on the command line."""
    place = tmp_path_factory.mktemp("first")
    registry = Registry(folder=place / "registry")
    registry.add_hour("deno")
    settings = {"registry": str(registry.folder), "registry_prefix": PREFIX, "permissions": RULES}
    (place / ".pml").mkdir(mode=0o700)
    (place / ".pml" / "config.json").write_text(json.dumps({**settings, "mcpServers": SERVERS}))
    calls: list[Ran] = []
    asked: list[str] = []
    for _ in range(3):
        calls.append(_pml(place, "call", "clock:hour", '{"zone": "UTC"}'))
        if "check the network" in calls[-1].err:
            pytest.skip(f"needs a Python package index, which cannot be reached: {calls[-1].err}")
        for approval in _pml(place, "approvals", "list", "--json").json["approvals"]:
            asked.append(_pml(place, "approvals", "show", approval["id"]).out)
            assert _pml(place, "approvals", "allow", approval["id"]).code == 0
    return FirstUse(place=place, calls=tuple(calls), asked=tuple(asked))


def _pml(place: Path, *argv: str) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-m", "pml", *argv],
        cwd=place,
        env={**bare_environment(place), **network_settings(), "PML_HOME": str(place / ".pml")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    return Ran(code=ran.returncode, out=ran.stdout, err=ran.stderr)


@pytest.fixture
def books(tmp_path: Path, home: Path) -> Books:
    """A workspace with the ledger."""
    need_clients()
    place = (tmp_path / "shop").resolve()
    place.mkdir()
    return Books(workspace=Workspace(path=place, home=home, notes=place / "ledger.txt"))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(folder=tmp_path / "registry")


@pytest.fixture
def cloud(registry: Registry, tmp_path: Path) -> Generator[Cloud]:
    """A cloud that runs `far:settle` for others, by its own rules."""
    registry.add("far.settle", "python", SETTLE["python"], routing="server")
    with cloud_of(registry.folder, tmp_path / "cloud", "--execute") as running:
        yield running


async def call_alone(books: Books, arguments: Mapping[str, object], *, kind: Kind = PYTHON) -> Outcome:
    """Call a tool in a connection of its own, and accept every form."""
    place = books.workspace
    async with connected(kind, place.gateway, home=place.home, forms=True) as client:
        return await call(client, "call", arguments, answer=ACCEPT)


# --- what they bring along


def test_on_a_fresh_machine_the_tools_are_asked_about_first_then_the_server_that_is_brought_along(
    first_use: FirstUse,
) -> None:
    tools, server = first_use.asked
    assert "clock:hour" in tools
    assert "time:get_current_time" in tools
    assert "install time@" in server
    assert [ran.code for ran in first_use.calls] == [4, 4, 0]
    assert json.loads(first_use.calls[-1].out) == {"zone": "UTC"}
    assert effects(first_use.place) == ["open UTC"]


@promise("code:needs-first")
@pytest.mark.parametrize(("kind", "source"), [("deno", "cloud"), ("python", "folder")])
async def test_a_capability_is_asked_about_with_all_it_calls_and_goes_on_without_its_registry(
    books: Books, registry: Registry, first_use: FirstUse, tmp_path: Path, kind: str, source: str
) -> None:
    take_time(books.workspace, first_use.home)
    registry.add_hour(kind)
    with ExitStack() as stack:
        where = str(registry.folder)
        if source == "cloud":
            where = stack.enter_context(cloud_of(registry.folder, tmp_path / "cloud")).url
        books.rule(RULES, registry=where, registry_prefix=PREFIX)
        first = await call_alone(books, HOUR)
        [form] = first.forms
        assert form["message"].startswith("Call clock:hour?\n")
        assert "time:get_current_time" in form["message"]
        assert "ledger:open (allowed)" in form["message"]
        assert value_of(shown(first)) == {"zone": "UTC"}
    registry.folder.rename(tmp_path / "elsewhere")
    second = await call_alone(books, HOUR, kind=PYTHON_LEGACY)
    assert value_of(shown(second)) == {"zone": "UTC"}
    assert books.effects == ["open UTC", "open UTC"]


async def test_a_capability_may_call_another_of_the_other_language(
    books: Books, registry: Registry, first_use: FirstUse
) -> None:
    take_time(books.workspace, first_use.home)
    registry.add_hour("deno")
    registry.add("clock.both", "python", BOTH)
    books.rule(RULES, registry=str(registry.folder), registry_prefix=PREFIX)
    ran = await call_alone(books, {"tool": "clock:both"})
    assert ran.forms[0]["message"].startswith("Call clock:both?\n")
    assert "clock:hour" in ran.forms[0]["message"]
    assert value_of(shown(ran)) == [{"zone": "UTC"}, {"zone": "Asia/Tokyo"}]
    assert sorted(books.effects) == ["open Asia/Tokyo", "open UTC"]


async def test_capabilities_that_call_each_other_in_a_circle_are_refused_with_the_circle(
    books: Books, registry: Registry
) -> None:
    for name, code in RING.items():
        registry.add(f"ring.{name}", "deno", code)
    books.rule(
        {"allow": ["ring:*"], "deny": [], "ask": []}, registry=str(registry.folder), registry_prefix=PREFIX
    )
    refused = await call_alone(books, {"tool": "ring:left"})
    assert "ring:left → ring:right → ring:left" in error_of(refused)["message"]


# --- waiting in the middle


@promise("code:pause-repeats-nothing")
def test_a_capability_that_waits_goes_on_from_claude_code_when_a_person_has_allowed_its_call(
    books: Books, registry: Registry
) -> None:
    registry.add("books.settle", "deno", SETTLE["deno"])
    books.rule(SETTLING, registry=str(registry.folder), registry_prefix=PREFIX)

    def person_allows(conversation: Conversation) -> Use:
        books.kill_gateway()
        assert books.effects == DONE[:1]
        books.workspace.allow()
        return Use(tool="mcp__pml__call", arguments=question(conversation.results[-1]).go_on)

    first = Use(tool="mcp__pml__call", arguments={"tool": "books:settle", "arguments": RENT})
    with scripted(first, person_allows) as api:
        run_headless(books.setting(api))
    asked, ran = api.results
    assert question(asked).headline == "Approval required to call ledger:pay"
    assert value_of(ran) == RETURNED
    assert books.effects == DONE


@promise("code:pause-repeats-nothing")
def test_the_same_command_line_goes_on_where_the_capability_waits(books: Books, registry: Registry) -> None:
    registry.add("books.settle", "python", SETTLE["python"])
    books.rule(SETTLING, registry=str(registry.folder), registry_prefix=PREFIX)
    command = ("call", f"{PREFIX}.books.settle", json.dumps(RENT))
    for _ in range(2):
        assert books.workspace.pml(*command).code == 4
        assert books.effects == DONE[:1]
    books.workspace.allow()
    ran = books.workspace.pml(*command)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == RETURNED
    assert books.effects == DONE


# --- what runs in the cloud


def use_cloud(books: Books, cloud: Cloud, **lists: list[str]) -> None:
    """Have what is routed to the cloud run there, with a key of its own."""
    permissions = {"allow": [], "deny": [], "ask": ["*"], **lists}
    books.rule(permissions, registry=cloud.url, cloud=cloud.url, registry_prefix=PREFIX)
    books.keep_secret("PML_CLOUD_KEY", cloud.key())


@promise("cloud:own-rules")
async def test_what_is_routed_to_the_cloud_runs_there_by_its_rules_alone(books: Books, cloud: Cloud) -> None:
    use_cloud(books, cloud, allow=["far:settle"])
    cloud.rule(allow=ALL)
    ran = await call_alone(books, FAR)
    assert value_of(shown(ran)) == RETURNED
    assert (effects(cloud.place), books.effects) == (DONE, [])

    cloud.rule(allow=ALL, deny=["ledger:pay"])
    denied = await call_alone(books, FAR)
    assert error_of(denied)["code"] == "TOOL_DENIED"
    assert effects(cloud.place) == [*DONE, DONE[0]]


@promise("cloud:own-rules")
async def test_what_the_cloud_asks_waits_for_its_people_and_runs_once_when_called_again(
    books: Books, cloud: Cloud
) -> None:
    use_cloud(books, cloud, allow=["far:settle"])
    cloud.rule(allow=["far:settle", "ledger:open", "ledger:shut"])
    asked = await call_alone(books, FAR)
    assert error_of(asked)["code"] == "cloud_asks"
    [approval] = cloud.pml("approvals", "list", "--json").json["approvals"]
    assert cloud.pml("approvals", "allow", approval["id"]).code == 0
    ran = await call_alone(books, FAR)
    assert value_of(shown(ran)) == RETURNED
    assert effects(cloud.place) == DONE


@promise("cloud:offline-is-told")
async def test_without_the_cloud_the_error_says_that_it_is_not_there_and_that_nothing_has_run(
    books: Books, cloud: Cloud
) -> None:
    use_cloud(books, cloud, allow=["far:settle"])
    cloud.rule(allow=ALL)
    assert value_of(shown(await call_alone(books, FAR))) == RETURNED
    cloud.stop()
    offline = await call_alone(books, FAR)
    assert cloud.url in error_of(offline)["message"]
    assert "nothing has run" in offline.text


@promise("cloud:no-workflow-forwarded")
async def test_going_on_with_a_question_of_this_machine_never_reaches_the_cloud(
    books: Books, cloud: Cloud
) -> None:
    use_cloud(books, cloud)
    cloud.rule(allow=ALL)
    place = books.workspace
    async with connected(PYTHON, place.gateway, home=place.home, forms=True) as client:
        code = {"code": "return await mcp.far.settle({ what: 'rent' })"}
        for tool, arguments in (("call", FAR), ("execute", code)):
            asked = question(shown(await call(client, tool, arguments)))
            still = question(shown(await call(client, tool, asked.go_on)))
            assert (still.workflow_id, still.headline) == (asked.workflow_id, asked.headline)
        assert cloud.calls == 0
        for approval in place.pending():
            assert place.pml("approvals", "allow", approval["id"]).code == 0
        ran = await call(client, "execute", asked.go_on)
        assert value_of(shown(ran)) == RETURNED
        assert cloud.calls == 1
