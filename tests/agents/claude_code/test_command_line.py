"""What a person may put on Claude Code's command line, and how it is written there."""

import pytest

from pml.agents.claude_code.command_line import prompt_text, read_typed, tools_options
from pml.core.errors import Invalid
from tests.promises import promise


def test_a_prompt_and_options_are_told_apart_as_the_client_does() -> None:
    typed = read_typed(
        ["-p", "--add-dir", "a", "b", "--model", "opus", "--resume", "say hi", "-d", "--", "-v"],
        loopback=True,
    )
    assert typed.is_headless
    assert typed.prompt == "-v"
    assert typed.value("--resume") == "say hi"
    assert typed.arguments == (
        *("--add-dir=a", "--add-dir=b"),
        *("--model=opus", "--resume=say hi", "--debug"),
    )


def test_what_pml_sets_itself_is_read_and_not_passed_on() -> None:
    typed = read_typed(["--print", "--output-format=json", "--verbose", "hi"], loopback=True)
    assert (typed.value("--output-format"), typed.arguments, typed.prompt) == ("json", (), "hi")


def test_without_arguments_it_is_a_screen_without_a_prompt() -> None:
    typed = read_typed([], loopback=True)
    assert (typed.is_headless, typed.prompt, typed.arguments) == (False, None, ())


LOOSENING = [
    ["--dangerously-skip-permissions"],
    ["--allow-dangerously-skip-permissions"],
    ["--permission-mode", "bypassPermissions"],
    ["--permission-mode=acceptEdits"],
    ["--permission-mode", "auto"],
    ["--permission-mode", "dontAsk"],
    ["--permission-prompts", "none"],
    ["--settings", "{}"],
    ["--settings={}"],
    ["--setting-sources", "user"],
    ["--allowedTools", "Bash"],
    ["--allowed-tools", "Bash"],
    ["--agents", "{}"],
    ["--plugin-dir", "x"],
    ["--bare"],
    ["--safe-mode"],
]


@promise("launch:settings-do-not-bypass")
@pytest.mark.parametrize("words", LOOSENING, ids=" ".join)
def test_an_option_that_goes_round_approvals_is_refused_and_only_with_them(words: list[str]) -> None:
    with pytest.raises(Invalid, match="would go round the approvals") as refused:
        read_typed(["-p", *words, "hi"], loopback=True)
    assert refused.value.hint
    read_typed(["-p", *words], loopback=False)


@promise("launch:settings-do-not-bypass")
@pytest.mark.parametrize("loopback", [True, False])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--mcp-config", "x"], "sets itself"),
        (["--strict-mcp-config"], "sets itself"),
        (["--permission-prompt-tool", "x"], "sets itself"),
        (["--bg"], "does not see it"),
        (["--background"], "does not see it"),
        (["--cloud"], "does not see it"),
        (["--managed-settings", "{}"], "does not know"),
        (["--inherit-permission-mode=auto"], "does not know"),
        (["--sdk-url", "http://x"], "does not know"),
        (["-pc"], "does not know"),
        (["--model"], "needs a value"),
        (["one", "two"], "one prompt"),
        (["mcp", "list"], "one prompt"),
        (["update"], "a command of claude"),
    ],
    ids=str,
)
def test_what_is_not_known_or_not_the_persons_is_refused(
    words: list[str], why: str, *, loopback: bool
) -> None:
    with pytest.raises(Invalid, match=why):
        read_typed(words, loopback=loopback)


@promise("launch:settings-do-not-bypass")
@pytest.mark.parametrize("option", ["--debug", "--resume", "--add-dir", "--model", "--name"])
def test_a_value_cannot_become_an_option(option: str) -> None:
    typed = read_typed([f"{option}=--dangerously-skip-permissions"], loopback=True)
    assert typed.arguments == (f"{option}=--dangerously-skip-permissions",)


@pytest.mark.parametrize("mode", ["default", "manual", "plan"])
def test_a_mode_that_asks_is_passed_on(mode: str) -> None:
    assert read_typed(["--permission-mode", mode], loopback=True).arguments == (f"--permission-mode={mode}",)


def test_tools_are_the_built_in_ones_among_those_ordered() -> None:
    assert tools_options(None) == ()
    assert tools_options(()) == ("--tools", "")
    assert tools_options(("github:*", "pml:call")) == ("--tools", "")
    assert tools_options(("Bash", "Web*", "Bash")) == ("--tools", "Bash,WebFetch,WebSearch")
    assert "Bash" in tools_options(("*",))[1].split(",")


@promise("launch:no-raw-arguments")
@pytest.mark.parametrize("tool", ["default", "--dangerously-skip-permissions", "Bash Read", "Bash,Read", ""])
def test_what_is_no_tools_name_is_not_passed_on(tool: str) -> None:
    assert tools_options((tool,)) == ("--tools", "")


@promise("launch:no-raw-arguments")
def test_a_prompt_that_looks_like_a_command_of_the_client_is_text() -> None:
    assert prompt_text("/config x") == "\n/config x"
    assert prompt_text("fix it / or not") == "fix it / or not"
