"""An install line is understood or refused; it never reaches a shell, and never floats."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pml.core.errors import Invalid
from pml.core.packages.install_line import parse_install
from pml.core.packages.package import Ecosystem, Package
from pml.core.packages.shell_words import split_words
from pml.core.text import has_hidden
from tests.promises import promise


def npm(name: str, version: str = "1.2.3", *args: str, tool: str | None = None) -> Package:
    return Package(ecosystem=Ecosystem.NPM, name=name, version=version, args=args, tool=tool)


def pypi(name: str, version: str = "1.2.3", *args: str, tool: str | None = None) -> Package:
    return Package(ecosystem=Ecosystem.PYPI, name=name, version=version, args=args, tool=tool)


def refusal(line: str, *, version: str | None = None) -> Invalid:
    with pytest.raises(Invalid) as caught:
        parse_install(line, version=version)
    return caught.value


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("npx @scope/name@1.2.3", npm("@scope/name")),
        ("npx @scope/name@1.2.3 -y --registry=x a", npm("@scope/name", "1.2.3", "-y", "--registry=x", "a")),
        ("npx  -y   name@1.2.3-beta.1 ", npm("name", "1.2.3-beta.1")),
        ("npx --yes -- name@1.2.3 -x", npm("name", "1.2.3", "-x")),
        ("npx -p @scope/name@1.2.3 other a", npm("@scope/name", "1.2.3", "a", tool="other")),
        ("npx --package=@scope/name@1.2.3 name", npm("@scope/name")),
        ("npm exec name@1.2.3", npm("name")),
        ("npm exec -y name@1.2.3 a -- --b", npm("name", "1.2.3", "a", "--b")),
        ("npm exec --package=name@1.2.3 -- other --b", npm("name", "1.2.3", "--b", tool="other")),
        ("npm x -- name@1.2.3 --b", npm("name", "1.2.3", "--b")),
        ("npm install -g name@1.2.3", npm("name")),
        ("npm i name@1.2.3 --ignore-scripts", npm("name")),
        ("bunx name@1.2.3 a", npm("name", "1.2.3", "a")),
        ("pnpm dlx name@1.2.3 a", npm("name", "1.2.3", "a")),
        ("deno run -A --allow-net=x.test npm:@scope/name@1.2.3 a", npm("@scope/name", "1.2.3", "a")),
        ("uvx name==1.2.3 --tz UTC", pypi("name", "1.2.3", "--tz", "UTC")),
        ("uvx name@1.2.3", pypi("name")),
        ("uvx Some_Name.x==2025.1.13rc1.post2", pypi("some-name-x", "2025.1.13rc1.post2")),
        ("uvx --from name==1.2.3 other a", pypi("name", "1.2.3", "a", tool="other")),
        ("uvx --from=name==1.2.3 name", pypi("name")),
        ("uv tool run name==1.2.3 a", pypi("name", "1.2.3", "a")),
        ("uv tool install name==1.2.3", pypi("name")),
        ("uv pip install name==1.2.3", pypi("name")),
        ("pip install --user -- name==1.2.3", pypi("name")),
        ("pip3 install name==1.2.3 -q", pypi("name")),
        ("pipx run --spec name==1.2.3 other", pypi("name", tool="other")),
        ("pipx install name==1.2.3", pypi("name")),
    ],
)
def test_a_line_as_people_write_it_names_one_package_at_one_version(line: str, package: Package) -> None:
    assert parse_install(line) == package


def test_quoted_arguments_are_split_as_a_shell_would_split_them() -> None:
    line = r"""npx name@1.2.3 'a b' "c \"d\" \n" e\ f g'h'"i" '$HOME;|&' "" "*" \; '~' "#" é"""
    assert parse_install(line).args == (
        *("a b", r'c "d" \n', "e f", "ghi", "$HOME;|&", "", "*", ";", "~", "#", "é"),
    )


def test_the_placeholders_that_pml_fills_in_are_kept() -> None:
    line = """npx name@1.2.3 ${workspace} --db=${state}/x "${workspace}/a b" '${state}'"""
    assert parse_install(line).args == ("${workspace}", "--db=${state}/x", "${workspace}/a b", "${state}")


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.sampled_from(" '\"\\;|&$`<>()*?~#{}"),
    max_size=12,
).filter(lambda word: not has_hidden(word))


@given(words=st.lists(WORDS, max_size=5))
def test_words_quoted_for_a_shell_come_out_as_they_went_in(words: list[str]) -> None:
    assert [word.text for word in split_words(shlex.join(words))] == words


@promise("install:never-a-shell")
@given(line=st.text(st.sampled_from("ab '\"\\;|&$`<>()\n{}"), max_size=20))
def test_a_line_that_is_accepted_splits_as_a_shell_would_split_it_and_has_no_operator(line: str) -> None:
    try:
        words = [word.text for word in split_words(line)]
    except Invalid:
        return
    assert words == shlex.split(line)
    plain = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    plain.whitespace_split = True
    plain.commenters = ""
    assert list(plain) == words


@promise("install:never-a-shell")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("npx name@1.2.3; rm -rf x", "it has `;` at `; rm -rf x`"),
        ("npx name@1.2.3 && id", "it has `&`"),
        ("npx name@1.2.3 | sh", "it has `|`"),
        ("npx name@1.2.3 > out", "it has `>`"),
        ("npx name@1.2.3 < in", "it has `<`"),
        ("npx name@1.2.3 (id)", "it has `(`"),
        ("npx name@1.2.3 $HOME", "it has `$` at `$HOME`"),
        ("npx name@1.2.3 ${HOME}", "it has `$`"),
        ("npx name@1.2.3 ${workspace", "it has `$`"),
        ("npx name@1.2.3 $(id)", "it has `$`"),
        ('npx name@1.2.3 "$(id)"', "it has `$`"),
        ("npx name@1.2.3 `id`", "it has ```"),
        ('npx name@1.2.3 "`id`"', "it has ```"),
        ("npx name@1.2.3 '${HOME}'", "`${HOME}` has a placeholder that is none of"),
        ("npx name@1.2.3\nid", "it has a line break"),
        ("npx name@1.2.3 'a\rb'", "it has a line break"),
        ("npx name@1.2.3 a\x00", "it has hidden characters"),
        ("npx name@1.2.3 '\u202ea'", "it has hidden characters"),
        ("npx\tname@1.2.3", "it has hidden characters"),
        ("npx name@1.2.3 'a", "it has a `'` that is never closed"),
        ('npx name@1.2.3 "a', 'it has a `"` that is never closed'),
        ("npx name@1.2.3 a\\", "it ends in a backslash"),
        ("npx name@1.2.3 *", "`*` would be expanded by a shell"),
        ("npx name@1.2.3 ~/x", "`~/x` would be expanded by a shell"),
        ("npx name@1.2.3 {a,b}", "`{a,b}` would be expanded by a shell"),
        ("npx name@1.2.3 #a", "`#a` would be expanded by a shell"),
        ("TOKEN=1 npx name@1.2.3", "`TOKEN=1` sets a variable"),
        ("env npx name@1.2.3", "`env` says no package of npm or PyPI"),
        ("sh -c 'npx name@1.2.3'", "`sh` says no package of npm or PyPI"),
        ("/usr/bin/npx name@1.2.3", "`/usr/bin/npx` says no package of npm or PyPI"),
        ("npx -c 'id'", "`-c` is an option that PML does not know"),
        ("npx name@1.2.3 " + "a" * 4096, "it has 4,111 characters, more than 4,096"),
    ],
)
def test_what_only_a_shell_could_do_is_refused_with_its_reason(line: str, reason: str) -> None:
    message = refusal(line).message
    assert reason in message
    assert not has_hidden(message)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "nothing says no package"),
        ("npx", "it names no package"),
        ("npm", "`npm` says no package of npm or PyPI"),
        ("npx -y", "it names no package"),
        ("python -m name", "`python` says no package of npm or PyPI"),
        ("uvx --from name==1.2.3", "it names a package, but no program of it"),
        ("uvx --from", "`--from` has no value"),
        ("uvx --from name==1.2.3 ./other", "`./other` is not a name of a program of the package"),
        ("uvx --from name==1.2.3 --from b==1.0 c", "`--from` is more than the one package"),
        ("npx https://x.test/a.tgz", "`https://x.test/a.tgz` is a URL"),
        ("npx git+ssh://git@x.test/a", "is a URL"),
        ("npx git@x.test:a/b", "is a URL"),
        ("npx github:a/b", "is a URL"),
        ("npx file:a", "is a URL"),
        ("npx name@npm:other@1.2.3", "`name@npm:other@1.2.3` is a URL or an alias"),
        ("npx name@https://x.test/a", "is a URL"),
        ("uvx git+https://x.test/a", "is a URL"),
        ("uvx 'name @ https://x.test/a.whl'", "is a URL"),
        ("npx a/b", "`a/b` is a repository or a file"),
        ("npx ./a", "`./a` is a file"),
        ("npx ../a@1.2.3", "`../a@1.2.3` is a file"),
        ("npx a.tgz", "`a.tgz` is a file"),
        ("pip install a-1.0.whl", "`a-1.0.whl` is a file"),
        ("pip install .", "`.` is a file"),
        ("deno run jsr:@a/b@1.2.3", "is not a package of npm: expected `npm:name@1.2.3`"),
        ("deno run https://x.test/a.ts", "is not a package of npm: expected `npm:name@1.2.3`"),
        ("uvx 'name[cli]==1.2.3'", "`name[cli]==1.2.3` has extras"),
        ("npx --registry=https://x.test name@1.2.3", "`--registry=https://x.test` names a registry"),
        ("npm exec name@1.2.3 --registry https://x.test", "`--registry` names a registry"),
        ("npm install name@1.2.3 --registry https://x.test", "`--registry` names a registry"),
        ("uvx --index-url https://x.test name==1.2.3", "`--index-url` names a registry"),
        ("pip install name==1.2.3 --extra-index-url=x", "`--extra-index-url=x` names a registry"),
        ("pip install --find-links x name==1.2.3", "`--find-links` names a registry"),
        ("pip install -r x", "`-r` brings in more than the one package"),
        ("uvx --with other name==1.2.3", "`--with` brings in more than the one package"),
        ("npm install name@1.2.3 other@1.2.3", "`other@1.2.3` is more than the one package"),
        ("pip install name==1.2.3 -- other==1.2.3", "`other==1.2.3` is more than the one package"),
        ("npx --node-options=x name@1.2.3", "`--node-options=x` is an option that PML does not know"),
        ("npx @scope@1.2.3", "`@scope@1.2.3` is not a name of a package of npm"),
        ("npx node_modules@1.2.3", "is not a name of a package of npm"),
        ("npx -- -name@1.2.3", "`-name@1.2.3` is not a name of a package of npm"),
        ("uvx -- -name==1.2.3", "`-name==1.2.3` is not a name of a package of pypi"),
        ("npx @a/../b@1.2.3", "is not a name of a package of npm"),
        ("uvx na/me==1.2.3", "`na/me==1.2.3` is not a name of a package of pypi"),
        ("npx ñame@1.2.3", "is not a name of a package of npm"),
        (f"npx {'a' * 215}@1.2.3", "is not a name of a package of npm"),
    ],
)
def test_what_is_not_one_package_by_its_name_is_refused_naming_the_word(line: str, reason: str) -> None:
    assert reason in refusal(line).message


@promise("install:pinned")
@pytest.mark.parametrize(
    "line",
    [
        "npx name",
        "npx @scope/name",
        *(
            f"npx 'name@{version}'"
            for version in (
                *("", "latest", "^1.2.3", "~1.2.3", ">=1.2.3", "1", "1.2", "1.x", "1.2.*", "*", "v1.2.3"),
                *("=1.2.3", "1.2.3 || 2.0.0", "01.2.3", "1.2.3+build", "1.2.3-01", "1.2.3/x", "next"),
            )
        ),
        "uvx name",
        *(
            f"uvx 'name{version}'"
            for version in (
                *("@latest", "@", ">=1", "~=1.2", "==1.*", "===1.2.3", "==", "!=1.0", "==1.2.3,<2", "<2"),
                *("==1.2.3 ", "==01.2", "==1.2+local", "==1.2.3; python_version>'3'", "==v1.2"),
            )
        ),
    ],
)
def test_a_line_without_one_exact_version_is_refused_with_how_to_write_it(line: str) -> None:
    found = refusal(line.replace("'3'", "3"))
    assert "it says no exact version of" in found.message
    assert found.hint in (
        *("write it like `npx name@1.2.3`", "write it like `npx @scope/name@1.2.3`"),
        "write it like `uvx name==1.2.3`",
    )


@promise("install:pinned")
def test_a_version_said_beside_the_line_pins_it_and_never_differs_from_it() -> None:
    assert parse_install("npx name", version="1.2.3") == npm("name")
    assert parse_install("npx name@1.2.3", version="1.2.3") == npm("name")
    assert "says version `1.2.3` of `name`, but `version` says `1.2.4`" in (
        refusal("npx name@1.2.3", version="1.2.4").message
    )
    assert "it says no exact version of `name`: `latest` is not one" in (
        refusal("npx name@latest", version="1.2.3").message
    )
    assert "it says no exact version of `name`: `^1` is not one" in refusal("npx name", version="^1").message
