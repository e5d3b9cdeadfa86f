"""Facts of trust in a workspace's file, as people read them: what it would allow, start and set.

They are told of the input that `service.approvals.trust.trust_facts` stores with the question.
"""

from collections.abc import Mapping
from typing import Final

from pml.core.approvals.fact import Fact
from pml.core.config.file import Unlisted
from pml.core.rules.arguments import is_list
from pml.core.servers.process_facts import process_lines
from pml.core.servers.remote_facts import remote_lines
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject

_UNLISTED: Final = "tools without a rule: PML asks"
_LEFT_TO_CLIENT: Final = "tools without a rule: the client asks, PML does not"
_NOTHING: Final = "nothing"


def tell_trust(asked: JsonObject) -> list[Fact]:
    """Return what trusting the file means; that it starts something must not be overlooked."""
    starts = launch_lines(asked.get("launches"))
    facts = [
        Fact(name="file", value=visible(str(asked.get("path")))),
        Fact(name="content", value=visible(str(asked.get("digest")))),
        Fact(name="allows", value="\n".join(_texts(asked.get("allows"))) or _NOTHING),
        Fact(name="starts", value="\n".join(starts) or _NOTHING, alarming=bool(starts)),
    ]
    if unusable := _texts(asked.get("unusable")):
        facts.append(Fact(name="not started", value="\n".join(map(visible, unusable))))
    if drops := _texts(asked.get("drops")):
        facts.append(Fact(name="ends", value="\n".join(drops)))
    if asked.get("launches"):
        facts.append(Fact(name="unlisted", value=unlisted_note(asked)))
    if asked.get("settings"):
        facts.append(Fact(name="sets", value=visible_json(asked["settings"])))
    return facts


def trust_counts(asked: JsonObject) -> str:
    """Return how many rules and commands the file has."""

    def count_of(key: str, noun: str) -> str:
        given = asked.get(key)
        number = len(given) if is_list(given) else 0
        return f"{number:,} {noun}{'' if number == 1 else 's'}"

    return f"{count_of('allows', 'rule')} to allow, {count_of('launches', 'command')} to start"


def trust_summary(asked: JsonObject) -> str:
    """Return in one line what a file would start and allow."""
    launches = asked.get("launches")
    each = launches if isinstance(launches, list | tuple) else ()
    names = [visible(str(launch.get("name"))) for launch in each if isinstance(launch, Mapping)]
    allows = [allowed.removeprefix('"').removesuffix('"') for allowed in _texts(asked.get("allows"))]
    return f"It starts {', '.join(names) or 'nothing'}; allows {', '.join(allows) or 'nothing'}"


def unlisted_note(asked: JsonObject) -> str:
    """Return who asks about tools without a rule; as `service.approvals.trust` tells the setting."""
    return _UNLISTED if asked.get("unlisted") == Unlisted.EVERY_CALL else _LEFT_TO_CLIENT


def launch_lines(launches: Json) -> list[str]:
    """Return what a file would start, one thing a line; as `service.approvals.trust.trust_facts` tells it."""
    each = launches if isinstance(launches, list | tuple) else ()
    return [line for launch in each if isinstance(launch, Mapping) for line in _lines(launch)]


def _lines(launch: Mapping[str, Json]) -> list[str]:
    return remote_lines(launch) if "url" in launch else process_lines(launch)


def why_trust(asked: JsonObject) -> str:
    """Return what does not apply before the file is trusted."""
    starts = "its servers are not started" if asked.get("launches") else None
    allows = "what it allows does not apply" if asked.get("allows") else None
    told = [each for each in (starts, allows) if each] or ["what it changes does not apply"]
    return f"until you trust this file, {' and '.join(told)}"


def _texts(values: Json) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list | tuple) else []
