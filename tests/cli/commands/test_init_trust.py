"""`pml init` and `pml trust`: PML's own file is trusted, anybody else's only by a person who has seen it."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import TIMEOUT_S, Pml, run_process
from tests.promises import promise

DEFAULT = """{
  "version": "0.1.0",
  "permissions": {
    "allow": [],
    "deny": [],
    "ask": [
      "*"
    ]
  }
}
"""
CONFIRMS = {"model_may_approve": "if_no_form"}
LOOSE = {
    "permissions": {"allow": ["fs:*"], "deny": ["Bash"]},
    "mcpServers": {
        "github": {
            "command": "npx",
            "args": ["-y", "gh\u202eserver"],
            "env": {"GITHUB_TOKEN": "hunter2", "PATH": "./bin"},
            "cwd": "tools",
            "permissions": {"net": True},
        }
    },
    "idle_s": 5,
}


def write(workspace: Path, content: Any) -> Path:
    path = workspace / ".pml.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def is_trusted(pml: Pml) -> bool:
    return pml("trust", "--show", "--json").json["trusted"]


# --- init


def test_init_writes_the_default_file_and_trusts_it(pml: Pml, workspace: Path) -> None:
    ran = pml("init", "--json")
    path = workspace / ".pml.json"
    assert (ran.code, ran.json) == (0, {**CONFIRMS, "path": str(path), "created": True, "trusted": True})
    assert path.read_text() == DEFAULT
    assert is_trusted(pml)


def test_init_tells_the_next_steps(pml: Pml) -> None:
    ran = pml("init")
    assert ran.code == 0
    assert "created" in ran.out
    assert "mcpServers" in ran.out
    assert "pml rules allow" in ran.out
    assert "pml approvals list" in ran.out


@pytest.mark.parametrize("content", [DEFAULT, "{}", json.dumps(LOOSE), '{"unknown": [1,2]}'])
def test_init_leaves_an_existing_file_and_the_trust_in_it_as_they_are(
    pml: Pml, workspace: Path, content: str
) -> None:
    path = write(workspace, content)
    assert pml("init", "--json").json == {
        **CONFIRMS,
        "path": str(path),
        "created": False,
        "trusted": False,
    }
    assert "exists already" in pml("init").out
    assert path.read_text() == content


@promise("config:never-overwritten-unparsed")
def test_init_leaves_a_broken_file_as_it_is_and_says_where_it_is_broken(pml: Pml, workspace: Path) -> None:
    path = write(workspace, '{\n  "version": oops\n}')
    ran = pml("init")
    assert ran.code == 1
    assert f"{path}:2:14" in ran.err
    assert path.read_text() == '{\n  "version": oops\n}'


def test_init_works_in_the_workspace_that_is_named(pml: Pml, tmp_path: Path, workspace: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert pml("init", "--workspace", str(other)).code == 0
    assert (other / ".pml.json").exists()
    assert not (workspace / ".pml.json").exists()


def test_a_workspace_that_does_not_exist_is_told(pml: Pml) -> None:
    ran = pml("init", "--workspace", "nowhere")
    assert ran.code == 1
    assert "`nowhere`" in ran.err


# --- trust: what is shown


def test_trust_shows_all_that_the_file_would_allow_start_and_change(pml: Pml, workspace: Path) -> None:
    path = write(workspace, LOOSE)
    ran = pml("trust", "--show", "--json")
    assert ran.code == 0
    digest = ran.json["digest"]
    assert ran.json == {
        "path": str(path),
        "digest": digest,
        "allows": ['"fs:*"'],
        "launches": [
            {
                "name": "github",
                "command": "npx",
                "args": ["-y", "gh\u202eserver"],
                "cwd": str(workspace / "tools"),
                "env_names": ["GITHUB_TOKEN", "PATH"],
                "steering": {"PATH": "./bin"},
                "permissions": {"net": True},
                "variables": [],
                "unset": [],
                "program": None,
            }
        ],
        "settings": {"idle_s": 5},
        "drops": [],
        "unusable": [],
        "unlisted": "every_call",
        "trusted": False,
        "needed": True,
        "kept": None,
    }


@promise("show:nothing-hidden")
def test_what_is_shown_hides_no_character_and_tells_no_secret(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    shown = pml("trust", "--show").out
    for part in (
        '"fs:*"',
        '["npx", "-y", "gh\\u202eserver"]',
        "GITHUB_TOKEN",
        str(workspace / "tools"),
        'PATH = "./bin"',
        '{"net": true}',
        "idle_s",
    ):
        assert part in shown
    assert "\u202e" not in shown
    assert "hunter2" not in shown


def test_only_to_show_trusts_nothing(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    assert pml("trust", "--show").code == 0
    assert not is_trusted(pml)


# --- trust: deciding


@promise("trust:exact-content")
def test_trust_holds_for_exactly_the_content_that_was_there(pml: Pml, workspace: Path) -> None:
    path = write(workspace, LOOSE)
    assert pml("trust", "--yes").code == 0
    assert is_trusted(pml)
    assert pml("rules", "explain", "fs:read", "--json").json["verdict"] == "allow"
    path.write_text(path.read_text() + " ")
    assert not is_trusted(pml)
    assert pml("rules", "explain", "fs:read", "--json").json["verdict"] == "unlisted"


def test_without_a_terminal_and_without_yes_nothing_is_trusted(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    digest = pml("trust", "--show", "--json").json["digest"]
    for ran in (pml("trust"), pml("trust", "--json")):
        assert ran.code == 4
        assert f"pml trust --yes --digest {digest}" in ran.err
    assert not is_trusted(pml)


def test_a_file_that_changed_since_it_was_shown_is_not_trusted(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    digest = pml("trust", "--show", "--json").json["digest"]
    write(workspace, {"permissions": {"allow": ["*"]}})
    ran = pml("trust", "--yes", "--digest", digest)
    assert ran.code == 1
    assert "has changed since it was shown" in ran.err
    assert not is_trusted(pml)


@promise("trust:exact-content")
@pytest.mark.parametrize("prefix", ["", "sha256:"])
def test_the_digest_that_was_shown_is_taken_with_and_without_its_prefix(
    pml: Pml, workspace: Path, prefix: str
) -> None:
    write(workspace, LOOSE)
    digits = pml("trust", "--show", "--json").json["digest"].removeprefix("sha256:")
    other = digits[1:] + digits[0]
    assert pml("trust", "--yes", "--digest", prefix + other).code == 1
    assert not is_trusted(pml)
    assert pml("trust", "--yes", "--digest", prefix + digits).code == 0
    assert is_trusted(pml)


@pytest.mark.parametrize("digest", ["", "abc", "sha256:", "g" * 64, "sha512:" + "a" * 64, "a" * 65])
def test_what_is_no_digest_is_refused(pml: Pml, workspace: Path, digest: str) -> None:
    write(workspace, LOOSE)
    ran = pml("trust", "--yes", "--digest", digest)
    assert (ran.code, "is not a digest" in ran.err) == (2, True)
    assert not is_trusted(pml)


def test_a_file_that_only_tightens_needs_no_trust(pml: Pml, workspace: Path) -> None:
    write(workspace, {"permissions": {"deny": ["Bash"], "ask": ["fs:*"]}})
    ran = pml("trust")
    assert (ran.code, "needs no trust" in ran.out) == (0, True)
    assert pml("trust", "--json").json["needed"] is False


def test_trust_of_a_broken_file_says_where_it_is_broken(pml: Pml, workspace: Path) -> None:
    path = write(workspace, '{"permissions": {"allow": "fs:*"}}')
    ran = pml("trust", "--yes")
    assert ran.code == 1
    assert f"{path}:1:27" in ran.err
    assert "fix it there; `pml doctor` checks both files" in ran.err


def test_trust_of_a_missing_file_says_how_to_create_it(pml: Pml) -> None:
    ran = pml("trust")
    assert ran.code == 5
    assert "pml init" in ran.err


def test_trust_can_be_taken_back(pml: Pml, workspace: Path) -> None:
    path = write(workspace, LOOSE)
    pml("trust", "--yes")
    taken = {"path": str(path), "trusted": False, "forgotten": 1, "kept": False}
    assert pml("trust", "--remove", "--json").json == taken
    assert not is_trusted(pml)
    assert "was not trusted" in pml("trust", "--remove").out


def test_trusting_answers_those_who_wait_for_it(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    asked = pml.ask("fs:read")
    shown = pml("approvals", "show", asked, "--json").json
    assert (shown["subject"], shown["status"]) == ("workspace_trust", "pending")
    assert "answered 1 question that waited" in pml("trust", "--yes").out
    assert pml.status(asked) == "allowed"


def test_trusting_does_not_answer_a_question_about_another_content(pml: Pml, workspace: Path) -> None:
    write(workspace, {"permissions": {"allow": ["fs:*", "web:*"]}})
    asked = pml.ask("fs:read")
    write(workspace, LOOSE)
    pml("trust", "--yes")
    assert pml.status(asked) == "pending"


# --- trust: on a terminal


def answer_on_terminal(answer: bytes, *, command: str = "trust", prompt: bytes = b"[y/N]") -> tuple[int, str]:
    """Run a command on a terminal of its own, type `answer` once it asks, and return code and screen."""
    mine, theirs = pty.openpty()
    command_line = [sys.executable, "-m", "pml", command]
    with subprocess.Popen(
        command_line, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        screen = b""
        try:
            while prompt not in screen:
                screen += os.read(mine, 4096)
            os.write(mine, answer)
            code = process.wait(timeout=TIMEOUT_S)
            with contextlib.suppress(OSError):  # the other side is closed
                while more := os.read(mine, 4096):
                    screen += more
        finally:
            process.kill()
            os.close(mine)
    return code, screen.decode()


def test_a_person_at_a_terminal_is_asked_after_seeing_it(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    code, screen = answer_on_terminal(b"y\n")
    assert code == 0
    assert screen.index("fs:*") < screen.index("Trust this file as it is now? [y/N]")
    assert is_trusted(pml)


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"yep\n", b"\x04"])
def test_every_answer_but_yes_is_no(pml: Pml, workspace: Path, answer: bytes) -> None:
    write(workspace, LOOSE)
    code, screen = answer_on_terminal(answer)
    assert (code, "not trusted; nothing was changed" in screen) == (3, True)
    assert not is_trusted(pml)


@promise("trust:declined-stays-declined")
@pytest.mark.parametrize(("answer", "is_asked"), [(b"n\n", False), (b"\n", False), (b"\x04", True)])
def test_a_no_at_the_terminal_is_remembered_until_the_content_changes(
    pml: Pml, workspace: Path, answer: bytes, is_asked: bool
) -> None:
    write(workspace, {"permissions": {"allow": ["other:*"]}})
    answer_on_terminal(answer)
    assert ("trust this workspace" in pml("call", "time:now").err) is is_asked

    write(workspace, {"permissions": {"allow": ["others:*"]}})
    assert "trust this workspace" in pml("call", "time:now").err


@promise("trust:declined-stays-declined")
def test_a_no_at_the_terminal_denies_the_question_that_waits(pml: Pml, workspace: Path) -> None:
    write(workspace, {"permissions": {"allow": ["other:*"]}})
    assert "trust this workspace" in pml("call", "time:now").err

    _, screen = answer_on_terminal(b"n\n")
    assert "denied 1 question that waited for it" in screen
    assert pml("approvals", "list", "--json").json["approvals"] == []
    assert answer_on_terminal(b"y\n")[0] == 0  # who asks for it is asked again


# --- an agent


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
def test_beneath_an_agent_trust_is_refused_and_nothing_changes(pml: Pml, workspace: Path) -> None:
    write(workspace, LOOSE)
    for argv in (("trust", "--yes"), ("trust", "--remove"), ("trust",)):
        ran = run_process(*argv)
        assert ran.code == 1
        assert "agent session `the-agent`" in ran.err
        assert "cannot decide for itself" in ran.err
    assert not is_trusted(pml)


@promise("consent:model-plain-only")
@pytest.mark.parametrize(
    ("answer", "chosen"),
    [(b"\n", "never"), (b"p\n", "never"), (b"m\n", "if_no_form"), (b"x\nM\n", "if_no_form")],
)
def test_init_at_a_terminal_asks_who_confirms_and_recommends_people(
    pml: Pml, pml_home: Path, answer: bytes, chosen: str
) -> None:
    code, screen = answer_on_terminal(answer, command="init", prompt=b"p or m [p]:")

    assert code == 0
    assert "people, in the inbox or with `pml approvals` (recommended)" in screen
    assert json.loads((pml_home / "config.json").read_text())["approval"] == {"model_may_approve": chosen}
    assert pml("init").code == 0  # and it is not asked again, nor changed
    assert json.loads((pml_home / "config.json").read_text())["approval"] == {"model_may_approve": chosen}


@promise("consent:model-plain-only")
def test_init_without_a_terminal_leaves_the_users_file_alone_unless_told(pml: Pml, pml_home: Path) -> None:
    assert pml("init", "--json").json["model_may_approve"] == "if_no_form"
    assert not (pml_home / "config.json").exists()

    assert pml("init", "--model-may-approve", "never", "--json").json["model_may_approve"] == "never"
    assert json.loads((pml_home / "config.json").read_text())["approval"] == {"model_may_approve": "never"}
