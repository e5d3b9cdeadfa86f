"""Which calls name PML itself, so that only a person decides them."""

import posixpath

import pytest

from pml.core.reserved import is_reserved
from pml.core.values import JsonObject
from tests.promises import promise

HOME = "/srv/vault"


class LinkedPaths:
    """A file system in which `/repo/shop/notes` is a link into the home."""

    home = "/home/ana"

    def real(self, path: str) -> str:
        plain = posixpath.normpath(path)
        return HOME if plain == "/repo/shop/notes" else plain.replace("/repo/shop/notes/", f"{HOME}/", 1)


def reserved(tool: str, arguments: JsonObject) -> bool:
    return is_reserved(tool, arguments, home=HOME, cwd="/repo/shop", paths=LinkedPaths())


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "command",
    [
        "pml approvals allow 1234",
        "/usr/local/bin/pml trust",
        "cd x && pml rules allow '*'",
        "x=$(pml token create)",
        "PML approvals list",
        "python -m pml",
        "python -c 'import pml.cli'",
        "uvx pml-gateway",
        "echo $PML_HOME",
        "env PML_HOME=/tmp/x true",
        "p'm'l approvals",
        'p"m"l approvals',
        "p\\ml approvals",
        "$'pml' approvals",
        "pm\\\nl approvals",
        "cat ~/.pml/config.json",
        "cat > .pml.json",
        "cd ~ && cat .pml/config.json",
        f"cat {HOME}/config.json",
        f"ls {HOME}",
        "cat /srv/va'ul't/config.json",
        "cat /srv/va\\ult/config.json",
        "cat /srv//vault/config.json",
        "cat /srv/./vault/config.json",
        "cat /srv/va\\\nult/config.json",
    ],
)
def test_a_command_that_names_pml_is_reserved(command: str) -> None:
    assert reserved("Bash", {"command": command})
    assert reserved("shell:run", {"command": command})
    assert reserved("shell:run", {"steps": [{"command": command}]})


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "path", [HOME, f"{HOME}/config.json", "~/.pml/config.json", "/home/ana/.pml", ".pml/config.json", ".pml"]
)
def test_a_path_into_the_home_is_reserved_for_whatever_tool(path: str) -> None:
    assert reserved("Read", {"file_path": path})
    assert reserved("files:write", {"to": {"paths": [path]}, "text": "x"})
    assert reserved("files:move", {path: "elsewhere"})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {"command": "ls -la"}),
        ("Bash", {"command": "cat xpml pmlx apml2 helpmlessly"}),
        ("Bash", {}),
        ("Bash", {"timeout": 3, "background": None, "again": True}),
        ("notes:add", {"text": "ask pml about it"}),
        ("Write", {"file_path": "README.md", "content": "pml approvals allow"}),
        ("Read", {"file_path": ".pml.json"}),
        ("Read", {"file_path": "docs/pml/index.md"}),
        ("web:fetch", {"url": "https://example.com/pml"}),
    ],
)
def test_what_names_it_in_text_or_not_at_all_is_not_reserved(tool: str, arguments: JsonObject) -> None:
    assert not reserved(tool, arguments)


def test_arguments_as_deep_as_they_may_be_are_looked_through() -> None:
    deep: JsonObject = {"command": "pml trust"}
    for _ in range(90):
        deep = {"x": [deep]}

    assert reserved("shell:run", deep)


@promise("reserved:person-only")
@pytest.mark.parametrize(
    "path", ["../../srv/vault/config.json", "notes/config.json", "/repo/shop/notes", "x/../notes/a"]
)
def test_a_path_is_judged_by_where_it_leads(path: str) -> None:
    assert reserved("Edit", {"file_path": path})
    assert not reserved("Edit", {"file_path": "plans/config.json"})


@promise("reserved:person-only")
@pytest.mark.parametrize("odd", ["{a}", "*", "$x", "%41", "a`b", "x:y", "~x", "[ab]"])
def test_a_path_that_could_mean_much_is_also_taken_as_it_is_written(odd: str) -> None:
    assert reserved("Edit", {"file_path": f"{odd}/../../../srv/vault/config.json"})
    assert reserved("Edit", {"file_path": "notes"})
    assert not reserved("say", {"text": "notes"})
