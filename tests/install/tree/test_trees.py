"""Tree hashes: everything counts, nothing leads out, and what was changed is named, however it was done."""

import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pml.core.errors import Invalid
from pml.install.tree import hashes as trees
from pml.install.tree.hashes import (
    CACHE,
    LIST,
    MISSING,
    Difference,
    hash_tree,
    keep_list,
    make_read_only,
    verify,
)
from tests.install.makers import write_files
from tests.promises import promise

FILES = {"a.js": b"one", "lib/b.js": b"two", "bin/run": b"#!"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "1.2.3-abc"
    write_files(tree, FILES)
    (tree / "empty").mkdir()
    (tree / "link").symlink_to("lib/b.js")
    return tree


@pytest.fixture
def expected(tree: Path) -> str:
    """The hash of the tree, whose list is kept, and whose files are known by their stamps."""
    for path in sorted(tree.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    hashed = hash_tree(tree)
    keep_list(tree, hashed)
    settle(tree, hashed.digest)
    return hashed.digest


def settle(tree: Path, expected: str) -> None:
    """Look until every stamp is old enough to count."""
    deadline = time.monotonic() + 30
    while known(tree, expected) != everything(tree):
        assert time.monotonic() < deadline
        assert verify(tree, expected) is None


def known(tree: Path, expected: str) -> set[bytes]:
    return set(trees._known(tree, expected))  # pyright: ignore[reportPrivateUsage]


def everything(tree: Path) -> set[bytes]:
    return {os.fsencode(path.relative_to(tree)) for path in tree.rglob("*")}


def files_of(difference: Difference | None) -> tuple[str, ...]:
    return () if difference is None else difference.files


def test_an_equal_tree_elsewhere_has_the_same_hash(tree: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_files(other, dict(reversed(FILES.items())))
    (other / "link").symlink_to("lib/b.js")
    (other / "empty").mkdir()
    assert hash_tree(tree) == hash_tree(other)


def change_content(tree: Path) -> None:
    (tree / "a.js").write_bytes(b"two")


def make_executable(tree: Path) -> None:
    (tree / "a.js").chmod(0o755)


def rename(tree: Path) -> None:
    (tree / "a.js").rename(tree / "c.js")


def move_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").symlink_to("lib")


def file_for_link(tree: Path) -> None:
    (tree / "link").unlink()
    (tree / "link").write_bytes(b"lib/b.js")


def file_for_folder(tree: Path) -> None:
    (tree / "empty").rmdir()
    (tree / "empty").write_bytes(b"")


def add_folder(tree: Path) -> None:
    (tree / "more").mkdir()


CHANGES = [
    (change_content, ("~ a.js",)),
    (make_executable, ("~ a.js",)),
    (rename, ("- a.js", "+ c.js")),
    (move_link, ("~ link",)),
    (file_for_link, ("~ link",)),
    (file_for_folder, ("~ empty",)),
    (add_folder, ("+ more",)),
]


@promise("start:tree-verified")
@pytest.mark.parametrize(("change", "files"), CHANGES, ids=lambda each: getattr(each, "__name__", ""))
def test_every_change_is_seen_and_its_files_are_named(
    tree: Path, expected: str, change: Callable[[Path], None], files: tuple[str, ...]
) -> None:
    assert verify(tree, expected) is None
    change(tree)
    found = Difference(files=files, tree=hash_tree(tree).digest)
    assert (verify(tree, expected), verify(tree, expected, read_all=True)) == (found, found)
    assert found.tree != expected


@promise("tree:edit-with-old-times-seen")
def test_an_edit_of_the_same_size_with_its_old_times_is_seen(tree: Path, expected: str) -> None:
    path = tree / "a.js"
    before = path.stat()
    path.write_bytes(b"eno")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )
    assert files_of(verify(tree, expected)) == ("~ a.js",)


@promise("tree:edit-with-old-times-seen")
@pytest.mark.parametrize(("age_ns", "counts"), [(0, False), (10_000_000, False), (60_000_000, True)])
def test_a_stamp_that_another_change_could_bear_too_is_never_relied_on(
    tree: Path, monkeypatch: pytest.MonkeyPatch, age_ns: int, counts: bool
) -> None:
    def moment(folder: Path) -> int:
        return (tree / "a.js").stat().st_ctime_ns + age_ns

    hashed = hash_tree(tree)
    keep_list(tree, hashed)
    monkeypatch.setattr(trees, "_moment", moment)
    assert verify(tree, hashed.digest) is None
    assert (b"a.js" in known(tree, hashed.digest)) == counts


def test_a_file_that_is_known_is_not_read_again(
    tree: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: bytes, size: int) -> bytes:
        raise AssertionError(path)

    monkeypatch.setattr(trees, "_content", refuse)
    assert verify(tree, expected) is None
    with pytest.raises(AssertionError):
        verify(tree, expected, read_all=True)


def test_only_the_files_in_doubt_are_read(tree: Path, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    real = trees._content  # pyright: ignore[reportPrivateUsage]

    def note(path: bytes, size: int) -> bytes:
        read.append(os.path.basename(path))
        return real(path, size)

    monkeypatch.setattr(trees, "_content", note)
    (tree / "a.js").touch()
    assert verify(tree, expected) is None
    assert read == [b"a.js"]


def test_after_the_machine_started_again_every_file_is_read(
    tree: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "boot_id", lambda: "another")
    assert known(tree, expected) == set()
    assert verify(tree, expected) is None
    settle(tree, expected)


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"{}", os.urandom(100)], ids=["empty", "nul", "json", "noise"]
)
def test_a_broken_cache_is_ignored_and_mended(tree: Path, expected: str, content: bytes) -> None:
    cache = tree.with_name(tree.name + CACHE)
    cache.write_bytes(content)
    assert verify(tree, expected) is None
    settle(tree, expected)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600


@promise("start:tree-verified")
def test_a_tree_that_was_emptied_is_not_taken_for_known(tree: Path, expected: str) -> None:
    tree.with_name(tree.name + CACHE).unlink()
    for path in sorted(tree.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    assert files_of(verify(tree, expected)) == (
        "- a.js",
        "- bin",
        "- bin/run",
        "- empty",
        "- lib",
        "- lib/b.js",
        "- link",
    )


def test_a_list_of_files_that_was_swapped_is_not_believed(tree: Path, expected: str) -> None:
    (tree / "a.js").write_bytes(b"evil")
    swapped = hash_tree(tree)
    keep_list(tree, swapped)
    found = verify(tree, expected)
    assert found == Difference(
        files=("the list of its files is lost: nobody can tell which have changed",), tree=swapped.digest
    )


def test_a_lost_list_of_an_unchanged_tree_is_made_anew(tree: Path, expected: str) -> None:
    tree.with_name(tree.name + LIST).unlink()
    tree.with_name(tree.name + CACHE).unlink()
    assert verify(tree, expected) is None
    (tree / "a.js").write_bytes(b"evil")
    assert files_of(verify(tree, expected)) == ("~ a.js",)


def test_a_folder_that_is_missing_or_only_a_link_is_told(tree: Path, expected: str) -> None:
    away = tree.rename(tree.with_name("away"))
    assert verify(tree, expected) == Difference(files=(MISSING,), tree="")
    tree.symlink_to(away)
    assert verify(tree, expected) == Difference(files=(MISSING,), tree="")


def test_hidden_characters_in_the_name_of_a_changed_file_are_shown(tree: Path, expected: str) -> None:
    (tree / "x\n\u202e.js").touch()
    (tree / os.fsdecode(b"y\xff.js")).touch()
    assert files_of(verify(tree, expected)) == (r"+ x\n\u{202e}.js", r"+ y\u{dcff}.js")


def add_fifo(tree: Path) -> None:
    os.mkfifo(tree / "odd")


def add_socket(tree: Path) -> None:
    folder = os.getcwd()
    os.chdir(tree)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind("odd")
    finally:
        os.chdir(folder)


def link_to(target: str) -> Callable[[Path], None]:
    def add(tree: Path) -> None:
        (tree / "odd").symlink_to(target)

    return add


ODD = [
    add_fifo,
    add_socket,
    link_to("/etc/passwd"),
    link_to(".."),
    link_to("lib/../../secrets"),
    link_to("./../x"),
    link_to("lib/.."),
]


@pytest.mark.parametrize("add", ODD)
def test_what_no_package_may_bring_is_refused_and_never_opened(
    tree: Path, expected: str, add: Callable[[Path], None]
) -> None:
    add(tree)
    with pytest.raises(Invalid, match="`odd` is "):
        hash_tree(tree)
    assert files_of(verify(tree, expected)) == ("+ odd",)


def test_two_links_that_stay_within_cannot_lead_out_together(tree: Path) -> None:
    (tree / "lib" / "top").symlink_to("..")
    assert hash_tree(tree)
    (tree / "out").symlink_to("lib/top/..")
    with pytest.raises(Invalid, match="`out` is a link that leaves the folder"):
        hash_tree(tree)


def test_files_are_made_read_only_and_stay_executable(tree: Path) -> None:
    make_read_only(tree)
    modes = {path: stat.S_IMODE((tree / path).stat().st_mode) for path in ("a.js", "bin/run", "lib")}
    assert modes == {"a.js": 0o400, "bin/run": 0o500, "lib": 0o700}


def test_a_tree_whose_folder_cannot_be_written_is_still_verified(
    tree: Path, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(trees, "replace_file", refuse)
    monkeypatch.setattr(trees.tempfile, "TemporaryFile", refuse)
    (tree / "a.js").touch()
    assert verify(tree, expected) is None
    (tree / "a.js").write_bytes(b"evil")
    assert files_of(verify(tree, expected)) == ("~ a.js",)
