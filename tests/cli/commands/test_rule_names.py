"""Rules whose names no known server has, told when they are written and by doctor."""

import json
import sys
from pathlib import Path

from tests.commands import Pml
from tests.promises import promise

ECHO = Path(__file__).parents[3] / "bench" / "echo_server.py"
VOID = "WARNING: this deny protects nothing: "


def checks(pml: Pml, *, code: int) -> list[tuple[str, str]]:
    ran = pml("doctor", "--quick", "--json")
    assert ran.code == code
    return [(each["status"], each["message"]) for each in ran.json["checks"] if each["name"] == "rules"]


@promise("rules:names-are-checked")
def test_a_deny_for_what_the_catalogs_server_does_not_have_is_told_loudest(pml: Pml, local: Path) -> None:
    ran = pml("rules", "deny", "filesystem:read_fil")
    assert ran.code == 0
    problem = "server `filesystem` has no tool `read_fil`"
    assert f"{VOID}{problem}; did you mean `read_file`?" in ran.err
    (check,) = checks(pml, code=1)
    assert check[0] == "fail"
    assert check[1].startswith(f"this deny protects nothing: {problem}: deny ")


@promise("rules:names-are-checked")
def test_a_deny_on_one_argument_names_the_tools_that_it_misses(pml: Pml, local: Path) -> None:
    missed = "`filesystem:move_file`, `filesystem:read_multiple_files` take paths or URLs"
    ran = pml("rules", "deny", "filesystem:*", "--under", "path=~/.ssh")
    assert missed in ran.err
    assert VOID not in ran.err
    (check,) = checks(pml, code=0)
    assert (check[0], missed in check[1]) == ("warn", True)
    assert pml("rules", "remove", '{"tool": "filesystem:*", "args": {"path": {"under": "~/.ssh"}}}').code == 0
    assert pml("rules", "deny", "filesystem:*", "--under", "*=~/.ssh").err == ""
    assert checks(pml, code=0) == []


def test_a_configured_server_is_known_by_what_it_was_seen_to_offer(pml: Pml, workspace: Path) -> None:
    echo = {"command": sys.executable, "args": [str(ECHO)]}
    config = {"permissions": {"allow": ["echo:*"]}, "mcpServers": {"echo": echo}}
    (workspace / ".pml.json").write_text(json.dumps(config))
    assert pml("trust", "--yes").code == 0
    assert "no tool" not in pml("rules", "ask", "echo:bgi").err
    assert pml("call", "echo:echo", '{"text": "hi"}').code == 0
    ran = pml("rules", "allow", "echo:echo", "--under", "txt=.")
    assert "no tool that it names has an argument `txt`; did you mean `text`?" in ran.err
    assert sorted(status for status, _ in checks(pml, code=0)) == ["warn", "warn"]


@promise("rules:any-argument")
def test_an_allow_of_any_argument_is_refused_with_its_place(pml: Pml, workspace: Path) -> None:
    refused = pml("rules", "allow", "filesystem:*", "--under", "*=.")
    assert refused.code != 0
    assert "an allow must name the ones that it allows" in refused.err
    entry = {"tool": "filesystem:*", "args": {"*": {"under": "."}}}
    (workspace / ".pml.json").write_text(json.dumps({"permissions": {"allow": [entry]}}, indent=1))
    ran = pml("rules", "list")
    assert ran.code == 1
    assert f"{workspace / '.pml.json'}:" in ran.err
    assert "an allow must name the ones that it allows" in ran.err
