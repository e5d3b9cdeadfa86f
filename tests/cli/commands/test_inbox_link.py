"""`pml serve` and `pml inbox --link` give a person the way in; an agent gets none."""

import json
import stat
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pml.app import user_name
from pml.core.sessions.token import read_token
from pml.hub.presence import Presence, sole_hub
from tests.builders import NOW
from tests.commands import TIMEOUT_S, Pml, spawn
from tests.promises import promise

URL = "http://127.0.0.1:4445"


@contextmanager
def hub(*words: str) -> Generator[dict[str, Any]]:
    """Run a hub and yield what it printed when it was ready."""
    with spawn(["serve", "--port", "0", "--json", *words]) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] != "}\n":
                lines.append(process.stdout.readline())
                assert lines[-1], "it ended"
            yield json.loads("".join(lines))
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


@contextmanager
def present(pml_home: Path, *, page: str | None = None) -> Generator[None]:
    """Be a hub that answers nobody."""
    with sole_hub(pml_home) as announce:
        announce(Presence(url=URL, pid=1, started_at=NOW, page=page))
        yield


def log_in(link: str) -> tuple[int, Any]:
    """Do what the page does with a link."""
    url, _, token = link.partition("/#login=")
    request = urllib.request.Request(f"{url}/api/login", method="POST")
    request.add_header("Authorization", f"Bearer {token}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


@promise("login:link-works-once")
def test_the_links_of_the_hub_and_of_the_command_each_log_one_browser_in(pml: Pml) -> None:
    with hub() as told:
        made = pml("inbox", "--link")
        assert made.code == 0
        (link,) = made.out.splitlines()
        assert "once" in made.err
        for each in (told["login_url"], link):
            assert each.startswith(f"{told['url']}/#login=pml_")
            status, answer = log_in(each)
            assert (status, answer["name"]) == (200, user_name())
            status, answer = log_in(each)
            assert (status, "used already" in answer["error"]["message"]) == (409, True)
    tokens = pml("token", "list", "--all", "--json").json["tokens"]
    assert sorted((each["role"], each["revoked_at"] is None) for each in tokens) == [
        *[("login", False)] * 2,
        *[("person", True)] * 2,
    ]
    assert [each["role"] for each in pml("token", "list", "--json").json["tokens"]] == ["person"] * 2


def test_without_a_hub_it_says_how_to_start_one_and_makes_nothing(pml: Pml) -> None:
    made = pml("inbox", "--link")
    assert (made.code, made.out) == (1, "")
    assert "no hub is running" in made.err
    assert "`pml serve`" in made.err
    assert pml("token", "list", "--all", "--json").json == {"tokens": []}


def test_scripts_get_the_link_as_json(pml: Pml, pml_home: Path) -> None:
    with present(pml_home):
        made = pml("inbox", "--link", "--json")
    (link,) = made.json.values()
    assert (list(made.json), link.startswith(f"{URL}/#login=")) == (["login_url"], True)
    assert read_token(link.partition("=")[2]) is not None


def test_a_hub_that_people_open_by_another_name_is_linked_by_it(pml: Pml, pml_home: Path) -> None:
    with present(pml_home, page="https://hub.example"):
        made = pml("inbox", "--link")
    assert made.out.startswith("https://hub.example/#login=pml_")


def test_a_link_for_a_colleague_logs_that_name_in(pml: Pml, pml_home: Path) -> None:
    with present(pml_home):
        assert pml("inbox", "--link", "--name", "bo").code == 0
        unseen = pml("inbox", "--link", "--name", "b\u202eo")
        alone = pml("inbox", "--open", "--name", "bo")
    assert [token["name"] for token in pml("token", "list", "--json").json["tokens"]] == ["bo"]
    assert (unseen.code, "characters that can be seen" in unseen.err) == (2, True)
    assert (alone.code, "--name goes with --link" in alone.err) == (2, True)


@promise("agent:cannot-decide")
@pytest.mark.usefixtures("agent")
@pytest.mark.parametrize("how", ["--link", "--open"])
def test_beneath_an_agent_there_is_no_link(pml: Pml, pml_home: Path, how: str) -> None:
    with present(pml_home):
        made = pml("inbox", how)
    assert (made.code, made.out) == (1, "")
    assert "an agent cannot decide for itself" in made.err


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_browser_is_opened_or_where_there_is_none_the_link_printed(
    pml: Pml, pml_home: Path, monkeypatch: pytest.MonkeyPatch, has_browser: bool
) -> None:
    opened: list[str] = []

    def open_browser(url: str) -> bool:
        path = Path(url.removeprefix("file://"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600  # a link on a command line is everybody's to read
        opened.append(path.read_text().partition("url=")[2].partition('"')[0])
        return has_browser

    monkeypatch.setattr(webbrowser, "open", open_browser)
    with present(pml_home):
        made = pml("inbox", "--open")
        told = pml("inbox", "--open", "--json")
    assert not list((pml_home / "run").glob("*.html"))
    link, second = opened
    assert link.startswith(f"{URL}/#login=pml_")
    assert (link in made.out) is not has_browser
    assert told.json == {"login_url": second}


def test_a_token_for_a_login_is_not_made_by_hand(pml: Pml) -> None:
    made = pml("token", "create", "--role", "login")
    assert (made.code, made.out) == (2, "")
    assert "login" not in pml("token", "create", "--help").out


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--allow-host", "hub.example"], "http://127.0.0.1:"),
        (["--allow-host", "hub.example:443"], "https://hub.example/#"),
        (["--host", "0.0.0.0", "--insecure"], "http://127.0.0.1:"),
        (
            ["--host", "0.0.0.0", "--insecure", "--allow-host", "hub.example:443", "--allow-host", "b"],
            "https://hub.example/#",
        ),
    ],
)
def test_the_link_has_the_name_that_people_open_the_hub_by(pml: Pml, words: list[str], start: str) -> None:
    with hub(*words) as told:
        again = pml("inbox", "--link", "--json").json["login_url"]
    assert told["login_url"].startswith(start)
    assert again.startswith(start)
