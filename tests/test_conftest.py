"""The rules that hold for every test hold."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SKIPS = {
    "test_inside.py": "import pytest\ndef test_it():\n    pytest.skip('needs `one`')\n",
    "test_mark.py": "import pytest\n@pytest.mark.skip('needs `two`')\ndef test_it(): ...\n",
    "test_module.py": "import pytest\npytest.skip('needs `three`', allow_module_level=True)\n",
}


@pytest.mark.parametrize(("ci", "verdict"), [("", "3 skipped"), ("1", "1 failed, 2 errors")])
def test_a_skip_is_a_failure_where_ci_is_set_and_keeps_its_reason(
    tmp_path: Path, ci: str, verdict: str
) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    for name, source in SKIPS.items():
        (tmp_path / name).write_text(source)
    report = _pytest(tmp_path, ci=ci)
    assert verdict in report
    assert [need for need in ("`one`", "`two`", "`three`") if need not in report] == []


def test_a_test_has_a_home_of_its_own(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert Path.home() == home
    assert Path(os.environ["PML_HOME"]) == home / ".pml"
    assert home.is_relative_to(tmp_path_factory.getbasetemp())
    assert list(home.iterdir()) == []


def _pytest(folder: Path, *, ci: str) -> str:
    options = [
        "-rs",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder,
        env=os.environ | {"CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout
