"""`pml catalog`: what ships with PML, told without a request, a start or a file being written."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from pml.core.packages.lock import Lock
from pml.core.packages.permissions import Containment
from pml.core.ports.loader import Installed
from pml.install.deps import Deps
from pml.registry.catalog import Catalog
from tests.builders import NOW
from tests.commands import Pml
from tests.registry.official import official_beside, package, server_json

OK, USAGE, GONE = 0, 2, 5


def record(pml_home: Path, name: str, *, lock: str | None = None) -> None:
    """Let `deps.json` say that the catalog's server is installed; `lock` makes it another one."""
    found = Catalog().find(name)
    assert found is not None
    [dependency] = found.metadata.mcp_deps
    assert isinstance(dependency.lock, Lock)
    digest = lock or dependency.lock.digest
    Deps(pml_home).record(
        Installed(
            dependency=replace(dependency, lock=digest),
            lock=digest,
            terms="sha256:" + "1" * 64,
            tree="sha256:" + "2" * 64,
            path=str(pml_home / "servers" / name / "1-222222222222"),
            entry="start/it.py",
            runtime="python3.11",
            containment=Containment.BUBBLEWRAP,
            installed_at=NOW,
        )
    )


def test_the_list_tells_of_every_server_what_it_does_and_needs(pml: Pml, pml_home: Path) -> None:
    servers = pml("catalog", "list", "--json").json["servers"]
    assert [server["name"] for server in servers] == sorted(server["name"] for server in servers)
    [tavily] = [server for server in servers if server["name"] == "tavily"]
    assert (tavily["env_required"], tavily["installed"]) == (["TAVILY_API_KEY"], None)
    told = pml("catalog", "list")
    assert told.code == OK
    for server in servers:
        line = next(line for line in told.out.splitlines() if line.startswith(f"{server['name']} "))
        assert server["version"] in line
        assert server["description"] in line
    assert not pml_home.exists()


def test_the_list_tells_what_is_installed_and_whether_it_is_this_one(pml: Pml, pml_home: Path) -> None:
    record(pml_home, "time")
    record(pml_home, "git", lock="sha256:" + "0" * 64)
    servers = {server["name"]: server for server in pml("catalog", "list", "--json").json["servers"]}
    assert servers["time"]["installed"]["is_this"] is True
    assert servers["git"]["installed"]["is_this"] is False
    assert servers["memory"]["installed"] is None
    lines = {line.split()[0]: line for line in pml("catalog", "list").out.splitlines()}
    assert " yes " in lines["time"]
    assert f" another: {servers['git']['version']} " in lines["git"]
    assert " no " in lines["memory"]


def test_show_tells_all_that_an_install_would_mean(pml: Pml) -> None:
    shape = pml("catalog", "show", "time", "--json").json
    told = pml("catalog", "show", "time")
    assert told.code == OK
    assert shape["permissions"] == {"workspace": "none"}
    assert {"name": "mcp-server-time", "version": shape["version"]} in shape["packages"]
    assert [tool["name"] for tool in shape["tools"]] == ["convert_time", "get_current_time"]
    assert all(tool["inputSchema"] for tool in shape["tools"])
    for fact in (shape["install"], shape["integrity"], shape["lock"], shape["released_at"][:10]):
        assert fact in told.out
    assert "workspace: none" in told.out
    assert "network: none" in told.out
    assert f"{len(shape['packages'])} packages" in told.out
    for each in shape["packages"]:
        assert f"{each['name']} {each['version']}" in told.out
    assert "get_current_time: " in told.out
    assert "pml call time:" in told.out
    assert "None {}" not in told.out


def test_show_tells_the_variables_that_a_server_needs_and_those_that_are_set_for_it(pml: Pml) -> None:
    assert "TAVILY_API_KEY" in pml("catalog", "show", "tavily").out
    assert '"MEMORY_FILE_PATH": "${state}/memory.jsonl"' in pml("catalog", "show", "memory").out


def test_a_server_that_is_not_there_is_told_with_one_that_is(pml: Pml) -> None:
    ran = pml("catalog", "show", "memroy")
    assert (ran.code, ran.out) == (GONE, "")
    assert "did you mean `memory`?" in ran.err
    assert pml("catalog", "show", "nothing-like-it\x1b", "--json").json["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["time", "zone"], "time"),
        (["knowledge", "graph"], "memory"),
        (["git_commit"], "git"),
        (["read_*"], "filesystem"),
        (["MEMORY"], "memory"),
    ],
)
def test_a_search_finds_servers_by_words_tools_and_globs(pml: Pml, words: list[str], first: str) -> None:
    ran = pml("catalog", "search", *words, "--json")
    names = [server["name"] for server in ran.json["servers"]]
    assert names[0] == first
    assert len(names) == len(set(names))
    assert pml("catalog", "search", *words).out.splitlines()[1].startswith(f"{first} ")


def test_a_search_that_finds_nothing_says_so(pml: Pml) -> None:
    ran = pml("catalog", "search", "xyzzy")
    assert (ran.code, ran.out) == (GONE, "")
    assert "`pml catalog list`" in ran.err
    assert pml("catalog", "search").code == USAGE


@pytest.mark.parametrize("verb", ["list", "show", "search"])
def test_every_verb_has_help_with_examples(pml: Pml, verb: str) -> None:
    ran = pml("catalog", verb, "--help")
    assert ran.code == OK
    assert f"  pml catalog {verb}" in ran.out
    assert "--json" in ran.out


def test_a_search_also_finds_what_a_registry_lists_and_says_what_that_is_worth(
    pml: Pml, pml_home: Path
) -> None:
    with official_beside() as registry:
        registry.put(server_json())
        registry.put(server_json("io.github.acme/weather-image", packages=[package(registryType="oci")]))
        registry.status["io.github.acme/weather-image"] = "deprecated"
        pml_home.mkdir(exist_ok=True)
        (pml_home / "config.json").write_text(json.dumps({"registry": [registry.url]}))
        ran = pml("catalog", "search", "weather", "--json")
        told = pml("catalog", "search", "weather")
    plain, image = ran.json["listed"]
    assert (plain["name"], plain["registry"], plain["status"]) == (
        "io.github.acme/weather",
        registry.url,
        "active",
    )
    assert plain["packages"] == [{"type": "npm", "identifier": "@acme/weather", "version": "1.0.0"}]
    assert (image["status"], image["packages"]) == ("deprecated", [])
    assert "PML starts no containers" in image["refused"][0]["why"]
    assert "DEPRECATED: refused" in told.out
    assert "A list endorses nothing" in told.out


def test_a_registry_that_cannot_be_searched_is_told_and_the_catalog_still_is(
    pml: Pml, pml_home: Path
) -> None:
    pml_home.mkdir(exist_ok=True)
    (pml_home / "config.json").write_text(json.dumps({"registry": "http://127.0.0.1:9/v0.1/servers"}))
    ran = pml("catalog", "search", "time", "zone", "--json")
    assert ran.json["servers"][0]["name"] == "time"
    assert "cannot be asked" in ran.err
