"""`pml rules remove`, `disable` and `enable`: exactly the rule that is meant, in the list that is meant."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.rule_files import permissions, verdict, write
from tests.commands import Pml

# --- removing


def test_a_rule_is_removed_by_its_entry_or_its_id(pml: Pml, local: Path) -> None:
    pml("rules", "allow", "fs:*")
    pml("rules", "allow", "db:*", "--id", "mine")
    assert pml("rules", "remove", "fs:*", "--json").json == {"entry": "fs:*", "removed": 1}
    assert pml("rules", "remove", "mine").code == 0
    assert permissions(local) == {"allow": [], "deny": [], "ask": ["*"]}
    assert pml("trust", "--show", "--json").json["trusted"] is True


def test_removing_can_be_kept_to_one_list_and_one_file(pml: Pml, local: Path, user: Path) -> None:
    for effect in ("allow", "ask"):
        pml("rules", effect, "fs:*")
    pml("rules", "ask", "fs:*", "--user")
    pml("rules", "remove", "fs:*", "--effect", "ask")
    assert permissions(local) == {"allow": ["fs:*"], "deny": [], "ask": ["*"]}
    assert permissions(user) == {"ask": ["fs:*"]}
    pml("rules", "remove", "fs:*", "--user")
    assert permissions(user) == {"ask": []}


@pytest.mark.parametrize("verb", ["remove", "disable"])
def test_a_rule_of_several_lists_is_left_alone_until_the_list_is_named(
    pml: Pml, local: Path, user: Path, verb: str
) -> None:
    write(local, {"permissions": {"allow": ["fs:*"], "deny": ["fs:*", "fs:*"]}})
    write(user, {"permissions": {"ask": [{"tool": "db:*", "id": "fs:*"}], "deny": ["db:*"]}})
    before = local.read_text(), user.read_text()
    ran = pml("rules", verb, "fs:*")
    assert ran.code == 2
    places = f"deny at {local}:7, allow at {local}:4, ask at {user}:4"
    assert f"`fs:*` stands in several lists: {places}\n" in ran.err
    assert "`--effect deny`, `--effect allow` or `--effect ask --user`" in ran.err
    assert (local.read_text(), user.read_text()) == before
    assert pml("rules", verb, "fs:*", "--effect", "deny").code == 0
    assert pml("rules", verb, "fs:*", "--user").code == 0
    assert verdict(pml, "db:get") == "deny"
    assert pml("rules", verb, "fs:*").code == 0


def test_a_rule_of_both_files_is_left_alone_until_the_list_is_named(
    pml: Pml, local: Path, user: Path
) -> None:
    for path in (local, user):
        write(path, {"permissions": {"deny": ["fs:*"]}})
    ran = pml("rules", "remove", "fs:*")
    assert (ran.code, "`--effect deny` or `--effect deny --user`" in ran.err) == (2, True)
    assert permissions(local) == permissions(user) == {"deny": ["fs:*"]}
    assert pml("rules", "remove", "fs:*", "--effect", "deny").code == 0
    assert (permissions(local), permissions(user)) == ({"deny": []}, {"deny": ["fs:*"]})


def test_enabling_looks_only_at_what_is_disabled(pml: Pml, local: Path) -> None:
    write(local, {"permissions": {"allow": ["fs:*"], "deny": [{"tool": "fs:*", "enabled": False}]}})
    assert pml("rules", "enable", "fs:*").code == 0
    assert permissions(local) == {"allow": ["fs:*"], "deny": ["fs:*"]}


def test_a_broken_file_is_not_taken_for_one_without_the_rule(pml: Pml, local: Path) -> None:
    local.write_text('{"permissions": {"deny": ["fs:*"]')
    for verb in ("remove", "disable"):
        ran = pml("rules", verb, "fs:*")
        assert (ran.code, f"{local}:1:" in ran.err) == (1, True)


def test_removing_what_is_not_there_is_told(pml: Pml, local: Path) -> None:
    text = local.read_text()
    ran = pml("rules", "remove", "fs:*")
    assert ran.code == 5
    assert "no rule `fs:*`" in ran.err
    assert "`pml rules list` shows all there are" in ran.err
    assert local.read_text() == text


@pytest.mark.usefixtures("local")
def test_removing_what_is_not_there_names_the_commands_for_what_is(pml: Pml) -> None:
    entry = json.dumps({"tool": "fs:read", "args": {"path": {"is": "it's"}}})
    pml("rules", "allow", "fs:*")
    pml("rules", "deny", entry)
    for rule in ("fs:read", "fs:r*"):
        pml("rules", "ask", rule, "--user")
    pml("rules", "allow", json.dumps({"tool": "fs:read", "args": {"path": "\\"}}))
    hint = pml("rules", "remove", "fs:read", "--json").json["error"]["hint"]
    commands = hint.removeprefix("perhaps `").removesuffix("`").split("` or `")
    assert [shlex.split(command)[3:] for command in commands] == [
        [entry, "--effect", "deny"],
        ["fs:read", "--effect", "ask", "--user"],
        ["fs:*", "--effect", "allow"],
    ]
    for command in commands:
        assert pml(*shlex.split(command)[1:]).code == 0


# --- disable and enable


def test_a_rule_is_disabled_and_enabled_again(pml: Pml, local: Path) -> None:
    pml("rules", "deny", "fs:*")
    text = local.read_text()
    off = pml("rules", "disable", "fs:*")
    assert (off.code, off.out) == (0, "disabled fs:*\n")
    assert permissions(local)["deny"] == [{"tool": "fs:*", "enabled": False}]
    assert verdict(pml, "fs:read") == "unlisted"
    on = pml("rules", "enable", "fs:*", "--json")
    assert on.json == {"entry": "fs:*", "enabled": True, "switched": 1, "denied": []}
    assert (local.read_text(), verdict(pml, "fs:read")) == (text, "deny")


def test_enabling_a_deny_denies_what_waits(pml: Pml) -> None:
    pml("rules", "deny", "fs:*", "--user")
    pml("rules", "disable", "fs:*", "--user", "--effect", "deny")
    waiting = pml.ask("fs:read")
    ran = pml("rules", "enable", "fs:*", "--user")
    assert (ran.code, f"denied {waiting[:8]} fs:read, which waited" in ran.out) == (0, True)
    assert pml("rules", "enable", "fs:*", "--user").code == 5


def test_what_cannot_be_switched_is_told(pml: Pml, local: Path) -> None:
    text = local.read_text()
    for argv in (("disable", "fs:*"), ("enable", "fs:*"), ("disable", "*")):
        ran = pml("rules", *argv)
        assert (ran.code, "`pml rules list`" in ran.err) == (5, True)
    assert local.read_text() == text
