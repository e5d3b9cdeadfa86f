"""`pml completion`: what fits a command line, and that each real shell offers it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import TIMEOUT_S, Pml

OK, USAGE = 0, 2


@pytest.fixture
def fits(pml: Pml) -> Callable[[str], list[str]]:
    def look(line: str) -> list[str]:
        ran = pml("completion", "--line", line)
        assert ran.code == OK
        return ran.out.splitlines()

    return look


@pytest.fixture
def shop(workspace: Path, pml: Pml) -> Path:
    servers = {"notes": {"command": "notes-server"}, "off": {"command": "x", "disabled": True}}
    (workspace / ".pml.json").write_text(json.dumps({"mcpServers": servers}))
    assert pml("trust", "--yes").code == OK
    return workspace


def test_commands_verbs_options_and_choices_are_offered(fits: Callable[[str], list[str]]) -> None:
    assert fits("pml app") == ["approvals"]
    assert fits("pml approvals a") == ["allow", "ask"]
    assert fits("pml approvals allow --rem") == ["--remember"]
    assert fits("pml approvals allow --remember ") == ["always", "session"]
    assert fits("pml launch --exit-code a") == ["agent", "answers"]
    assert fits("pml completion ") == ["bash", "fish", "zsh"]
    assert "trust" in fits("pml help tr")


@pytest.mark.usefixtures("shop")
def test_ids_tools_servers_and_sessions_are_offered(fits: Callable[[str], list[str]], pml: Pml) -> None:
    asked = pml.ask("x:y", session="nightly")
    assert fits("pml approvals allow ") == [asked[:8]]
    assert fits(f"pml approvals deny {asked[:3]}") == [asked[:8]]
    assert fits("pml approvals list --session ni") == ["nightly"]
    assert fits("pml servers status ") == ["notes"]
    assert fits("pml deps install mem") == ["memory"]
    assert "memory:read_graph" in fits("pml call memory:")
    assert fits("pml rules allow memory:read_g") == ["memory:read_graph"]
    described = pml("completion", "--described", "--line", "pml approvals allow ").out
    assert described == f"{asked[:8]}\tCall x:y\n"


@pytest.mark.parametrize("line", ["pml nonsense ", "pml call 'half", "pml call x:y ", "pml launch -- cl"])
def test_where_nothing_is_known_nothing_is_offered(fits: Callable[[str], list[str]], line: str) -> None:
    assert fits(line) == []


def test_a_look_makes_nothing_that_was_not_there(fits: Callable[[str], list[str]], pml_home: Path) -> None:
    assert fits("pml approvals allow ") == []
    assert not pml_home.exists()


def test_what_would_need_quoting_is_not_offered(fits: Callable[[str], list[str]], pml: Pml) -> None:
    pml.ask("x:y", session="$(touch evil)")
    pml.ask("x:y", session="plain")
    assert fits("pml approvals list --session ") == ["plain"]


def test_without_a_shell_it_says_how_to_use_it(pml: Pml) -> None:
    ran = pml("completion")
    assert (ran.code, "bash-completion" in ran.out) == (USAGE, True)


BASH = """
source /dev/stdin <<< "$(pml completion bash)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; _pml_complete; printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -Uz compinit; compinit -u -D
eval "$(pml completion zsh)"
compadd() { shift; print -rl -- "$@" }
_files() { print files }
words=(${(z)1}); [[ "$1" == *" " ]] && words+=(""); CURRENT=${#words}; _pml
"""
FISH = 'pml completion fish | source; complete -C "$argv[1]" | string replace -r "\\t.*" ""'
SHELLS = {
    "bash": ("bash", "-c", BASH, "bash"),
    "zsh": ("zsh", "-fc", ZSH, "zsh"),
    "fish": ("fish", "--no-config", "-c", FISH),
}


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_real_shell_offers_what_fits(shell: str, pml: Pml, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs `{shell}`, which is not installed")
    asked = pml.ask("x:y")
    program = tmp_path / "bin" / "pml"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pml "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def offered(line: str) -> list[str]:
        argv = [*SHELLS[shell], line]
        ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        return [word.strip() for word in ran.stdout.splitlines() if word.strip()]

    assert offered("pml approvals al") == ["allow"]
    assert offered("pml approvals allow ") == [asked[:8]]
    after_colon = "read_graph" if shell == "bash" else "memory:read_graph"  # bash completes after the colon
    assert offered("pml call memory:read_g") == [after_colon]
