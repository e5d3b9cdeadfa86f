"""The `under` matcher: paths dressed up as what they are not, judged for an allow and for a deny."""

from pathlib import Path

import pytest

from pml.core.rules.matchers import Matcher, RuleInvalid, Under
from pml.core.rules.places import CallContext
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
    "/repo/../etc/passwd",
    "../etc/passwd",
    "./../etc/passwd",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file://localhost/etc/passwd",
    "file:/etc/passwd",
    "file:////etc/passwd",
    "file:///%65tc/passwd",
    "file:///repo/..%2Fetc/passwd",
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
    "/repo/etc",
    "/etc/../repo/x",
    "x",
    "../repo/x",
    "",
    "file:///repo/x",
    ["/repo/x", "y"],
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
    "file://evil.com/repo/x",
    "file:///repo/x?y",
    "file:///repo/x#y",
    "file:work/x",
    "file://localhost",
    "file:///repo/%",
    "file:///repo/%zz",
    "file:///repo/%ff",
    "file:///repo/%00",
    "sftp://host/repo/x",
    "/repo/x\0",
    "/repo/x\n",
    "/repo\\..\\x",
    " /repo/x",
    "/repo/x ",
    "\u00a0/repo/x",
    "\ufefffile:///repo/x",
    "/repo/x\u200b",
    "file:///repo/x%20",
    "/repo/" + "x/" * 4096,
    None,
    True,
    7,
    {"path": "/repo/x"},
]


@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", UNTELLABLE_PATHS)
def test_a_value_that_is_no_certain_path_is_never_allowed_and_always_denied(value: Json) -> None:
    for each in (value, ["/repo/ok", value]):
        assert not allows({"under": "/repo"}, each)
        assert denies({"under": "/etc"}, each)


WRAPPED_PATHS = [
    "view-source:file:///etc/passwd",
    "jar:file:/etc/passwd",
    "local_file:/etc/passwd",
    "URL:file:///etc/passwd",
    "file+x:/etc/passwd",
    "file.x:/etc/passwd",
    "x:",
    "C:\\x",
    "c:/x",
    "C:x",
    "host:/etc/passwd",
    "notes:v2.txt",
]


@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", WRAPPED_PATHS)
def test_a_scheme_or_drive_that_a_tool_might_know_is_never_allowed_and_always_denied(value: str) -> None:
    for each in (value, ["/repo/ok", value]):
        assert not allows({"under": "/repo"}, each)
        assert denies({"under": "/etc"}, each)


EXPANDED_PATHS = [
    "/repo/*/x",
    "*",
    "/repo/x?",
    "/repo/$HOME",
    "/repo/x$(id)",
    "/repo/`id`",
    "/repo/{x,../etc/passwd}",
    "{/etc/passwd,x}",
    "/repo/${x}",
    "/repo/{{x}}",
    "file:///repo/%2A",
    "file:///repo/%7Bx,y%7D",
    "/[!a]tc",
    "/[^a]tc",
    "/[a-z]tc",
    "/[[:alpha:]]tc",
    "/[]e]tc",
    "/[e/]tc",
    "/repo/[" + "ab][" * 6 + "ab]",
]


@promise("rules:doubt-denies")
@pytest.mark.parametrize("value", EXPANDED_PATHS)
def test_a_path_that_a_tool_might_expand_is_never_allowed_and_always_denied(value: str) -> None:
    for each in (value, ["/repo/ok", value]):
        assert not allows({"under": "/repo"}, each)
        assert denies({"under": "/etc"}, each)


@promise("rules:paths-by-real-path")
@pytest.mark.parametrize("value", ["/[e]tc/passwd", "/[xe][t]c/passwd", "[.][.]/[e]tc", "file:///%5Be%5Dtc"])
def test_brackets_count_as_written_and_as_the_characters_a_glob_takes_them_for(value: str) -> None:
    assert denies({"under": "/etc"}, value)
    assert not allows({"under": "/repo"}, value)
    assert not allows({"under": "/etc"}, value)


