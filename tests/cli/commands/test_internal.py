"""A mistake of ours: logged whole, shown bare."""

import argparse

import pytest

from pml.cli.commands import version
from pml.cli.main import main


def _broken(args: argparse.Namespace) -> int:
    raise RuntimeError("the secret token is 42")


def test_an_unexpected_error_is_shown_bare_with_the_way_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(version, "run", _broken)

    assert main(["version"]) == 1

    assert capsys.readouterr().err == (
        "pml: internal error: RuntimeError\n  → `PML_LOG=debug` shows all of it\n"
    )


def test_an_unexpected_error_is_told_whole_to_who_debugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "run", _broken)
    monkeypatch.setenv("PML_LOG", "debug")

    with pytest.raises(RuntimeError, match="the secret token is 42"):
        main(["version"])
