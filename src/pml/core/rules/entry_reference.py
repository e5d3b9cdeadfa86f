"""References to entries of a list of permissions: by the entry itself, or by its id.

What an entry says of a call is `core.rules`' business.
"""

from collections.abc import Mapping

from pml.core.rules.ruleset import DEFAULT_ASK, Effect
from pml.core.values import Json, is_same


def is_named(entry: Json, wanted: Json) -> bool:
    """Whether `wanted` is the entry as it stands, or its id."""
    return is_same(entry, wanted) or _has_id(entry, wanted)


def is_to_switch(effect: Effect, entry: Json, wanted: Json, *, enabled: bool) -> bool:
    """Whether `wanted` is the entry, but for its switch, or its id, and it is not switched so already.

    The default ask `"*"` never is: it is not a rule, and as an object it would be another one.
    """
    is_meant = is_same(bare(entry), bare(wanted)) or _has_id(entry, wanted)
    is_default = effect is Effect.ASK and entry == DEFAULT_ASK
    is_on = not isinstance(entry, Mapping) or entry.get("enabled") is not False
    return is_meant and not is_default and is_on is not enabled


def bare(entry: Json) -> Json:
    """Return the entry without its switch, as it would be written then."""
    if not isinstance(entry, Mapping):
        return entry
    rest = {key: value for key, value in entry.items() if key != "enabled"}
    return rest["tool"] if rest.keys() == {"tool"} else rest


def _has_id(entry: Json, wanted: Json) -> bool:
    return isinstance(entry, Mapping) and isinstance(wanted, str) and entry.get("id") == wanted