@pytest.mark.parametrize(
    "value",
    ["app/[id].tsx", "/repo/[...slug]/[category]", "notes/a:b.txt", "a b:c", "./a:b", "1:2", "a]b", "a b"],
)
@pytest.mark.parametrize("cwd", ["/repo", "/repo/[a-z]", "/repo/$x {y}"])
def test_an_ordinary_name_is_no_doubt_because_of_its_brackets_colons_or_blanks(value: str, cwd: str) -> None:
    assert allows({"under": "/repo"}, value, cwd=cwd)
    assert not denies({"under": "/etc"}, value, cwd=cwd)


@promise("rules:doubt-denies")
def test_a_relative_path_without_a_known_directory_is_in_doubt() -> None:
    assert not allows({"under": "/repo"}, "x", cwd=None)
    assert denies({"under": "/etc"}, "x", cwd=None)
    assert not allows({"under": "/repo"}, "~/x", cwd=None)
    assert denies({"under": "/etc"}, "~/x", cwd=None)
    assert not allows({"under": "~"}, "~/x", cwd="work")
    assert denies({"under": "/etc"}, "~/x", cwd="work")
    assert not allows({"under": "/repo"}, "x", cwd="work")
    assert denies({"under": "/etc"}, "x", cwd="work")


@promise("rules:doubt-denies")
def test_a_path_that_cannot_be_followed_is_in_doubt() -> None:
    loop = FakePaths(broken=frozenset({"/repo/loop"}))
    assert not allows({"under": "/repo"}, "/repo/loop", paths=loop)
    assert denies({"under": "/etc"}, "/repo/loop", paths=loop)
    lost = FakePaths(broken=frozenset({"/repo"}))
    assert not allows({"under": "/repo"}, "/repo/x", paths=lost)
    assert denies({"under": "/repo"}, "/elsewhere", paths=lost)


def test_a_text_that_no_file_system_can_name_is_in_doubt() -> None:
    paths = RealPaths(home="/home/ada")
    assert not allows({"under": "/repo"}, "/repo/\ud800", paths=paths)
    assert denies({"under": "/etc"}, "/repo/\ud800", paths=paths)


def test_escapes_in_a_file_url_count_as_read_and_as_written() -> None:
    assert denies({"under": "/repo/ab"}, "file:///repo/a%62/x")
    assert not allows({"under": "/repo/ab"}, "file:///repo/a%62/x")
    assert allows({"under": "/repo"}, "file:///repo/a%62/x")


@promise("rules:doubt-denies")
@pytest.mark.parametrize(
    "value",
    ["@(link)/passwd", "+(link)/passwd", "!(x)/passwd", "link%2fpasswd", "%2e%2e/x", "/repo/%2E%2E/x"],
)
def test_what_some_tools_expand_or_decode_is_in_doubt(value: str) -> None:
    assert not allows({"under": "/repo"}, value)
    assert denies({"under": "/etc"}, value)


def test_a_tilde_counts_as_the_home_and_as_a_name() -> None:
    assert denies({"under": "~"}, "~/.ssh/id")
    assert denies({"under": "/repo"}, "~/.ssh/id")
    assert denies({"under": "~/.ssh"}, "/home/ada/.ssh/id")
    assert not allows({"under": "~"}, "~/.ssh/id", cwd="/repo")
    assert not allows({"under": "/repo"}, "~/.ssh/id", cwd="/repo")
    assert allows({"under": "~"}, "~/notes", cwd="/home/ada/repo")
    assert allows({"under": "/"}, "~")


def test_a_relative_directory_begins_at_the_folder_of_its_file() -> None:
    assert parse("it", {"under": "src/../lib"}) == Matcher(
        segments=("it",), condition=Under("/repo/src/../lib")
    )
    assert allows({"under": "lib"}, "/repo/lib/x", cwd="/elsewhere")
    assert not allows({"under": "lib"}, "/elsewhere/lib/x", cwd="/elsewhere")
    assert allows({"under": "."}, "/repo/x", cwd="/elsewhere")


def test_the_root_holds_every_path() -> None:
    assert allows({"under": "/"}, "/anything")
    assert denies({"under": "/"}, "/")


