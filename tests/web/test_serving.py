"""Listening, and the table of statuses."""

import pytest

from pml.core.errors import ErrorCode, Unavailable
from pml.web.error_responses import HTTP_STATUS
from pml.web.http_server import listen


@pytest.mark.parametrize("host", ["a..b", "no.such.host.invalid", "x" * 300])
def test_a_host_that_cannot_be_listened_on_is_told(host: str) -> None:
    with pytest.raises(Unavailable, match="cannot listen on"):
        listen(host, 0)


def test_a_port_that_is_taken_is_told() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(Unavailable, match="cannot listen") as caught:
        listen("127.0.0.1", taken.getsockname()[1])
    assert caught.value.hint is not None


def test_every_kind_of_error_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(ErrorCode)
