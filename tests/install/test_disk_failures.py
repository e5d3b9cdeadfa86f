"""A full disk is told as that, with the place and what to do, whichever program met it."""

import errno
from pathlib import Path

import pytest

from pml.core.errors import PmlError, Unavailable
from pml.install.disk_failures import unavailable
from pml.install.npm.installer import complaint
from pml.install.package_managers import Output
from pml.install.pypi.installer import failure

AT = Path("/disk/servers/.staging/one")
DENO = (
    "Download http://127.0.0.1/srv\nerror: Failed caching npm package 'srv@1.0.0'\n"
    "    0: Failed to write '/disk/x'\n    1: No space left on device (os error 28)"
)
UV = (
    "error: Failed to fetch: `http://127.0.0.1/simple/hello/`\n"
    "  Caused by: failed to write to file `/disk/x`: {} (os error 1)"
)


def said(errors: str) -> Output:
    return Output(code=1, stdout=b"", errors=errors)


@pytest.mark.parametrize(
    "error",
    [
        complaint(said(DENO), "srv@1.0.0", at=AT),
        failure(said(UV.format("No space left on device")), package="srv", task="install `srv`", at=AT),
        failure(
            said(UV.format("There is not enough space on the disk.")), package="s", task="install `s`", at=AT
        ),
    ],
)
def test_a_disk_that_is_full_is_not_told_as_a_network_that_fails(error: PmlError) -> None:
    assert isinstance(error, Unavailable)
    assert error.message.endswith(f": `{AT}`: the disk is full")
    assert error.hint == "free some space on that disk, then try again"


def test_a_quota_that_is_used_up_is_told_as_that() -> None:
    error = failure(said(UV.format("Disk quota exceeded")), package="s", task="install `s`", at=AT)
    assert error.hint == "free some of your quota on that disk, then try again"


def test_a_failing_network_is_still_told_as_that() -> None:
    error = failure(said(UV.format("timed out")), package="s", task="install `s`", at=AT)
    assert "proxy" in (error.hint or "")


@pytest.mark.parametrize(
    ("exc", "reason"),
    [
        (OSError(errno.EACCES, "Permission denied", "/x"), "`/x`: Permission denied"),
        (OSError("odd"), f"`{AT}`: odd"),
        (NotADirectoryError(), f"`{AT}`: NotADirectoryError"),
    ],
)
def test_a_failure_always_has_a_reason(exc: OSError, reason: str) -> None:
    assert unavailable("do it", exc, at=str(AT)).message == f"cannot do it: {reason}"
