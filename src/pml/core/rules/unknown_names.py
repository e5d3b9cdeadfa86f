"""Names in rules that no known server has: a rule that protects nothing, or allows nothing, is a mistake.

Only what servers are known to offer is looked at; of a server that was never started nothing is said.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pml.core.rules.arguments import names_location
from pml.core.rules.globs import Glob, has_wildcard
from pml.core.rules.matchers import AnyArgument, Host, Under
from pml.core.rules.ruleset import Effect, Rule
from pml.core.text import quote
from pml.core.values import JsonObject

_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """What is odd about a rule. `is_void`: as it stands it can match nothing."""

    rule: Rule
    message: str
    hint: str | None
    is_void: bool


def doubts_about(
    rule: Rule, offers: Mapping[str, Sequence[JsonObject]], names: Collection[str]
) -> list[Doubt]:
    """Return what is odd about the rule; `offers` are the tools of known servers, `names` all servers'."""
    server, colon, action = rule.tool.partition(":")
    if not colon or has_wildcard(server) or "/" in action:
        return []
    if server not in offers:
        return [] if server in names else list(_unknown_server(rule, server, {*offers, *names}))
    tools = {str(tool.get("name")).rpartition(":")[2]: tool for tool in offers[server]}
    named = {name: tool for name, tool in tools.items() if Glob(action).matches(name)}
    if tools and not named:
        problem = f"server {quote(server)} has no tool {quote(action)}"
        return [Doubt(rule=rule, message=problem, hint=_near(action, tools), is_void=True)]
    return list(_arguments(rule, server, named))


def _unknown_server(rule: Rule, server: str, names: Collection[str]) -> Iterator[Doubt]:
    near = get_close_matches(server, sorted(names), n=1, cutoff=0.8)
    if near:
        problem = f"no server {quote(server)} is known"
        yield Doubt(rule=rule, message=problem, hint=f"did you mean `{near[0]}`?", is_void=True)


def _arguments(rule: Rule, server: str, named: Mapping[str, JsonObject]) -> Iterator[Doubt]:
    schemas = {name: _properties(tool) for name, tool in named.items()}
    known = {name: properties for name, properties in schemas.items() if properties is not None}
    if not known or len(known) < len(schemas):  # a tool of unknown arguments may have any
        return
    for matcher in rule.args:
        if isinstance(matcher, AnyArgument):
            continue
        argument = matcher.segments[0]
        without = [name for name, properties in known.items() if argument not in properties]
        if len(without) == len(known):
            every = {other for properties in known.values() for other in properties}
            problem = f"no tool that it names has an argument {quote(argument)}"
            yield Doubt(rule=rule, message=problem, hint=_near(argument, every), is_void=True)
        elif rule.effect is not Effect.ALLOW and isinstance(matcher.condition, Under | Host):
            missed = [name for name in without if any(map(names_location, known[name]))]
            if missed:
                shown = ", ".join(f"`{server}:{name}`" for name in missed[:_SHOWN])
                more = " and others" if len(missed) > _SHOWN else ""
                problem = f"{shown}{more} take paths or URLs, and have no argument {quote(argument)}"
                hint = "it does not match them: write `*` for any argument"
                yield Doubt(rule=rule, message=problem, hint=hint, is_void=False)


def _properties(tool: JsonObject) -> Collection[str] | None:
    """Return the names of the arguments that the tool takes, None if it does not say."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping):
        return None
    return list(properties) if isinstance(properties, Mapping) else []


def _near(word: str, known: Collection[str]) -> str | None:
    near = get_close_matches(word, sorted(known), n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    shown = sorted(known)[:_SHOWN]
    return (
        f"there are {', '.join(f'`{name}`' for name in shown)}{' …' if len(known) > _SHOWN else ''}"
        if shown
        else None
    )
