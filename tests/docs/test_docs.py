"""The documents say what is so: links lead somewhere, and the glossary speaks as the code does."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pml.core.approvals.record import Scope, State, Subject
from pml.core.names import code_of, parse_fqdn, parse_tool, tool_of, wire_of
from tests.e2e.test_conformance import LEGACY_NOT_KEPT, MODERN_NOT_KEPT, SAMPLING, SUBSCRIBING

ROOT = Path(__file__).parents[2]
NOT_OURS = {".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist"}
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

# Put together here, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:" + "|".join(["ro" + "ot", "wo" + "rk"]) + ")/")
REGISTRY_HOSTS = re.compile(
    "|".join(["py" + "pi[.]org", "python" + "hosted[.]org", "npm" + "js[.](?:org|com)"])
)


def files_of(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_OURS:
            continue
        if path.is_dir():
            yield from files_of(path)
        elif path.is_file():
            yield path


def documents() -> list[Path]:
    return [path for path in files_of() if path.suffix == ".md"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    files = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in files if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRY_HOSTS], ids=["machine paths", "registry hosts"])
def test_no_file_names_the_machine_it_was_written_on_or_a_registry_host(pattern: re.Pattern[str]) -> None:
    found = {name_of(path): pattern.findall(path.read_text("utf-8", errors="replace")) for path in files_of()}
    assert {name: hits for name, hits in found.items() if hits} == {}


def test_the_change_log_has_a_section_for_what_comes_next_or_for_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    headings = re.findall(
        r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {"Unreleased", version} & set(headings)


def test_the_four_names_in_the_glossary_are_names_of_one_tool() -> None:
    names = dict(re.findall(r"^\| (tool|wire name|FQDN|code name) \| `([^`]+)` \|", GLOSSARY, re.MULTILINE))
    tool = parse_tool(names["tool"])
    assert names == {
        "tool": str(tool),
        "wire name": wire_of(tool),
        "FQDN": names["FQDN"],
        "code name": code_of(tool),
    }
    assert tool_of(parse_fqdn(names["FQDN"])) == tool


@pytest.mark.parametrize("words", [State, Subject], ids=["states", "subjects"])
def test_the_glossary_explains_every_state_and_subject_in_the_order_of_the_code(
    words: type[State] | type[Subject],
) -> None:
    explained = re.findall(r"^\| `(\w+)` \|", GLOSSARY, re.MULTILINE)
    assert [word for word in explained if word in set(words)] == list(words)


def test_the_glossary_names_every_scope() -> None:
    assert [scope for scope in Scope if f"`{scope}`" not in GLOSSARY] == []


def test_the_glossary_explains_no_word_twice() -> None:
    words = re.findall(r"^\*\*([^*]+)\*\*:", GLOSSARY, re.MULTILINE)
    assert sorted(words) == sorted(set(words))


def test_readme_names_tools_that_the_catalog_has() -> None:
    offered = {
        f"{name.stem}:{tool['name']}"
        for name in (ROOT / "src/pml/registry/bundled").glob("*.json")
        for tool in json.loads(name.read_text(encoding="utf-8"))["tools"]
    }
    servers = {tool.partition(":")[0] for tool in offered}
    named = re.findall(r"\b([a-z][\w-]*):([a-z]\w+)(?![\w*:])", (ROOT / "README.md").read_text("utf-8"))
    assert {f"{server}:{action}" for server, action in named if server in servers} - offered == set()


NOT_OFFERED = {
    SAMPLING: "Sampling",
    SUBSCRIBING: "Subscriptions to single resources",
    MODERN_NOT_KEPT["input-required-result-basic-list-roots"]: "Roots of modern clients",
    MODERN_NOT_KEPT["http-custom-header-server-validation"]: "`x-mcp-header`",
    MODERN_NOT_KEPT["input-required-result-ignore-extra-params"]: "Answers without their `requestState`",
}


def test_the_gateways_page_names_all_that_the_conformance_suite_misses() -> None:
    page = (ROOT / "docs" / "gateway.md").read_text()
    reasons = {*LEGACY_NOT_KEPT.values(), *MODERN_NOT_KEPT.values()}

    assert reasons == NOT_OFFERED.keys()
    for told in NOT_OFFERED.values():
        assert f"\n- **{told}**" in page
