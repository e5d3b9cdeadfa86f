"""How much one question may hold."""

import pytest

from pml.core.approvals.bounds import MAX_INPUT_BYTES, MAX_INPUT_VALUES, refuse_large
from pml.core.errors import TooLargeToAsk
from pml.core.values import Json, JsonObject

EMPTY: list[Json] = []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"rows": [0] * (MAX_INPUT_VALUES - 1)},
        {"rows": [EMPTY] * (MAX_INPUT_VALUES - 1)},
        {f"k{number}": 0 for number in range(MAX_INPUT_VALUES)},
        {"text": "x" * (MAX_INPUT_BYTES - 11)},
    ],
)
def test_what_is_within_both_bounds_can_be_asked(arguments: JsonObject) -> None:
    refuse_large("a:b", arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"rows": [0] * MAX_INPUT_VALUES}, "more than 20,000 values"),
        ({"rows": [EMPTY] * MAX_INPUT_VALUES}, "more than 20,000 values"),
        ({f"k{number}": 0 for number in range(MAX_INPUT_VALUES + 1)}, "more than 20,000 values"),
        ({"rows": [{"a": [1, 2]}] * (MAX_INPUT_VALUES // 4)}, "more than 20,000 values"),
        ({"text": "x" * (MAX_INPUT_BYTES - 10)}, "at most 1,048,576"),
    ],
)
def test_what_is_beyond_one_of_them_is_refused_with_the_reason(arguments: JsonObject, reason: str) -> None:
    with pytest.raises(TooLargeToAsk, match=reason):
        refuse_large("a:b", arguments)
