"""The page that people decide on: one shell and its files, read once, the same for everybody.

All files lie under the hash of all of them, so a browser may keep them for ever and never mixes two
versions. No page holds anything that a token would be needed for: what it shows it reads from the API.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from pml.hub.guard import ASSETS_PATH
from pml.web.error_responses import refusal

_SHELL: Final = "index.html"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_PLACE: Final = re.compile(
    r"\{\{(integrity:)?([a-z_.]+)\}\}"
)  # in the shell: the address of a file, or its hash
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_PAGE_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-frame-options": "DENY",
}
_KEEP: Final = "public, max-age=31536000, immutable"


def _read_assets() -> Mapping[str, bytes]:
    files = resources.files("pml.hub").joinpath("assets").iterdir()
    return {
        file.name: file.read_bytes() for file in files if file.name.rpartition(".")[2] in (*_TYPES, "html")
    }


def _hash(assets: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name in sorted(assets):
        digest.update(f"{name}\0{len(assets[name])}\0".encode() + assets[name])
    return digest.hexdigest()[:16]


def _fill(shell: str, assets: Mapping[str, bytes], version: str) -> bytes:
    def filled(found: re.Match[str]) -> str:
        if found[1] is None:
            return f"{ASSETS_PATH}{version}/{found[2]}"
        digest = hashlib.sha384(assets[found[2]]).digest()
        return f"sha384-{base64.b64encode(digest).decode()}"

    return _PLACE.sub(filled, shell).encode()


_ASSETS: Final = _read_assets()
ASSETS_HASH: Final = _hash(_ASSETS)
_PAGE: Final = _fill(_ASSETS[_SHELL].decode(), _ASSETS, ASSETS_HASH)


async def show_page(request: Request) -> Response:
    """Answer with the shell, which is never kept: it names the files of this version."""
    return Response(_PAGE, headers=_PAGE_HEADERS, media_type="text/html")


async def show_asset(request: Request) -> Response:
    """Answer with a file of the page, by its whole path."""
    version, _, name = request.scope["path"].removeprefix(ASSETS_PATH).partition("/")
    kind = _TYPES.get(name.rpartition(".")[2])
    if version != ASSETS_HASH or kind is None or name not in _ASSETS:
        return refusal(404, "there is no such file of the page", hint="reload the page")
    return Response(_ASSETS[name], headers={"content-type": kind, "cache-control": _KEEP})
