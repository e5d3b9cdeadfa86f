"""What can be found before it is installed: the catalog's tools, listed only where a file exposes them."""

import pytest

from pml.core.config.file import FileKind
from pml.core.errors import Invalid, PmlError, Unavailable
from pml.service.calls.tools import Tools, known_tools
from pml.service.policy.policy import current_policy
from tests.fakes import FakeAsking
from tests.fakes_loading import make_dependency
from tests.service.gatehouses import SERVER
from tests.service.warehouses import TOOL, Warehouse


@pytest.fixture(autouse=True)
def catalog(warehouse: Warehouse) -> None:
    warehouse.sources.offer("memory", make_dependency(), tools=["add", "list"])


async def known(warehouse: Warehouse) -> Tools:
    policy = await current_policy(warehouse.office.context, warehouse.session.workspace)
    return await known_tools(warehouse.gate, policy, problems={})


async def test_the_tools_of_the_catalog_are_known_with_what_a_call_would_install(
    warehouse: Warehouse,
) -> None:
    tools = await known(warehouse)

    assert {name: (each.installs, each.listed) for name, each in tools.by_name.items()} == {
        "memory:add": ("memory@1.2.3", False),
        "memory:list": ("memory@1.2.3", False),
    }
    assert (tools.manifests, tools.missing, warehouse.servers.started) == ([], {}, [])


async def test_a_tool_of_the_catalog_is_listed_where_a_file_exposes_it(warehouse: Warehouse) -> None:
    warehouse.office.write(FileKind.USER, {"expose": ["memory:add"]})

    tools = await known(warehouse)

    assert [name for name, each in tools.by_name.items() if each.listed] == ["memory:add"]


async def test_an_installed_server_tells_its_own_tools(warehouse: Warehouse) -> None:
    await warehouse.call(TOOL, asking=FakeAsking(warehouse.allowing()), offered=False)

    tools = await known(warehouse)

    assert {each.installs for each in tools.by_name.values()} == {None}
    assert "memory:run" in tools.by_name  # which the catalog does not know


@pytest.mark.parametrize("is_configured", [True, False], ids=["configured", "denied as a whole"])
async def test_what_a_file_configures_or_denies_is_not_offered_from_the_catalog(
    warehouse: Warehouse, is_configured: bool
) -> None:
    if is_configured:
        warehouse.configure(servers={"memory": SERVER})
    else:
        warehouse.configure(deny=["memory:*"])

    assert (await known(warehouse)).by_name == {}


@pytest.mark.parametrize(
    ("look", "error"),
    [
        ("all_installed", Invalid("deps.json is broken")),
        ("all_installed", Unavailable("deps.json cannot be read")),
        ("launch", Unavailable("there is no node")),
    ],
    ids=["a broken deps.json", "one that cannot be read", "one install"],
)
async def test_what_is_wrong_with_an_install_hides_nothing_else(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, look: str, error: PmlError
) -> None:
    warehouse.place(make_dependency("broken"))

    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(warehouse.installer, look, fail)

    assert list((await known(warehouse)).by_name) == ["memory:add", "memory:list"]
