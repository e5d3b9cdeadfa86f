"""The argument `*`: a path is found wherever it stands and however it is written; nothing else is one."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pml.registry
from pml.core.rules.any_argument import MAX_SEGMENTS, MAX_TEXTS
from pml.core.rules.matchers import Reach, RuleInvalid, parse_matcher
from pml.core.rules.places import CallContext
from pml.core.rules.ruleset import Effect, parse_entry
from pml.core.values import Json, JsonObject
from tests.core.judging import PATHS, FakePaths
from tests.promises import promise

SSH: JsonObject = {"under": "~/.ssh"}
CATALOG = Path(pml.registry.__file__).parent / "bundled" / "filesystem.json"


def finds(
    arguments: JsonObject, spec: Json = SSH, *, cwd: str | None = "/repo", paths: FakePaths = PATHS
) -> bool:
    matcher = parse_matcher("*", spec, reach=Reach.WIDE, base_dir="/repo", home=paths.home)
    return matcher.matches(arguments, reach=Reach.WIDE, context=CallContext(cwd, paths))


@promise("rules:any-argument")
@pytest.mark.parametrize(
    "text",
    [
        *("~/.ssh", "~/.ssh/id_rsa", "/home/ada/.ssh/id_rsa", "../home/ada/.ssh/x", "/home/ada/x/../.ssh/y"),
        *("file:///home/ada/.ssh/x", "file://localhost/home/ada/.ssh/x", "view-source:file:///home/ada/.ssh"),
        *("%2Fhome/ada/.ssh/x", "/home/ada/%2essh/x", "file:///home/ada/%2Essh", "$HOME/.ssh/x"),
        *("${HOME}/.ssh", "%HOME%/.ssh", "~ada/.ssh/x", "/HOME/ada/.SSH/x", " ~/.ssh/x ", "~/.ssh/x\n"),
        *(
            "/home/ada/.s*/id",
            "~/.ssh/*",
            "~/**",
            "/**/id_rsa",
            "/home/*/.ssh/x",
            "~/.ss[h]/x",
            "~/{.ssh,x}/y",
        ),
        *(
            "\\home\\ada\\.ssh\\x",
            "sftp:/home/ada/.ssh/x",
            "localhost:/home/ada/.ssh",
            "{a,/home/ada/.ssh}/x",
        ),
        *(
            "~/My Files/../.ssh/id",
            "\u200b~/.ssh/x",
            "/proc/self/cwd/x",
            "$SOMEWHERE/x",
            "${X}/y",
            "src/*/../../x",
        ),
        "/home/ada/.ssh/a\0b",
    ],
)
def test_a_path_is_found_in_every_argument_and_spelling(text: str) -> None:
    assert finds({"paths": ["src/a.ts", text]})
    assert finds({"source": "src/a.ts", "destination": text})
    assert finds({"anything": {"deep": [[{"er": text}]]}})
    assert finds({"files": {text: "content"}})


ORDINARY: dict[str, list[JsonObject]] = {
    "create_directory": [{"path": "src/new"}, {"path": "/repo/src/new"}],
    "directory_tree": [{"path": ".", "excludePatterns": ["node_modules", "**/*.lock", ".git/**", "dist/*"]}],
    "edit_file": [
        {"path": "src/a.ts", "dryRun": True, "edits": [{"oldText": old, "newText": new}]}
        for old, new in (
            ("return a / b;", "return a // b;"),
            ("import x from './y.js';", "import { x } from '../lib/y.js';"),
            ("const x = `${a}/b`;", 'const url = "https://example.com/a?b=c";'),
            ("<a href='/x'>~5</a>", "</div>"),
            ("version: 1/2", "Note: see docs/a.md, or ~/notes"),
            ("s/a\\d+/b/g", "C:\\new\\table"),
            ('{"a": "b/c", "d": ["/e", "~"]}', "echo $HOME/bin && ls ~/x | wc -l"),
            ("$total / $count", "50%/year, 100%af/x"),
            ("x = {a, b/c}", "if (a+(b/c)) {}"),
            ("line one\nline /two\n", "~/.ssh is where keys lie\nand /home/ada/.ssh too\n"),
        )
    ],
    "get_file_info": [{"path": "a.txt"}],
    "list_allowed_directories": [{}],
    "list_directory": [{"path": "/repo"}],
    "list_directory_with_sizes": [{"path": "src", "sortBy": "size"}],
    "move_file": [{"source": "src/a.ts", "destination": "/repo/lib/[id].ts"}],
    "read_file": [{"path": "src/app/[slug]/page.tsx", "head": 10, "tail": 5}],
    "read_media_file": [{"path": "img/a b.png"}],
    "read_multiple_files": [{"paths": ["a.txt", "src/b.ts", "/repo/@types/x.d.ts"]}],
    "read_text_file": [{"path": "~/notes/a.txt", "head": 3, "tail": 4}, {"path": "~/.sshx/a"}],
    "search_files": [
        {"path": "src", "pattern": pattern, "excludePatterns": ["**/node_modules/**", "!keep/*"]}
        for pattern in (
            "*.ts",
            "**/*.ts",
            "src/**/{a,b}.ts",
            "?(x).md",
            "+(a|b)/*.js",
            "[a-z]*/x",
            "foo/\\w+$",
        )
    ],
    "write_file": [
        {"path": "src/a.ts", "content": content}
        for content in (
            "",
            "hello",
            "see /etc and ~",
            "#!/bin/sh\ncat ~/.ssh/id_rsa\n",
            "a/" * 3000,
            "x" * 9000,
        )
    ],
}


@promise("rules:any-argument")
@pytest.mark.parametrize("tool", sorted(ORDINARY))
def test_ordinary_arguments_of_the_catalogs_file_server_pass(tool: str) -> None:
    for arguments in ORDINARY[tool]:
        assert not finds(arguments), arguments


def test_the_ordinary_arguments_are_those_of_the_catalogs_file_server() -> None:
    tools = {tool["name"]: tool["inputSchema"] for tool in json.loads(CATALOG.read_text("utf-8"))["tools"]}
    assert tools.keys() == ORDINARY.keys()
    for tool, ordinary in ORDINARY.items():
        named = {name for arguments in ordinary for name in arguments}
        assert named == set(tools[tool].get("properties", {})), tool


def test_other_values_never_match() -> None:
    values: list[Json] = [None, True, 7, 1.5, "", " ", [], {}, "plain words", "a.txt", ".ssh"]
    for value in values:
        assert not finds({"content": value, "n": [value]})


def test_a_bare_name_is_a_path_in_an_argument_that_is_named_like_a_location() -> None:
    assert finds({"file": "id_rsa"}, cwd="/home/ada/.ssh")
    assert not finds({"title": "id_rsa"}, cwd="/home/ada/.ssh")
    assert finds({"path": "link"}, paths=FakePaths(links={"/repo/link": "/home/ada/.ssh"}))


def test_without_a_folder_a_relative_path_is_in_doubt_and_an_absolute_one_is_not() -> None:
    assert finds({"path": "src/x"}, cwd=None)
    assert not finds({"path": "/repo/src/x"}, cwd=None)


def test_more_texts_or_segments_than_are_read_are_in_doubt() -> None:
    assert not finds({"list": [f"a/{n}" for n in range(MAX_TEXTS)]})
    assert finds({"list": [f"a/{n}" for n in range(MAX_TEXTS + 1)]})
    assert finds({"list": ["a/" * 2000 + str(n) for n in range(MAX_SEGMENTS // 2000 + 1)]})


@promise("rules:any-argument")
@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////home/ada/.ssh/x",
        "sqlite:///home/ada/.ssh/x",
        "fs:///home/ada/.ssh/x",
        "resource:///home/ada/.ssh/x",
        "resource://home/ada/../../home/ada/.ssh/x",
        "vscode://file/home/ada/.ssh/x",
        "vscode://file/home/ada/%2essh/x",
        "a=/home/ada/.ssh/x",
        "--identity=~/.ssh/x",
        "a=b=/home/ada/.ssh",
        "a.txt,/home/ada/.ssh/x",
        "a.txt; ~/.ssh/x",
        "notes/a|../home/ada/.ssh/x|b",
        ",".join(f"/a{n}" for n in range(300)),
        "@/home/ada/.ssh/x",
        "file=/home/ada/*/x",
    ],
)
def test_a_path_is_found_within_a_uri_and_after_a_sign(text: str) -> None:
    assert finds({"anything": text})


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/home/ada/.ssh/x",
        "a={b}/c",
        "<a href={x}/>",
        "FOO=$BAR/x",
        "ana@example.com/x",
        "a==/b",
        "vscode://file/repo/x",
        "sqlite:////repo/x.db",
        "a.txt, b/c.txt",
        "keep ~/.ssh, they say",
        "=/",
    ],
)
def test_what_only_looks_like_one_is_not_in_doubt(text: str) -> None:
    assert not finds({"anything": text})


JOINED: list[JsonObject] = [
    {"cwd": "/home/ada", "path": ".ssh/id_rsa"},
    {"cwd": "~", "paths": ["a.txt", ".ssh/id_rsa"]},
    {"root": "/", "file": "home/ada/.ssh/id"},
    {"root": "/home", "dir": "ada", "file": ".ssh/id"},
    {"repo_path": "/home/ada", "files": {".ssh": "x"}},
    {"path": ["/home", "ada", ".ssh", "id"]},
    {"cwd": "file:///home/ada", "path": "%2essh/id"},
    {"cwd": "/home/ada", "path": "/.ssh/id"},
    {"cwd": "/home/ada/new", "path": "../.ssh/id"},
    {"cwd": "/home/ada/notes", "path": "keys/id"},
    {"/home/ada": [".ssh/id"]},
    {"cwd": "/home/ada", "pattern": "*/id_rsa"},
]


@promise("rules:paths-from-every-folder")
@pytest.mark.parametrize("arguments", JOINED)
def test_a_path_is_read_from_the_folders_that_other_arguments_name(arguments: JsonObject) -> None:
    paths = FakePaths(
        links={"/home/ada/notes/keys": "/home/ada/.ssh"},
        folders=frozenset({"/", "/home", "/home/ada", "/home/ada/notes"}),
        missing=frozenset({"/home/ada/new"}),
    )
    assert finds(arguments, paths=paths)
    assert not finds(arguments, {"under": "/home/eve/.ssh"}, paths=paths)


@pytest.mark.parametrize(
    "arguments",
    [
        {"cwd": "/home/ada", "path": "notes/.ssh"},
        {"source": "/home/ada/a.txt", "destination": "/repo/.ssh"},
        {"path": "/home/ada", "pattern": "*.md"},
        {"path": "..", "file": "ada/.ssh/id"},
        {"cwd": "/home/ada", "files": [{"path": "a/b", "content": "see .ssh/ there"}]},
    ],
)
def test_arguments_that_lead_elsewhere_together_pass(arguments: JsonObject) -> None:
    paths = FakePaths(folders=frozenset({"/", "/home", "/home/ada", "/repo"}))
    assert not finds(arguments, cwd="/home/ada/a/b", paths=paths)


def test_more_paths_of_two_arguments_than_are_read_are_in_doubt() -> None:
    few, many = ([f"d{number}" for number in range(count)] for count in (20, 200))
    paths = FakePaths(folders=frozenset(f"/repo/{name}" for name in many))
    assert not finds({"paths": few}, paths=paths)
    assert finds({"paths": many}, paths=paths)
    assert not finds({"paths": many}, paths=FakePaths())  # files: nothing is opened from them
    assert not finds({"cwd": "/repo/d1", "paths": [f"{number}/x" for number in range(4_000)]}, paths=paths)


HOSTED: JsonObject = {"host": "*.evil.example"}


@promise("rules:any-argument")
@pytest.mark.parametrize(
    "arguments",
    [
        {"anything": "https://a.evil.example/x"},
        {"urls": [{"url": "a.evil.example/x"}]},
        {"remote": "ssh://git@a.evil.example/x"},  # no parser of ours reads it: in doubt
        {"link": "https://a.evil.example:99999/"},
    ],
)
def test_a_url_is_found_in_every_argument(arguments: JsonObject) -> None:
    assert finds(arguments, HOSTED)


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://good.example/a.evil.example"},
        {"text": "see https://a.evil.example"},
        {"path": "/a.evil.example", "file": "file:///a.evil.example"},
        {"content": "a.evil.example"},
        {"url": 7},
    ],
)
def test_what_is_no_url_to_that_host_does_not_match(arguments: JsonObject) -> None:
    assert not finds(arguments, HOSTED)


def test_a_literal_and_a_glob_are_found_in_every_argument() -> None:
    assert finds({"a": [{"b": 7}]}, 7)
    assert finds({"a": {"b": ["x", "y"]}}, {"is": ["x", "y"]})
    assert not finds({"a": "7"}, 7)
    assert finds({"a": {"b": ["no", "top secret"]}}, {"glob": "*secret*"})


@promise("rules:any-argument")
def test_an_allow_must_name_its_arguments() -> None:
    entry: Json = {"tool": "fs:*", "args": {"*": {"under": "."}}}
    with pytest.raises(RuleInvalid, match="an allow must name the ones that it allows") as caught:
        parse_entry(Effect.ALLOW, entry, source=None, base_dir="/repo", paths=PATHS)
    assert caught.value.pointer == ("args", "*")


def test_an_argument_that_is_really_named_so_is_a_pointer() -> None:
    matcher = parse_matcher("/*", 7, reach=Reach.NARROW, base_dir="/repo", home="/home/ada")
    assert matcher.matches({"*": 7}, reach=Reach.NARROW, context=CallContext("/repo", PATHS))
    assert not matcher.matches({"a": 7}, reach=Reach.NARROW, context=CallContext("/repo", PATHS))


_TEXTS = st.text(st.sampled_from("ab/.~ \\$%{}[]*?:'\"\n\t\0é")) | st.text()


@given(
    st.recursive(
        _TEXTS | st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner)
    )
)
def test_judging_never_raises(value: Any) -> None:
    for spec in (SSH, HOSTED, {"glob": "*a*"}, 7):
        finds({"it": value}, spec)
