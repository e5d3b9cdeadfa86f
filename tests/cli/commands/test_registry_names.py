"""Names in a registry's metadata: `namespace:action` or the bare action, and `org.project.name`.

From a folder and over HTTP; what was used once is used again while the registry is out of reach.
"""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.doors import DOORS, entering
from tests.cli.offering import Registry
from tests.commands import Pml
from tests.e2e.code_registry import cloud_of
from tests.promises import promise

OK: Final = 0
HELLO: Final = ("acme.tools.greet.hello", "hello", "greet:hello")
SEARCH: Final = ("casys.pml.smartSearch", "run", "smartSearch:run")
NAMES: Final = {
    "colon": (*HELLO, ["greet:hello"]),
    "three parts": (*SEARCH, ["smartSearch:run"]),
}
names = pytest.mark.parametrize(("fqdn", "export", "tool", "tools"), NAMES.values(), ids=NAMES)
Lose = Callable[[], object]


def publish(folder: Path, fqdn: str, export: str, tools: list[Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{fqdn}.json").write_text(json.dumps({"fqdn": fqdn, "type": "deno", "tools": tools}))
    code = f'export function {export}(args) {{ return "{fqdn} " + args.name }}'
    (folder / f"{fqdn}.ts").write_text(code)


def configure(home: Path, registry: str, tool: str, prefix: str) -> None:
    home.mkdir(mode=0o700)
    settings = {"registry": registry, "registry_prefix": prefix, "permissions": {"allow": [tool]}}
    (home / "config.json").write_text(json.dumps(settings))


@contextmanager
def reached(folder: Path, by: str) -> Generator[tuple[str, Lose]]:
    """Yield where the registry is, and what puts it out of reach."""
    if by == "folder":
        yield str(folder), lambda: folder.rename(folder.with_name("gone"))
        return
    with cloud_of(folder, folder.with_name("cloud")) as cloud:
        yield cloud.url, cloud.stop


@promise("registry:names-as-people-write-them")
@names
@pytest.mark.parametrize("by", ["folder", "http"])
def test_a_capability_is_called_by_its_tool_also_when_its_registry_is_out_of_reach(
    pml: Pml,
    tmp_path: Path,
    pml_home: Path,
    workspace: Path,
    *,
    by: str,
    fqdn: str,
    export: str,
    tool: str,
    tools: Any,
) -> None:
    publish(tmp_path / "registry", fqdn, export, tools)
    with reached(tmp_path / "registry", by) as (registry, lose):
        configure(pml_home, registry, tool, ".".join(fqdn.split(".")[:2]))
        for is_there in (True, True, False):
            if not is_there:
                lose()
            ran = pml("call", tool, '{"name": "Ada"}')
            assert (ran.code, ran.out.strip()) == (OK, f'"{fqdn} Ada"'), ran.err


@promise("registry:names-as-people-write-them")
@names
@pytest.mark.parametrize("door", DOORS)
def test_an_agent_calls_it_by_its_tool_at_every_door(
    tmp_path: Path,
    pml_home: Path,
    workspace: Path,
    *,
    door: str,
    fqdn: str,
    export: str,
    tool: str,
    tools: Any,
) -> None:
    publish(tmp_path / "registry", fqdn, export, tools)
    configure(pml_home, str(tmp_path / "registry"), tool, ".".join(fqdn.split(".")[:2]))
    with entering(door) as agent:
        for named in (tool, fqdn):
            assert agent.call(named, {"name": "Ada"})["structuredContent"]["result"] == f"{fqdn} Ada"


@promise("registry:names-as-people-write-them")
@pytest.mark.parametrize("named", ["smartSearch:run", "casys.pml.smartSearch"])
def test_of_two_publishers_of_one_name_the_one_that_is_meant_is_called(
    pml: Pml, tmp_path: Path, pml_home: Path, workspace: Path, named: str
) -> None:
    for publisher in ("casys.pml", "other.pml"):
        publish(tmp_path / "registry", f"{publisher}.smartSearch", "run", ["smartSearch:run"])
    configure(pml_home, str(tmp_path / "registry"), "smartSearch:*", "casys.pml")

    ran = pml("call", named, '{"name": "Ada"}')

    assert (ran.code, ran.out.strip()) == (OK, '"casys.pml.smartSearch Ada"'), ran.err


@promise("registry:names-as-people-write-them")
@pytest.mark.parametrize("tools", [["greeter:greet"], ["greet"]], ids=["colon", "bare"])
def test_a_server_whose_tools_are_named_either_way_is_installed_for_one_of_them(
    pml: Pml, registry: Registry, tools: list[str]
) -> None:
    registry.offer(tools=tools, lock=registry.locked())

    unknown = pml("call", "greeter:great", '{"name": "Ada"}')
    assert "did you mean `greeter:greet`?" in unknown.err
    asked = pml("call", "greeter:greet", '{"name": "Ada"}')
    assert "Approval required to install greeter@1.0" in asked.err
