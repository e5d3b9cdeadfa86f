"""Servers of the MCP SDK behind PML: both transports, with a session and without."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pml.core.rules.ruleset import Source
from pml.core.servers.remote_target import RemoteKind, RemoteTarget
from pml.core.servers.spec import ServerSpec
from pml.core.values import JsonObject
from tests.upstream.fleets import SOON_S, Harbour, use

SERVER = Path(__file__).parent / "sdk_server.py"
PATHS = {"streamable-http": "mcp", "json": "mcp", "sse": "sse"}


@asynccontextmanager
async def running(how: str) -> AsyncGenerator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), str(port), how, stdout=quiet, stderr=quiet
    )
    try:
        async with asyncio.timeout(SOON_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except ConnectionError:
                    assert process.returncode is None, "it did not start"
                    await asyncio.sleep(0.05)
        writer.close()
        yield f"http://127.0.0.1:{port}/{PATHS[how]}"
    finally:
        process.kill()
        await process.wait()


def spec_of(url: str) -> ServerSpec:
    target = RemoteTarget(url=url, kind=RemoteKind.AUTO)
    return ServerSpec(name="shop", target=target, source=Source(file="/repo/.pml.json", line=1))


@pytest.mark.parametrize("how", PATHS)
async def test_tools_run_ask_and_tell_how_far_they_are(harbour: Harbour, how: str) -> None:
    async with running(how) as url:
        fleet, spec, steps = harbour.fleet(), spec_of(url), list[JsonObject]()
        manifest = await fleet.manifest(spec)
        assert ([tool["name"] for tool in manifest.tools], manifest.identity) == (
            ["echo", "greet", "steps"],
            "shop",
        )
        texts = await asyncio.gather(*(use(fleet, spec, "echo", text=f"t{n}") for n in range(40)))
        assert texts == [f"t{n}" for n in range(40)]
        if how != "json":  # which has no way to ask, nor to tell
            assert await use(fleet, spec, "greet") == "hello Ana"
            assert await use(fleet, spec, "steps", on_progress=steps.append) == "done"
            assert [step["progress"] for step in steps] == [1, 2, 3]
        await fleet.close()


async def test_a_url_in_the_users_file_is_called_asked_about_and_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pml_home = home / ".pml"
    pml_home.mkdir(mode=0o700, exist_ok=True)
    async with running("streamable-http") as url:
        entry = {"type": "http", "url": url, "headers": {"X-Key": "secret-header-value"}}
        rules = {"allow": ["shop:echo"], "deny": ["shop:steps"]}
        config = {"mcpServers": {"shop": entry}, "permissions": rules}
        (pml_home / "config.json").write_text(json.dumps(config))
        code, said = await run("call", "shop:echo", '{"text": "hi"}')
        denied, _ = await run("call", "shop:steps", "{}")
        _, status = await run("servers", "status", "shop")
        assert (code, "hi" in said, denied) == (0, True, 3)
        assert url in status
        assert "runs elsewhere: its code is not proven" in status
        assert "X-Key" in status
        assert b"secret-header-value" not in _kept(pml_home) + status.encode() + said.encode()


async def run(*argv: str) -> tuple[int | None, str]:
    """Run a command line of PML; return its exit code and all that it wrote."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pml", *argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(SOON_S):
        out, err = await process.communicate()
    return process.returncode, (out + err).decode()


def _kept(pml_home: Path) -> bytes:
    files = (path for path in pml_home.rglob("*") if path.is_file() and path.name != "config.json")
    return b"".join(path.read_bytes() for path in files)
