"""Claude Code's command line: what PML puts on it, and what a person may add.

A person's options are an allow-list: with the permission tool, none may switch it off, and the client has
hidden ones. Nothing of an agent's ever stands on the command line but a model's and tools' names; its prompt
goes in by standard input, and never as one of the client's own commands (`/config …`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pml.core.errors import Invalid
from pml.core.rules.globs import Glob, has_wildcard
from pml.core.text import quote

PERMIT: Final = "mcp__plexus__loopback_permit"
# What `--tools` knows by name. A glob is turned into those of them that it matches.
BUILT_IN: Final = (
    *("Agent", "AskUserQuestion", "Bash", "BashOutput", "CronCreate", "CronDelete", "CronList", "Edit"),
    *("EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillShell"),
    *("ListAgents", "Monitor", "NotebookEdit", "PowerShell", "Read", "ReportFindings", "ScheduleWakeup"),
    *("SendMessage", "Skill", "Task", "TaskStop", "TodoWrite", "WebFetch", "WebSearch", "Workflow", "Write"),
)
_ALL_TOOLS: Final = "default"  # what `--tools` takes for all of them


class Takes(Enum):
    """How many words an option takes."""

    NOTHING = 0
    ONE = 1
    PERHAPS = 2
    MANY = 3


_NOTHING, _ONE, _PERHAPS, _MANY = Takes.NOTHING, Takes.ONE, Takes.PERHAPS, Takes.MANY
_SHORT: Final = {
    **{"-p": "--print", "-c": "--continue", "-r": "--resume", "-n": "--name", "-d": "--debug"},
    **{"--allowed-tools": "--allowedTools", "--disallowed-tools": "--disallowedTools"},
    **{"--background": "--bg"},
}
_HARMLESS: Final[Mapping[str, Takes]] = {
    **dict.fromkeys(("--print", "--verbose", "--continue", "--fork-session", "--brief"), _NOTHING),
    **dict.fromkeys(("--include-partial-messages", "--include-hook-events", "--no-chrome"), _NOTHING),
    **dict.fromkeys(("--forward-subagent-text", "--replay-user-messages", "--restricted"), _NOTHING),
    **dict.fromkeys(("--no-session-persistence", "--disable-slash-commands", "--ax-screen-reader"), _NOTHING),
    **dict.fromkeys(("--exclude-dynamic-system-prompt-sections",), _NOTHING),
    **dict.fromkeys(("--model", "--fallback-model", "--effort", "--name", "--session-id", "--agent"), _ONE),
    **dict.fromkeys(("--system-prompt", "--system-prompt-file", "--system-prompt-snapshot"), _ONE),
    **dict.fromkeys(("--append-system-prompt", "--append-system-prompt-file", "--autocompact"), _ONE),
    **dict.fromkeys(("--input-format", "--output-format", "--json-schema", "--debug-file"), _ONE),
    **dict.fromkeys(("--max-turns", "--max-budget-usd", "--max-thinking-tokens"), _ONE),
    **dict.fromkeys(("--resume", "--debug", "--prompt-suggestions"), _PERHAPS),
    **dict.fromkeys(("--add-dir", "--betas", "--disallowedTools", "--tools", "--file"), _MANY),
}
# These let a tool run unasked, or turn the hub's server or the hook off.
_LOOSENING: Final[Mapping[str, Takes]] = {
    **dict.fromkeys(("--dangerously-skip-permissions", "--allow-dangerously-skip-permissions"), _NOTHING),
    **dict.fromkeys(("--bare", "--safe-mode", "--ide", "--chrome", "--enable-auto-mode"), _NOTHING),
    **dict.fromkeys(("--permission-mode", "--permission-prompts", "--settings", "--setting-sources"), _ONE),
    **dict.fromkeys(("--agents", "--plugin-dir", "--plugin-url"), _ONE),
    **dict.fromkeys(("--allowedTools",), _MANY),
}
_OURS: Final = frozenset({"--mcp-config", "--strict-mcp-config", "--permission-prompt-tool"})
_ELSEWHERE: Final = frozenset(
    {"--bg", "--cloud", "--remote", "--environment", "--teleport", "--remote-control", "--rc", "--desktop"}
    | {"--tmux", "--worktree", "-w", "--from-pr"}
)
_ASKING_MODES: Final = frozenset({"default", "manual", "plan"})
_COMMANDS: Final = frozenset(
    {"agents", "attach", "auth", "auto-mode", "doctor", "gateway", "import", "install", "logs", "mcp"}
    | {"plugin", "plugins", "purge", "respawn", "rm", "setup-token", "stop", "kill", "ultrareview"}
    | {"update", "upgrade"}
)


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What a person typed after `claude`: options, each with its words, and the prompt, if any."""

    options: tuple[tuple[str, ...], ...]
    prompt: str | None

    @property
    def is_headless(self) -> bool:
        return self.has("--print")

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options as the client is given them, but for what PML sets itself."""
        own = ("--print", "--output-format", "--verbose")
        return tuple(word for option in self.options if option[0] not in own for word in _written(option))

    def has(self, option: str) -> bool:
        return any(words[0] == option for words in self.options)

    def value(self, option: str) -> str | None:
        """Return the last value that was given for an option."""
        return next((words[1] for words in reversed(self.options) if words[0] == option and words[1:]), None)


def read_typed(words: Sequence[str], *, loopback: bool) -> Typed:
    """Return what a person typed. Raises: Invalid for an option that PML does not let through."""
    options, operands = _split(words, known={**_HARMLESS, **_LOOSENING})
    if loopback:
        for option in options:
            _check_asking(option)
    if len(operands) > 1:
        raise Invalid(
            f"claude takes one prompt, and {quote(operands[1])} is another",
            hint="put the prompt in quotes",
        )
    prompt = operands[0] if operands else None
    if prompt in _COMMANDS:
        raise Invalid(f"{quote(prompt)} is a command of claude, not an agent", hint="run it without PML")
    return Typed(options=tuple(options), prompt=prompt)


def _split(words: Sequence[str], known: Mapping[str, Takes]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the options, each with its words, and what is none."""
    options: list[tuple[str, ...]] = []
    operands: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return options, [*operands, *rest]
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        given, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = _SHORT.get(given, given)
        takes = _known(name, given, known)
        options.append((name, value) if equals else (name, *_take(rest, takes, given)))
    return options, operands