@promise("rules:paths-by-real-path")
def test_a_link_out_of_an_allowed_directory_is_not_allowed(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    spec: Json = {"under": f"{tmp_path}/repo"}
    cwd = f"{tmp_path}/repo"
    assert allows(spec, f"{tmp_path}/repo/file", cwd=cwd, paths=paths)
    assert allows(spec, f"/{tmp_path}/repo/file", cwd=cwd, paths=paths)
    assert allows(spec, "new/file", cwd=cwd, paths=paths)
    assert not allows(spec, f"{tmp_path}/repo/out/file", cwd=cwd, paths=paths)
    assert not allows(spec, "out/file", cwd=cwd, paths=paths)
    assert not allows(spec, f"file://{tmp_path}/repo/out/file", cwd=cwd, paths=paths)
    assert not allows(spec, "loop/file", cwd=f"{tmp_path}/repo/out", paths=paths)


@promise("rules:paths-by-real-path")
def test_a_link_into_a_denied_directory_is_denied(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    spec: Json = {"under": f"{tmp_path}/secret"}
    cwd = f"{tmp_path}/repo"
    assert denies(spec, f"{tmp_path}/repo/out", cwd=cwd, paths=paths)
    assert denies(spec, "out/file", cwd=cwd, paths=paths)
    assert denies(spec, ["file", "out/file"], cwd=cwd, paths=paths)
    assert not denies(spec, "file", cwd=cwd, paths=paths)
    assert denies({"under": f"{tmp_path}/repo/out"}, f"{tmp_path}/secret/file", cwd=cwd, paths=paths)


def test_a_link_belongs_to_the_denied_directory_it_lies_in(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    assert denies({"under": f"{tmp_path}/repo"}, f"{tmp_path}/repo/out", paths=paths)
    (tmp_path / "secret" / "onward").symlink_to(tmp_path)
    assert denies({"under": f"{tmp_path}/repo/out"}, f"{tmp_path}/repo/out/onward", paths=paths)


@promise("rules:paths-by-real-path")
def test_dots_behind_a_link_count_as_written_and_as_followed(tmp_path: Path) -> None:
    paths = _real_tree(tmp_path)
    value = f"{tmp_path}/repo/deep/../file"  # as written: repo/file; followed: secret/file
    assert not allows({"under": f"{tmp_path}/repo"}, value, paths=paths)
    assert not allows({"under": f"{tmp_path}/secret"}, value, paths=paths)
    assert denies({"under": f"{tmp_path}/repo"}, value, paths=paths)
    assert denies({"under": f"{tmp_path}/secret"}, value, paths=paths)


def _real_tree(root: Path) -> RealPaths:
    (root / "repo").mkdir()
    (root / "secret" / "inner").mkdir(parents=True)
    (root / "repo" / "out").symlink_to(root / "secret")
    (root / "repo" / "deep").symlink_to(root / "secret" / "inner")
    return RealPaths(home=str(root / "home"))


def test_a_deny_ignores_case_and_composition_and_an_allow_does_not() -> None:
    assert denies({"under": "/Etc"}, "/ETC/passwd")
    assert denies({"under": "/repo/caf\u00e9"}, "/repo/cafe\u0301/x")
    assert denies({"under": "/repo/CAF\u00c9"}, "/repo/caf\u00e9/x")
    assert not allows({"under": "/etc"}, "/ETC/passwd")
    assert not allows({"under": "/repo/caf\u00e9"}, "/repo/cafe\u0301/x")


def test_a_path_is_followed_once_for_all_rules_of_a_judgement() -> None:
    asked: list[str] = []

    class Counting(FakePaths):
        def link(self, path: str) -> str | None:
            asked.append(path)
            return super().link(path)

    context = CallContext("/repo", Counting())
    for _ in range(3):
        assert parse("it", {"under": "/repo"}).matches({"it": "x"}, reach=NARROW, context=context)
    assert asked == ["/repo", "/repo/x"]


@pytest.mark.parametrize(
    "directory",
    [
        *("/repo/*", "src/**", "*", "/r*/src", "/{a,b}", "/[a-z]", "~root", "$HOME", "/a/$HOME"),
        *("file:///repo", "C:/repo", "/a\0", " /a", 7, ""),
    ],
)
def test_what_is_no_certain_directory_is_refused(directory: Json) -> None:
    with pytest.raises(RuleInvalid) as caught:
        parse("it", {"under": directory})
    assert caught.value.pointer == ("under",)
