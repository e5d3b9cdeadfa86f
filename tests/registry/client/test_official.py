"""The official registry's API, asked over real HTTP: what is found, what is kept, and what is refused."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pml.core.errors import Invalid, NotFound, Unavailable
from pml.core.names import parse_tool
from pml.core.packages.capability import Status
from pml.registry.client.lookups import FRESH_S
from pml.registry.client.sources import CatalogAndRegistry
from tests.fakes import FakeClock
from tests.promises import promise
from tests.registry.liar import lying
from tests.registry.official import WEATHER, Official, official, package, server_json
from tests.registry.places import fill

FORECAST = parse_tool("weather:forecast")
PREFIX = "mcp.io_github_acme"


class Opened:
    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.lines: list[str] = []
        self.home = home
        self.sources = self.fresh()

    def fresh(self) -> CatalogAndRegistry:
        self.sources = CatalogAndRegistry(
            self.home, clock=self.clock, warn=self.lines.append, debug=self.lines.append
        )
        return self.sources


@pytest.fixture
def opened(home: Path) -> Opened:
    return Opened(home / ".pml")


@pytest.fixture
async def registry() -> AsyncGenerator[Official]:
    async with official() as it:
        yield it


async def test_a_server_is_found_by_its_name_with_what_it_needs(opened: Opened, registry: Official) -> None:
    variables = [
        {"name": "WEATHER_KEY", "isRequired": True, "isSecret": True},
        {"name": "WEATHER_UNITS", "default": "metric"},
    ]
    registry.put(server_json(packages=[package(environmentVariables=variables)]))
    found = await opened.sources.find(FORECAST, registries=[registry.url], prefix=PREFIX)
    assert found is not None
    [dependency] = found.metadata.mcp_deps
    assert (dependency.name, dependency.install) == ("weather", "npx -y @acme/weather@1.0.0")
    assert (dependency.env_required, dict(dependency.env)) == (("WEATHER_KEY",), {"WEATHER_UNITS": "metric"})
    assert (dependency.mcp_name, str(found.metadata.fqdn)) == (WEATHER, "mcp.io_github_acme.weather")
    assert registry.asked == ["/v0.1/servers/io.github.acme%2Fweather/versions/latest"]


@promise("registry:short-name-means-nothing")
async def test_a_short_name_alone_is_not_looked_up_among_what_anybody_lists(
    opened: Opened, registry: Official
) -> None:
    registry.put(server_json())
    assert await opened.sources.find(FORECAST, registries=[registry.url], prefix=None) is None
    assert await opened.sources.find(FORECAST, registries=[registry.url], prefix="acme.tools") is None
    assert registry.asked == []


async def test_a_search_reads_page_after_page_and_says_what_each_is(
    opened: Opened, registry: Official
) -> None:
    names = [f"io.github.acme/weather-{number:02}" for number in range(70)]
    for name in names:
        registry.put(server_json(name))
    registry.put(server_json("io.github.acme/other"))
    found = await opened.sources.search("weather", registries=[registry.url])
    assert [each.server.name for each in found] == names
    assert len(registry.asked) == 3


async def test_a_search_ends_after_a_few_pages(opened: Opened, registry: Official) -> None:
    for number in range(400):
        registry.put(server_json(f"io.github.acme/weather-{number:03}"))
    assert len(await opened.sources.search("weather", registries=[registry.url])) == 150


@promise("registry:second-call-silent")
async def test_what_was_asked_lately_is_not_asked_again_and_is_there_offline(
    opened: Opened, registry: Official
) -> None:
    registry.put(server_json())
    for _ in range(2):
        await opened.sources.find(FORECAST, registries=[registry.url], prefix=PREFIX)
    assert len(registry.asked) == 1
    [known] = opened.fresh().known([registry.url])
    assert str(known.metadata.fqdn) == "mcp.io_github_acme.weather"


async def test_a_registry_that_is_gone_answers_with_what_it_said_last(opened: Opened) -> None:
    async with official() as registry:
        registry.put(server_json())
        await opened.sources.find(FORECAST, registries=[registry.url], prefix=PREFIX)
    opened.clock.advance(FRESH_S + 1)
    found = await opened.fresh().find(FORECAST, registries=[registry.url], prefix=PREFIX)
    assert found is not None
    assert any("cannot be asked" in line for line in opened.lines)


@promise("registry:withdrawn-asks-again")
async def test_a_server_that_its_registry_deleted_has_other_terms(opened: Opened, registry: Official) -> None:
    registry.put(server_json())
    terms: list[str] = []
    for status in ("active", "deprecated", "deleted"):
        registry.status[WEATHER] = status
        found = await opened.sources.find(FORECAST, registries=[registry.url], prefix=PREFIX)
        assert found is not None
        [dependency] = found.metadata.mcp_deps
        terms.append(dependency.terms("sha256:0"))
        opened.clock.advance(FRESH_S + 1)
    assert terms[0] == terms[1] != terms[2]
    assert dependency.status is Status.DELETED


@promise("registry:no-lies")
@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (server_json("io.github.evil/weather"), "is about `io.github.evil/weather 1.0.0`"),
        (server_json("weather"), "must be like `io.github.user/server`"),
        ({"name": WEATHER}, "`version` is missing"),
        ([], "must be a JSON object"),
    ],
)
async def test_an_answer_about_another_server_is_refused(
    opened: Opened, registry: Official, shape: Any, said: str
) -> None:
    registry.lies["/v0.1/servers/io.github.acme%2Fweather/versions/latest"] = json.dumps(shape).encode()
    with pytest.raises(Invalid, match=re.escape(said)):
        await opened.sources.find(FORECAST, registries=[registry.url], prefix=PREFIX)
    assert opened.sources.known([registry.url]) == ()


@promise("registry:list-in-order")
async def test_a_registry_that_cannot_be_asked_is_not_passed_over_for_a_later_one(
    opened: Opened, registry: Official
) -> None:
    async with official() as first:
        pass
    registry.put(server_json())
    with pytest.raises(Unavailable):
        await opened.sources.find(FORECAST, registries=[first.url, registry.url], prefix=PREFIX)
    assert registry.asked == []


async def test_a_list_of_registries_is_asked_in_its_order(
    opened: Opened, registry: Official, tmp_path: Path
) -> None:
    folder = fill(tmp_path / "registry", "mcp.io_github_acme.weather.forecast", tools=["forecast"])
    registry.put(server_json())
    for registries in ([str(folder), registry.url], [registry.url, str(folder)]):
        found = await opened.sources.find(FORECAST, registries=registries, prefix=PREFIX)
        assert found is not None
        assert found.source == registries[0]


async def test_a_name_and_a_version_are_looked_up_for_a_person(opened: Opened, registry: Official) -> None:
    registry.put(server_json(version="0.9.0"))
    registry.put(server_json())
    listed = await opened.sources.listed(WEATHER, registries=[registry.url], version="0.9.0")
    assert (listed.server.version, listed.registry) == ("0.9.0", registry.url)
    with pytest.raises(NotFound, match=r"at version `3\.0\.0`"):
        await opened.sources.listed(WEATHER, registries=[registry.url], version="3.0.0")
    with pytest.raises(NotFound) as caught:
        await opened.sources.listed(WEATHER, registries=["/folder"])
    assert "/v0.1/servers" in str(caught.value.hint)


async def test_a_page_that_is_not_of_a_registry_is_told(opened: Opened) -> None:
    async with lying() as liar:
        with pytest.raises(NotFound, match="has no list of servers"):
            await opened.sources.search("weather", registries=[f"{liar.url}/v0.1"])


async def test_entries_that_are_not_sound_are_left_out_of_a_search(
    opened: Opened, registry: Official
) -> None:
    registry.put(server_json())
    registry.put(server_json("io.github.acme/weather-2", version=7))
    found = await opened.sources.search("weather", registries=[registry.url])
    assert [each.server.name for each in found] == [WEATHER]
