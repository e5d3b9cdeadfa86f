"""ARCHITECTURE.md names the rooms that exist and files that exist, and stays one page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pml"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_the_tree_names_every_room_of_the_source_and_no_other() -> None:
    rooms = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")} - {"."}
    named = re.findall(r"^    ([a-z_]+(?:/[a-z_]+)*)/ +\S", PAGE, re.MULTILINE)
    assert sorted(named) == sorted({"src/pml", *rooms})


def test_every_path_in_the_sequences_and_the_invariants_exists() -> None:
    paths = [path for path in re.findall(r"`([\w./-]+)`", PAGE) if "/" in path and not path.endswith("/")]
    assert len(paths) > 50
    assert [path for path in paths if not ((SOURCE / path).exists() or (ROOT / path).exists())] == []


def test_every_invariant_names_its_code_and_its_tests() -> None:
    _, _, table = PAGE.partition("| invariant | code | tests |\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    assert rows
    assert [row for row in rows if len(row) != 3 or "`" not in row[1] or "`tests/" not in row[2]] == []
