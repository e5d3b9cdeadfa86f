"""Workspaces as requests name them."""

import asyncio
import os

from pml.core.errors import Invalid, NotFound
from pml.core.text import quote
from pml.core.values import check
from pml.hub.api.api_request import ApiRequest


async def named_workspace(request: ApiRequest, given: str | None) -> str:
    """Return the real path of the workspace that a person names, or the hub's own.

    Raises: Invalid, NotFound if there is no such directory.
    """
    if given is None:
        return request.hub.workspace
    check(given, what="the workspace")
    if not os.path.isabs(given) or "\0" in given:
        raise Invalid(f"workspace {quote(given)} must be an absolute path")
    return await asyncio.to_thread(_real, given)


def _real(given: str) -> str:
    real = os.path.realpath(given)
    if not os.path.isdir(real):
        raise NotFound(f"there is no directory {quote(given)}")
    return real
