"""The folders that permissions name."""

import pytest

from pml.core.errors import Invalid
from pml.host.folders import expand_folder


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~/notes", "/home/ana/notes"),
        ("~/a//b/", "/home/ana/a/b"),
        ("~//etc", "/home/ana/etc"),  # not `/etc`
        ("~/~/x", "/home/ana/~/x"),
        ("/srv/data/", "/srv/data"),
        ("//srv/data", "/srv/data"),
    ],
)
def test_a_folder_is_absolute_or_in_the_home_of_the_user(text: str, path: str) -> None:
    assert expand_folder(text, home="/home/ana") == path


@pytest.mark.parametrize("text", ["notes", "./notes", "./~/notes", "~", "~ana/notes", "$HOME/notes", ""])
def test_a_folder_that_is_relative_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="it is relative"):
        expand_folder(text, home="/home/ana")


def test_a_home_that_is_relative_makes_no_folder() -> None:
    with pytest.raises(Invalid, match="it is relative"):
        expand_folder("~/notes", home="ana")
