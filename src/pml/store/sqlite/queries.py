"""The SQL of the store, read once from `sql/`: named queries, and migrations in their order.

A query names its columns by the mapper of its rows: `{approvals.columns}`, `{approvals.marks}`.
"""

from functools import cache
from importlib import resources
from typing import Final

from pml.store.rows.tables import BY_NAME

_SQL: Final = resources.files("pml.store.sqlite") / "sql"


@cache
def queries() -> dict[str, str]:
    """Return the statements of `queries.sql` by name."""
    statements: dict[str, str] = {}
    for block in (_SQL / "queries.sql").read_text(encoding="utf-8").split("-- name: ")[1:]:
        name, _, statement = block.partition("\n")
        statements[name.strip()] = statement.strip().format_map(BY_NAME)
    return statements


def migrations() -> list[tuple[int, str]]:
    """Return (number, script) of every migration, first to last."""
    files = sorted((_SQL / "migrations").iterdir(), key=lambda file: file.name)
    return [
        (int(file.name[:4]), file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".sql")
    ]
