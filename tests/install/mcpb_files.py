"""Real `.mcpb` files with small real servers in them: one of JavaScript, one of Python, one a program."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

NODE: Final = r"""
const { createInterface } = require('node:readline');
const { greeting } = require('./words.js');
const args = process.argv.slice(2);
createInterface({ input: process.stdin }).on('line', (line) => {
  const asked = JSON.parse(line);
  if (asked.id === undefined) return;
  const results = {
    initialize: {
      protocolVersion: '2025-06-18',
      capabilities: { tools: {} },
      serverInfo: { name: 'n', version: '1' },
    },
    'tools/list': {
      tools: [{ name: greeting, description: JSON.stringify(args), inputSchema: { type: 'object' } }],
    },
  };
  const result = results[asked.method];
  const answer = result ? { result } : { error: { code: -32601, message: 'no' } };
  console.log(JSON.stringify({ jsonrpc: '2.0', id: asked.id, ...answer }));
});
"""
PYTHON: Final = """
import json, os, sys
from words import greeting
from own import own

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tool = {"name": greeting + own, "description": json.dumps([sys.argv[1:], os.environ.get("MODE")]),
            "inputSchema": {"type": "object"}}
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "p", "version": "1"}},
        "tools/list": {"tools": [tool]},
    }
    result = results.get(asked["method"])
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def manifest(kind: str = "node", **more: Any) -> dict[str, Any]:
    """Return a manifest after the format's specification; `more` is put in its place at the top."""
    entry = {"node": "server/index.js", "python": "server/main.py", "binary": "server/run"}[kind]
    here = f"${{__dirname}}/{entry}"
    config: dict[str, Any] = (
        {"command": kind, "args": [here]} if kind != "binary" else {"command": here, "args": []}
    )
    return {
        "manifest_version": "0.2",
        "name": "greeter",
        "version": "1.2.3",
        "description": "Greets.",
        "author": {"name": "Acme"},
        "server": {"type": kind, "entry_point": entry, "mcp_config": config},
        **more,
    }


def files(kind: str = "node") -> dict[str, str]:
    if kind == "node":
        return {"server/index.js": NODE, "server/words.js": "exports.greeting = 'hello';"}
    if kind == "python":
        return {
            "server/main.py": PYTHON,
            "server/own.py": "own = '_own'",
            "server/lib/words.py": "greeting = 'hello'",
        }
    return {"server/run": "#!/usr/bin/env python3\n" + PYTHON.replace("from own", "# ").replace(" + own", "")}


def packed(
    shape: Mapping[str, Any] | None = None,
    content: Mapping[str, str] | None = None,
    *,
    extra: tuple[tuple[zipfile.ZipInfo, bytes], ...] = (),
) -> bytes:
    """Return the bytes of a `.mcpb` file; `extra` entries are written as they are."""
    it = io.BytesIO()
    with zipfile.ZipFile(it, "w", zipfile.ZIP_DEFLATED) as archive:
        if shape is not None:
            archive.writestr("manifest.json", json.dumps(shape))
        for name, text in (content or {}).items():
            archive.writestr(name, text)
        for info, data in extra:
            archive.writestr(info, data)
    return it.getvalue()


def put(folder: Path, data: bytes, name: str = "greeter.mcpb") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)
