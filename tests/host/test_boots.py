"""Which start of the machine this is."""

import subprocess
import sys

from pml.install.tree.hashes import boot_id


def test_every_process_of_one_start_sees_the_same() -> None:
    code = "from pml.install.tree.hashes import boot_id; print(boot_id())"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == str(boot_id())
