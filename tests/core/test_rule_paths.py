"""The `under` matcher: paths dressed up as what they are not, judged for an allow and for a deny."""

from pathlib import Path

import pytest

from pml.core.matchers import Matcher, RuleInvalid, Scene, Under
from pml.core.values import Json
from tests.core.judging import NARROW, FakePaths, RealPaths, allows, denies, parse
from tests.promises import promise

INSIDE = [
    "/etc/passwd",
    "/etc",
    "/etc/",
    "//etc/passwd",
    "///etc//passwd",
    "/etc/./passwd",
    "/srv/app/../etc/passwd",
    "../etc/passwd",
    "./../etc/passwd",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "file:/etc/passwd",
    "file:////etc/passwd",
    "file:///%65tc/passwd",
    "file:///srv/app/..%2Fetc/passwd",
    ["/etc/passwd"],
    [["/etc/passwd"], "/etc/hosts"],
]


@promise("rules:paths-by-real-path")
@pytest.mark.parametrize("value", INSIDE)
def test_a_path_inside_is_found_however_it_is_written_by_a_deny(value: Json) -> None:
    assert denies({"under": "/etc"}, value)


@pytest.mark.parametrize("value", [value for value in INSIDE if "%" not in str(value)])
def test_a_path_inside_is_found_however_it_is_written_by_an_allow(value: Json) -> None:
    assert allows({"under": "/etc"}, value)


OUTSIDE = [
    "/etc-evil/passwd",
    "/et",
    "/srv/app/etc",
    "/etc/../srv/app/x",
    "x",
    "../srv/app/x",
    "",
    "file:///srv/app/x",
    ["/srv/app/x", "y"],
]


@promise("rules:paths-by-real-path")
@pytest.mark.parametrize("value", OUTSIDE)
def test_a_path_outside_is_not_taken_for_one_inside(value: Json) -> None:
    assert not allows({"under": "/etc"}, value)
    assert not denies({"under": "/etc"}, value)


UNTELLABLE_PATHS: list[Json] = [
    "~root/x",
    "~root",
    "$HOME/x",
    "file://evil.com/srv/app/x",
    "file:///srv/app/x?y",
    "file:///srv/app/x#y",
    "file:work/x",
    "file://localhost",
    "file:///srv/app/%",
    "file:///srv/app/%zz",
    "file:///srv/app/%ff",
    "file:///srv/app/%00",
    "sftp://host/srv/app/x",
    "/srv/app/x\0",
    "/srv/app/x\n",
    "/srv/app\\..\\x",
    " /srv/app/x",
    "/srv/app/x ",
    "/srv/app/" + "x/" * 4096,
    None,
    True,
    7,
    {"path": "/srv/app/x"},
]


@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", UNTELLABLE_PATHS)
def test_a_value_that_is_no_certain_path_is_never_allowed_and_always_denied(value: Json) -> None:
    for each in (value, ["/srv/app/ok", value]):
        assert not allows({"under": "/srv/app"}, each)
        assert denies({"under": "/etc"}, each)


@promise("rules:doubt-denies")
def test_a_relative_path_without_a_known_directory_is_in_doubt() -> None:
    assert not allows({"under": "/srv/app"}, "x", cwd=None)
    assert denies({"under": "/etc"}, "x", cwd=None)
    assert not allows({"under": "/srv/app"}, "~/x", cwd=None)
    assert denies({"under": "/etc"}, "~/x", cwd=None)
    assert not allows({"under": "~"}, "~/x", cwd="work")
    assert denies({"under": "/etc"}, "~/x", cwd="work")
    assert not allows({"under": "/srv/app"}, "x", cwd="work")
    assert denies({"under": "/etc"}, "x", cwd="work")


@promise("rules:doubt-denies")
def test_a_path_that_cannot_be_followed_is_in_doubt() -> None:
    loop = FakePaths(broken=frozenset({"/srv/app/loop"}))
    assert not allows({"under": "/srv/app"}, "/srv/app/loop", paths=loop)
    assert denies({"under": "/etc"}, "/srv/app/loop", paths=loop)
    lost = FakePaths(broken=frozenset({"/srv/app"}))
    assert not allows({"under": "/srv/app"}, "/srv/app/x", paths=lost)
    assert denies({"under": "/srv/app"}, "/elsewhere", paths=lost)


def test_a_text_that_no_file_system_can_name_is_in_doubt() -> None:
    paths = RealPaths(home="/home/ada")
    assert not allows({"under": "/srv/app"}, "/srv/app/\ud800", paths=paths)
    assert denies({"under": "/etc"}, "/srv/app/\ud800", paths=paths)


def test_escapes_in_a_file_url_count_as_read_and_as_written() -> None:
    for directory in ("/srv/app/a%62", "/srv/app/ab"):
        assert denies({"under": directory}, "file:///srv/app/a%62/x")
        assert not allows({"under": directory}, "file:///srv/app/a%62/x")
    assert allows({"under": "/srv/app"}, "file:///srv/app/a%62/x")


def test_a_tilde_counts_as_the_home_and_as_a_name() -> None:
    assert denies({"under": "~"}, "~/.ssh/id")
    assert denies({"under": "/srv/app"}, "~/.ssh/id")
    assert denies({"under": "~/.ssh"}, "/home/ada/.ssh/id")
    assert not allows({"under": "~"}, "~/.ssh/id", cwd="/srv/app")
    assert not allows({"under": "/srv/app"}, "~/.ssh/id", cwd="/srv/app")
    assert allows({"under": "~"}, "~/notes", cwd="/home/ada/srv/app")
    assert allows({"under": "/"}, "~")


