"""The shape of the source, as `scripts/house` checks it: small folders, nouns as names, a full glossary."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_folders_are_small_names_are_nouns_and_the_glossary_has_every_public_type() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "house"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stderr, done.returncode) == ("", 0)
