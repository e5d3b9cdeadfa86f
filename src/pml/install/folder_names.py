"""Names of servers as names of folders: none that leads elsewhere, and no two that are one on some system."""

import re
from collections.abc import Iterable
from typing import Final

from pml.core.errors import Invalid
from pml.core.text import quote

RULE: Final = "is not a name for a server: 1 to 64 of `A-Z a-z 0-9 _ -`"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DEVICE: Final = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)


def is_name(name: str) -> bool:
    """Tell whether `name` can be that of a folder and of a namespace."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Refuse a name that could not be that of a folder and of a namespace. Raises: Invalid."""
    if not is_name(name):
        raise Invalid(f"{quote(name)} {RULE}")


def check_new(name: str, installed: Iterable[str]) -> None:
    """Refuse a name that some system cannot have as a folder beside those of `installed`. Raises: Invalid."""
    check_name(name)
    if _DEVICE.fullmatch(name):
        raise Invalid(f"{quote(name)} is not a name for a server: on Windows it is a device, and no folder")
    for other in installed:
        if other != name and other.lower() == name.lower():
            raise Invalid(
                f"{quote(name)} differs only in case from {quote(other)}, which is installed: "
                "on some systems they are one folder",
                hint=f"`pml deps remove {other}` removes that one",
            )
