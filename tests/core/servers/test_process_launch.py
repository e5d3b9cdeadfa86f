"""The digest of a launch is stored with pins, manifests, grants and approvals: it must never change."""

import pytest

from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.servers.process_launch import Artefact, ProcessLaunch, Written

WRITTEN = Written(
    command="${T}",
    args=("${A}",),
    env={},
    cwd=None,
    names=("T", "A"),
    unset=(),
    values={"T": "npx", "A": "1"},
)


def installed(*, is_accepted: bool) -> ProcessLaunch:
    artefact = Artefact(
        version="1",
        terms="sha256:t",
        path="/p",
        tree="sha256:r",
        state="/s",
        needs=(),
        env_required=(),
        containment=Containment.BUBBLEWRAP,
        is_accepted=is_accepted,
    )
    return ProcessLaunch(command="/d", artefact=artefact)


@pytest.mark.parametrize(
    ("launch", "digest"),
    [
        (
            ProcessLaunch(command="npx", args=("-y", "x@1"), env={"TOKEN": "t"}, cwd="/w"),
            "sha256:bc1872a94d3680417b6d8bbbd00f26088933d0620fdaec77430aa59159036146",
        ),
        (
            ProcessLaunch(command="npx", permissions=Permissions(net=("a.test",), workspace=Access.READ)),
            "sha256:6e12f6ed4de6b9f55d05eefabb66282ab8100cbf762988f2ea12be7c44d07e64",
        ),
        (
            installed(is_accepted=False),
            "sha256:563e4878f603f4aed80c770169772660583e4d9a621fbc2f1c5f30800cbaf31d",
        ),
        (
            installed(is_accepted=True),
            "sha256:13e14981723ed80e053adf2cb0afd5c47f69e776e02f6265a246608c26955952",
        ),
    ],
    ids=["command", "permissions", "installed", "accepted"],
)
def test_a_launch_has_the_digest_that_it_was_stored_with(launch: ProcessLaunch, digest: str) -> None:
    assert launch.digest() == digest


@pytest.mark.parametrize("values", [("npx", "1"), ("uvx", "2")])
def test_an_entry_with_variables_has_its_stored_digest_whatever_their_values(values: tuple[str, str]) -> None:
    launch = ProcessLaunch(command=values[0], args=values[1:], written=WRITTEN)

    expected = "sha256:7417f1804d767196e5c455843cf5214c6be81ffa41cb184c93ed6bab91ab74b1"
    assert launch.digest() == expected


def test_the_line_of_an_entry_names_its_variables_and_not_their_values() -> None:
    launch = ProcessLaunch(command="npx", args=("hunter2",), written=WRITTEN)

    assert launch.line == "${T} ${A}"
    assert ProcessLaunch(command="npx", args=("-y", "x@1")).line == "npx -y x@1"
