"""A file that an agent named is read for showing it, and nothing that it names can hang or harm."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from pml.core.cards.files import Present
from pml.host.textfiles import MAX_BYTES, read_text
from tests.promises import promise

BOUND_S = 60.0
MADE_UP = "what the system itself shows as a file is not read"


async def read(path: str | Path, forbidden: Path) -> Present:
    """Return what is read, in time: what hangs fails the test."""
    async with asyncio.timeout(BOUND_S):
        return await asyncio.to_thread(read_text, str(path), forbidden=str(forbidden))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "pml-home"
    home.mkdir()
    (home / "secrets").write_text("the key")
    return home


async def test_a_text_is_read_whole_with_its_line_ends(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes("één\r\ntwo".encode())
    assert await read(file, home) == Present(path=str(file), text="één\r\ntwo")


async def test_a_file_that_is_not_there_is_missing(tmp_path: Path, home: Path) -> None:
    assert await read(tmp_path / "new.txt", home) == Present(path=str(tmp_path / "new.txt"), is_missing=True)


@promise("card:diff-against-file")
async def test_a_link_is_followed_and_where_it_leads_is_told(tmp_path: Path, home: Path) -> None:
    (tmp_path / "real.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert await read(tmp_path / "link.txt", home) == Present(path=str(tmp_path / "real.txt"), text="x")


@promise("card:reads-only-files")
async def test_a_pipe_is_not_waited_for(tmp_path: Path, home: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert (await read(tmp_path / "pipe", home)).problem == "it is not a regular file"


@promise("card:reads-only-files")
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty", "/", "/dev/stdin"])
async def test_what_is_no_regular_file_is_not_opened(path: str, home: Path) -> None:
    shown = await read(path, home)
    assert shown.text is None
    assert shown.problem is not None or shown.is_missing


@promise("card:reads-only-files")
async def test_what_is_no_regular_file_is_known_before_it_is_opened(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")

    def refuse(*_: object) -> int:
        raise AssertionError("it was opened")

    monkeypatch.setattr(os, "open", refuse)
    assert read_text(str(tmp_path / "pipe"), forbidden=str(home)).problem == "it is not a regular file"
    assert (await read("/dev/zero", home)).problem == MADE_UP


@promise("card:reads-only-files")
@pytest.mark.parametrize("path", ["/proc/self/maps", "/proc/self/cwd/x", "/proc/x/../self/environ", "/sys/x"])
async def test_what_the_system_makes_up_for_its_reader_is_not_read(path: str, home: Path) -> None:
    shown = await read(path, home)
    assert (shown.text, shown.problem, shown.is_missing) == (None, MADE_UP, False)


@promise("card:reads-only-files")
async def test_no_link_leads_to_what_the_system_makes_up(tmp_path: Path, home: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self/status")
    assert (await read(tmp_path / "link", home)).problem == MADE_UP


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows open sockets as files")
async def test_an_open_socket_is_not_called_a_new_file(home: Path) -> None:
    with socket.socket() as opened:
        shown = await read(f"/proc/self/fd/{opened.fileno()}", home)
    assert (shown.problem, shown.is_missing) == (MADE_UP, False)


@promise("card:reads-only-files")
async def test_what_is_in_pml_home_is_never_shown(tmp_path: Path, home: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "file-link").symlink_to(home / "secrets")
    for path in (home / "secrets", tmp_path / "link" / "secrets", tmp_path / "file-link", home):
        shown = await read(path, home)
        assert (shown.text, shown.problem) == (None, "PML's own files are not shown")
    assert (await read(home / ".." / "pml-home" / "secrets", home)).text is None


async def test_a_neighbour_of_pml_home_is_not_taken_for_it(tmp_path: Path, home: Path) -> None:
    (tmp_path / "pml-homework").write_text("x")
    assert (await read(tmp_path / "pml-homework", home)).text == "x"


async def test_a_file_that_is_too_large_or_no_text_says_so(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"x" * MAX_BYTES)
    assert (await read(file, home)).text == "x" * MAX_BYTES
    file.write_bytes(b"x" * (MAX_BYTES + 1))
    assert (await read(file, home)).problem == "the file has more than 1.0 MiB"
    for body in (b"\xff\xfe", b"a\0b"):
        file.write_bytes(body)
        assert (await read(file, home)).problem == "the file is not text"


@pytest.mark.parametrize("path", ["/a\0b", "/" + "x" * 10_000, "/\ud800", "/etc/passwd/x"])
async def test_a_name_that_cannot_be_used_is_a_problem_and_no_error(path: str, home: Path) -> None:
    shown = await read(path, home)
    assert shown.problem is not None
    assert shown.problem.startswith("the file cannot be read (")


async def test_links_in_a_circle_are_a_problem_and_no_error(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert (await read(tmp_path / "a", home)).text is None
