"""What users rely on. At least one test, marked `@promise(id)`, keeps each; a meta-test checks that."""

from typing import Final

import pytest

PROMISES: Final[dict[str, str]] = {}


def promise(promise_id: str) -> pytest.MarkDecorator:
    """Mark a test as keeping the promise `promise_id`."""
    return pytest.mark.promise(promise_id)