def _known(name: str, given: str, known: Mapping[str, Takes]) -> Takes:
    if name in _OURS:
        raise Invalid(f"{quote(given)} is what `pml launch` sets itself", hint="leave it out")
    if name in _ELSEWHERE:
        raise Invalid(
            f"with {quote(given)} the agent would run where PML does not see it", hint="run it without PML"
        )
    if name not in known:
        raise Invalid(
            f"`pml launch` does not know the option {quote(given)} of claude",
            hint="it lets through only those it knows not to go round approvals; leave it out",
        )
    return known[name]


def _take(rest: list[str], takes: Takes, given: str) -> Iterator[str]:
    """Take the words of one option from `rest`, as the client would."""
    if takes is Takes.ONE:
        if not rest:
            raise Invalid(f"{quote(given)} needs a value")
        yield rest.pop(0)
    elif takes is Takes.PERHAPS and rest and not rest[0].startswith("-"):
        yield rest.pop(0)
    elif takes is Takes.MANY:
        while rest and not rest[0].startswith("-"):
            yield rest.pop(0)


def _check_asking(option: tuple[str, ...]) -> None:
    """Raise Invalid for an option that would let something run without asking."""
    name, *values = option
    if name not in _LOOSENING or (name == "--permission-mode" and values[0] in _ASKING_MODES):
        return
    shown = f"{name} {values[0]}" if name == "--permission-mode" else name
    raise Invalid(
        f"{quote(shown)} would go round the approvals that `--loopback` is there for",
        hint="leave it out, or launch without `--loopback`; "
        "`pml rules allow TOOL` lets a tool run without asking",
    )


def _written(option: tuple[str, ...]) -> Iterator[str]:
    """Yield an option so that no value of it can be read as another option."""
    name, *values = option
    yield from (f"{name}={value}" for value in values) if values else (name,)


def tools_options(tools: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return what limits the client's built-in tools to those among `tools`; MCP tools are the hub's."""
    if tools is None:
        return ()
    plain = [tool for tool in tools if ":" not in tool]
    named = [tool for tool in plain if tool.isidentifier() and tool != _ALL_TOOLS]
    globs = [Glob(tool) for tool in plain if has_wildcard(tool)]
    matched = (name for name in BUILT_IN if any(glob.matches(name) for glob in globs))
    return ("--tools", ",".join(dict.fromkeys([*named, *matched])))


def prompt_text(prompt: str) -> str:
    """Return an agent's prompt as text for the model: one that begins with `/` is the client's command."""
    return f"\n{prompt}" if prompt.startswith("/") else prompt
