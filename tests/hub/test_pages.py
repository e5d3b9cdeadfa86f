"""The page and its files: who may keep them and how long, what they may do, and that they are sound."""

import base64
import hashlib
import re
import subprocess
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Final

import pytest

from pml.core.sessions.token import TokenRole
from pml.hub.pages import ASSETS_HASH
from pml.install.package_managers import find_deno
from tests.hub.hubs import HubRig
from tests.promises import promise

ASSETS: Final = Path(str(resources.files("pml.hub").joinpath("assets")))
NAMES: Final = sorted(file.name for file in ASSETS.iterdir())
SCRIPTS: Final = [name for name in NAMES if name.endswith(".js")]
CONFIG: Final = Path(__file__).with_name("assets.deno.json")
DENO_S: Final = 100.0  # checking types takes some seconds, on a busy machine many
IMPORT: Final = re.compile(r"""(?:from |import\()"(.[^"\n]+)\"""")
MARKUP: Final = re.compile(  # every way from a text to markup or code that a script has
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
    r"|setHTMLUnsafe|\beval\(|new Function|javascript:"
)


class Shell(HTMLParser):
    """What a page loads, and what it holds itself that only an inline script or style would."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: dict[str, str | None] = {}
        self.inline: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get("src") or given.get("href")
        if address is not None:
            self.loads[address] = given.get("integrity")
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style") and data.strip():
            self.inline.append(data)


@promise("page:strict-policy")
async def test_the_page_may_run_and_load_nothing_but_its_own_files_and_never_stands_in_a_frame(
    rig: HubRig,
) -> None:
    got = await rig.send("GET", "/", None)
    assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in got.headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert got.headers["x-frame-options"] == "DENY"
    assert got.headers["cross-origin-opener-policy"] == "same-origin"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["cache-control"] == "no-store"
    assert "camera=()" in got.headers["permissions-policy"]


@promise("page:strict-policy")
async def test_the_page_holds_no_code_and_names_its_entry_and_its_styles_with_their_hashes(
    rig: HubRig,
) -> None:
    shell = Shell((await rig.send("GET", "/", None)).text)
    assert shell.inline == []
    assert "{{" not in str(shell.loads)
    for address, integrity in shell.loads.items():
        got = await rig.send("GET", address, None)
        assert got.status == 200
        if not address.endswith(".svg"):
            digest = hashlib.sha384(got.text.encode()).digest()
            assert integrity == f"sha384-{base64.b64encode(digest).decode()}"
    assert {address.rpartition(".")[2] for address in shell.loads} == {"css", "js", "svg"}


async def test_files_lie_under_the_hash_of_all_of_them_and_may_be_kept_for_ever(rig: HubRig) -> None:
    kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
    for name in NAMES:
        kind = kinds.get(name.rpartition(".")[2])
        got = await rig.send("GET", f"/assets/{ASSETS_HASH}/{name}", None)
        if kind is None:
            assert got.status == 404
            continue
        assert (got.status, got.headers["content-type"]) == (200, kind)
        assert got.text == (ASSETS / name).read_text()
        assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert got.headers["x-content-type-options"] == "nosniff"
    assert (await rig.send("HEAD", f"/assets/{ASSETS_HASH}/main.js", None)).status == 200


@promise("hub:token-required")
@pytest.mark.parametrize(
    "path",
    [
        *("/assets/", f"/assets/{ASSETS_HASH}", f"/assets/{ASSETS_HASH}/", f"/assets/{ASSETS_HASH}/no.js"),
        *(f"/assets/{'0' * 16}/main.js", "/assets//main.js", f"/assets/{ASSETS_HASH}/index.html"),
        *(f"/assets/{ASSETS_HASH}/../pages.py", f"/assets/{ASSETS_HASH}/..%2fpages.py"),
        *("/assets/../api/approvals", "/assets/%2e%2e/api/approvals", f"/assets/{ASSETS_HASH}/sub/main.js"),
    ],
)
async def test_what_is_no_file_of_this_page_is_not_there_and_is_not_kept(rig: HubRig, path: str) -> None:
    got = await rig.send("GET", path, None)
    assert got.status in (401, 404)
    assert set(got.json) == {"error"}
    assert got.headers["cache-control"] == "no-store"


async def test_files_can_only_be_read(rig: HubRig) -> None:
    path = f"/assets/{ASSETS_HASH}/main.js"
    assert (await rig.send("POST", path, None)).status == 401
    assert (await rig.send("POST", path, TokenRole.PERSON)).status == 405


def test_every_file_that_a_file_imports_is_there_and_every_script_is_reached() -> None:
    imports = {name: IMPORT.findall((ASSETS / name).read_text()) for name in SCRIPTS}
    assert {each for found in imports.values() for each in found} <= {f"./{name}" for name in SCRIPTS}
    reached = {"main.js"}
    while more := {each[2:] for name in reached for each in imports[name]} - reached:
        reached |= more
    assert reached == set(SCRIPTS)


@promise("page:text-stays-text")
@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_or_code_of_a_text(name: str) -> None:
    assert MARKUP.findall((ASSETS / name).read_text()) == []


@pytest.mark.parametrize(
    "words", [("check", "--no-lock"), ("lint",), ("fmt", "--check")], ids=["types", "lint", "format"]
)
def test_the_scripts_are_typed_and_tidy(words: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [find_deno(), *words, "--config", str(CONFIG), *SCRIPTS],
        cwd=ASSETS,
        capture_output=True,
        text=True,
        timeout=DENO_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
