"""The SQL of the store, read once from `sql/`: named queries, and migrations in their order."""

from functools import cache
from importlib import resources
from typing import Final

_SQL: Final = resources.files("pml.store") / "sql"


@cache
def queries() -> dict[str, str]:
    """Return the statements of `queries.sql` by name."""
    found: dict[str, str] = {}
    for block in (_SQL / "queries.sql").read_text(encoding="utf-8").split("-- name: ")[1:]:
        name, _, statement = block.partition("\n")
        found[name.strip()] = statement.strip()
    return found


def migrations() -> list[tuple[int, str]]:
    """Return (number, script) of every migration, first to last."""
    files = sorted((_SQL / "migrations").iterdir(), key=lambda file: file.name)
    return [
        (int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".sql")
    ]