def test_a_relative_directory_begins_at_the_folder_of_its_file() -> None:
    assert parse("it", {"under": "src/../lib"}) == Matcher(
        segments=("it",), condition=Under("/srv/app/src/../lib")
    )
    assert allows({"under": "lib"}, "/srv/app/lib/x", cwd="/elsewhere")
    assert not allows({"under": "lib"}, "/elsewhere/lib/x", cwd="/elsewhere")
    assert allows({"under": "."}, "/srv/app/x", cwd="/elsewhere")


def test_the_root_holds_every_path() -> None:
    assert allows({"under": "/"}, "/anything")
    assert denies({"under": "/"}, "/")


@promise("rules:paths-by-real-path")
def test_a_link_out_of_an_allowed_directory_is_not_allowed(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    spec: Json = {"under": f"{tmp_path}/srv/app"}
    cwd = f"{tmp_path}/srv/app"
    assert allows(spec, f"{tmp_path}/srv/app/file", cwd=cwd, paths=paths)
    assert allows(spec, f"/{tmp_path}/srv/app/file", cwd=cwd, paths=paths)
    assert allows(spec, "new/file", cwd=cwd, paths=paths)
    assert not allows(spec, f"{tmp_path}/srv/app/out/file", cwd=cwd, paths=paths)
    assert not allows(spec, "out/file", cwd=cwd, paths=paths)
    assert not allows(spec, f"file://{tmp_path}/srv/app/out/file", cwd=cwd, paths=paths)
    assert not allows(spec, "loop/file", cwd=f"{tmp_path}/srv/app/out", paths=paths)


@promise("rules:paths-by-real-path")
def test_a_link_into_a_denied_directory_is_denied(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    spec: Json = {"under": f"{tmp_path}/secret"}
    cwd = f"{tmp_path}/srv/app"
    assert denies(spec, f"{tmp_path}/srv/app/out", cwd=cwd, paths=paths)
    assert denies(spec, "out/file", cwd=cwd, paths=paths)
    assert denies(spec, ["file", "out/file"], cwd=cwd, paths=paths)
    assert not denies(spec, "file", cwd=cwd, paths=paths)
    assert denies({"under": f"{tmp_path}/srv/app/out"}, f"{tmp_path}/secret/file", cwd=cwd, paths=paths)


def test_a_link_belongs_to_the_denied_directory_it_lies_in(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    assert denies({"under": f"{tmp_path}/srv/app"}, f"{tmp_path}/srv/app/out", paths=paths)
    (tmp_path / "secret" / "onward").symlink_to(tmp_path)
    assert denies({"under": f"{tmp_path}/srv/app/out"}, f"{tmp_path}/srv/app/out/onward", paths=paths)


@promise("rules:paths-by-real-path")
def test_dots_behind_a_link_count_as_written_and_as_followed(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    value = f"{tmp_path}/srv/app/deep/../file"  # as written: work/file; followed: secret/file
    assert not allows({"under": f"{tmp_path}/srv/app"}, value, paths=paths)
    assert not allows({"under": f"{tmp_path}/secret"}, value, paths=paths)
    assert denies({"under": f"{tmp_path}/srv/app"}, value, paths=paths)
    assert denies({"under": f"{tmp_path}/secret"}, value, paths=paths)


def _real_tree(root: Path) -> RealPaths:
    (root / "work").mkdir()
    (root / "secret" / "inner").mkdir(parents=True)
    (root / "work" / "out").symlink_to(root / "secret")
    (root / "work" / "deep").symlink_to(root / "secret" / "inner")
    return RealPaths(home=str(root / "home"))


def test_a_deny_ignores_case_and_composition_and_an_allow_does_not() -> None:
    assert denies({"under": "/Etc"}, "/ETC/passwd")
    assert denies({"under": "/srv/app/caf\u00e9"}, "/srv/app/cafe\u0301/x")
    assert denies({"under": "/srv/app/CAF\u00c9"}, "/srv/app/caf\u00e9/x")
    assert not allows({"under": "/etc"}, "/ETC/passwd")
    assert not allows({"under": "/srv/app/caf\u00e9"}, "/srv/app/cafe\u0301/x")


def test_a_path_is_followed_once_for_all_rules_of_a_judgement() -> None:
    asked: list[str] = []

    class Counting(FakePaths):
        def real(self, path: str) -> str:
            asked.append(path)
            return super().real(path)

    scene = Scene("/srv/app", Counting())
    for _ in range(3):
        assert parse("it", {"under": "/srv/app"}).matches({"it": "x"}, reach=NARROW, scene=scene)
    assert asked == ["/srv/app", "/srv/app/x"]


@pytest.mark.parametrize(
    "directory", ["/srv/app/*", "src/**", "*", "~root", "$HOME", "file:///srv/app", "/a\0", " /a", 7, ""]
)
def test_what_is_no_certain_directory_is_refused(directory: Json) -> None:
    with pytest.raises(RuleInvalid) as caught:
        parse("it", {"under": directory})
    assert caught.value.pointer == ("under",)
