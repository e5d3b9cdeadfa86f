"""Files with rules, as a test writes and reads them."""

import json
from pathlib import Path
from typing import Any

from tests.commands import Pml


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2))
    return path


def permissions(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())["permissions"]


def verdict(pml: Pml, tool: str, arguments: str = "{}") -> str:
    return pml("rules", "explain", tool, arguments, "--json").json["verdict"]
