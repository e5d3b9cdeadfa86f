"""What a package unpacked to is made sound, or refused."""

import os
import stat
import sys
from pathlib import Path

import pytest

from pml.core.errors import Invalid
from pml.install.tree.soundness import make_sound
from tests.promises import promise


@promise("install:nothing-outside")
@pytest.mark.parametrize("target", ["/etc/passwd", "..", "../outside", "folder/../../outside", "chain"])
def test_a_link_that_leads_out_is_refused(target: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    (tree / "link").symlink_to(target)
    if target == "chain":
        (tree / "chain").symlink_to("folder/up")
        (tree / "folder/up").symlink_to("../../outside")
    with pytest.raises(Invalid, match="a link that leads out of its folder"):
        make_sound(tree)


def test_links_within_stay(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/up").symlink_to("../../a")
    make_sound(tmp_path)
    assert (tmp_path / "a/b/up").is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes among files on Windows")
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="neither file nor folder: `pipe`"):
        make_sound(tmp_path)


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("straße", "STRASSE"), ("\u00e9", "e\u0301")])
def test_two_names_of_one_file_are_refused(one: str, other: str, tmp_path: Path) -> None:
    for name in (one, other):
        (tmp_path / name).touch()
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system takes the two names for one")
    with pytest.raises(Invalid, match="on some systems they are one file"):
        make_sound(tmp_path)


def test_a_file_with_a_second_name_elsewhere_gets_content_of_its_own(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("1")
    tree = tmp_path / "tree"
    tree.mkdir()
    os.link(outside, tree / "file")
    make_sound(tree)
    outside.write_text("2")
    assert (tree / "file").read_text() == "1"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no modes on Windows")
@pytest.mark.parametrize(
    ("mode", "wanted"), [(0o4777, 0o755), (0o600, 0o644), (0o666, 0o644), (0o700, 0o755)]
)
def test_files_have_plain_rights(mode: int, wanted: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    make_sound(tmp_path)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == wanted
