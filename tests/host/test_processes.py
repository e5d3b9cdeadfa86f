"""Which process a gateway's client is: what merely launches another is passed over."""

import pytest

from pml.host import processes


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "pml stdio; true"],
        ["/bin/bash", "-lc", "pml stdio"],
        ["bash", "-o", "pipefail", "-c", "pml stdio"],
        ["bash", "/srv/app/start.sh"],
        ["bash", "--norc", "x.sh"],
        ["env", "A=1", "pml", "stdio"],
        ["uv", "run", "pml", "stdio"],
        ["npm exec pml stdio"],
        ["/usr/bin/make", "run"],
    ],
    ids=" ".join,
)
def test_what_was_given_something_to_run_only_launches(words: list[str]) -> None:
    assert processes._launches(words)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "words",
    [
        ["bash"],
        ["-bash"],
        ["zsh", "-i", "-l"],
        ["bash", "--rcfile", "/srv/app/rc", "-i"],
        ["bash", "--norc"],
        ["fish", "--interactive"],
        ["claude"],
        ["node", "client.js"],
        ["python3", "-c", "x"],
        [],
    ],
    ids=" ".join,
)
def test_a_persons_shell_and_a_client_do_not(words: list[str]) -> None:
    assert not processes._launches(words)  # pyright: ignore[reportPrivateUsage]
