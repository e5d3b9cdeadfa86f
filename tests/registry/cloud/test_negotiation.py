"""Which form a request wants."""

import pytest

from pml.registry.cloud.registry_server import has_already, negotiate
from pml.registry.entry_forms import Form

BOTH = [Form.METADATA, Form.TYPESCRIPT]


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.METADATA),
        ("", Form.METADATA),
        ("*/*", Form.METADATA),
        ("application/json", Form.METADATA),
        ("application/typescript", Form.TYPESCRIPT),
        ("Application/TypeScript; charset=utf-8", Form.TYPESCRIPT),
        ("application/*", Form.METADATA),
        ("application/json;q=0.5, application/typescript", Form.TYPESCRIPT),
        ("application/json;q=0, */*", Form.TYPESCRIPT),
        ("application/typescript;q=0.1, */*;q=0.5", Form.METADATA),
        ("text/html,application/xhtml+xml,*/*;q=0.8", Form.METADATA),
        ("text/html", None),
        ("text/x-python", None),
        ("*/*;q=0", None),
        ("application/json;q=nonsense", None),
        (";;,,;q=", None),
    ],
)
def test_the_most_wanted_form_is_chosen(accept: str | None, form: Form | None) -> None:
    assert negotiate(accept, BOTH) is form


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (None, False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ("*", True),
        ('"b"', False),
        ("a", False),
    ],
)
def test_an_etag_that_is_named_is_known(header: str | None, known: bool) -> None:
    assert has_already(header, '"a"') is known
