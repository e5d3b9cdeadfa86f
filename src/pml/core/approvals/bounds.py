"""The bounds of what waits for people: how much one question may hold, and how many of a session may wait.

A flood would wear people out, and slow the inbox down for everybody. A call that a rule or a grant allows is
not a question, and may be larger.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pml.core.approvals.record import Approval
from pml.core.errors import TooLargeToAsk, TooManyPending
from pml.core.values import Json, JsonObject

MAX_PENDING: Final = 20  # questions of one session that wait at once
MAX_INPUT_BYTES: Final = 1024 * 1024  # of one question's arguments; a person reads far less
MAX_INPUT_VALUES: Final = 20_000  # in one question's arguments; each is built anew whenever it is looked at
MAX_PENDING_BYTES: Final = 4 * MAX_INPUT_BYTES  # of all that wait of one session


def input_bytes(arguments: JsonObject) -> int:
    """Return how large arguments are as they are stored."""
    return len(msgspec.json.encode(arguments))


def refuse_large(tool: str, arguments: JsonObject) -> None:
    """Raises: TooLargeToAsk if nobody can be asked about so much."""
    if _has_more_values(arguments, MAX_INPUT_VALUES):
        raise TooLargeToAsk(
            f"no one is asked about {tool}: its arguments hold more than {MAX_INPUT_VALUES:,} values",
            hint="give less at once, or have a rule allow the call",
        )
    size = input_bytes(arguments)
    if size > MAX_INPUT_BYTES:
        raise TooLargeToAsk(
            f"no one is asked about {tool}: its arguments are {size:,} bytes, "
            f"and a question has at most {MAX_INPUT_BYTES:,}",
            hint="give less at once, or have a rule allow the call",
        )


def _has_more_values(arguments: JsonObject, limit: int) -> bool:
    todo: list[Mapping[str, Json] | Sequence[Json]] = [arguments]
    count = 0
    while todo:
        item = todo.pop()
        count += len(item)
        if count > limit:
            return True
        inner = item.values() if isinstance(item, Mapping) else item
        todo += [value for value in inner if isinstance(value, Mapping | list | tuple)]
    return False


def refuse_more(new: Approval, count: int, size: int, *, max_pending: int, max_bytes: int) -> None:
    """Raises: TooManyPending if `count` questions with `size` bytes leave no room for a new one."""
    if count < max_pending and size + input_bytes(new.tool_input) <= max_bytes:
        return
    many = f"{count} questions waiting"
    much = many if count >= max_pending else f"{many}, with {size:,} bytes of arguments"
    raise TooManyPending(
        f"session `{new.session_id}` already has {much}",
        hint="decide some of them first: `pml approvals list`",
    )
