"""Facts of a server's process for whoever decides about it: what is started, with what, and from where.

They are stored with the question, so they are told of JSON, which an earlier version may have written.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessFacts:
    """A command that trusting a file would let PML start, and what it may do.

    Of the environment only the names, for values may be secrets, and `steering`: what decides which code.
    `variables` stand in the entry as `${NAME}`; `unset` are those without a value, `program` is what the
    command is with their values.
    """

    name: str
    command: str
    args: tuple[str, ...]
    cwd: str | None
    env_names: tuple[str, ...]
    steering: Mapping[str, str]
    permissions: JsonObject | None
    variables: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    program: str | None = None


def process_lines(told: Mapping[str, Json]) -> list[str]:
    """Return what would be started, one thing a line."""
    argv = [str(told.get("command")), *_texts(told.get("args"))]
    lines = [f"{visible(str(told.get('name')))}: {visible_json(argv, indent=None)}"]
    if names := _texts(told.get("env_names")):
        lines.append(f"  with {', '.join(visible(name) for name in names)} set")
    steering = told.get("steering")
    for name, value in steering.items() if isinstance(steering, Mapping) else ():
        lines.append(f"  {visible(name)} = {visible_json(value, indent=None)}")
    lines += _variable_lines(told)
    for key, word in (("cwd", "in"), ("permissions", "permitted")):
        if told.get(key) is not None:
            lines.append(f"  {word} {visible_json(told[key], indent=None)}")
    return lines


def _variable_lines(told: Mapping[str, Json]) -> list[str]:
    """Return which variables of PML's own environment it is given; never their values."""
    unset = _texts(told.get("unset"))
    given = [name for name in _texts(told.get("variables")) if name not in unset]
    lines = (
        [f"  takes {', '.join(map(visible, given))} from your environment or `pml secrets`"] if given else []
    )
    if unset:
        lines.append(f"  cannot be started until {', '.join(map(visible, unset))} is set")
    if told.get("program") is not None:
        lines.append(f"  the program is now {visible_json(told['program'], indent=None)}")
    return lines


def _texts(values: Json) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list | tuple) else []
