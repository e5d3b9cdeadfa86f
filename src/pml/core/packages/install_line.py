"""The `install` line of a dependency: a command as people write it, understood and never executed.

What comes out is one package of npm or PyPI, or one MCP bundle, at one exact version. Whatever could bring in
other bytes than its own (URLs, files, other registries, further packages) is refused with its reason.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

from pml.core.errors import Invalid
from pml.core.packages.package import Ecosystem, Package, is_name, is_version, normal_name
from pml.core.packages.shell_words import Word, check_placeholders, split_words
from pml.core.text import quote


class _Form(Enum):
    """Where a command's own options end."""

    RUN = "at the package"  # what follows the package is the server's
    EXEC = "at `--`"  # so for `npm exec`, which also takes options behind the package
    INSTALL = "nowhere"  # nothing is the server's


@dataclass(frozen=True, kw_only=True, slots=True)
class _Program:
    """How one installer reads its command line. `flags` change nothing of what is installed."""

    ecosystem: Ecosystem
    form: _Form
    flags: frozenset[str] = frozenset()
    package_options: frozenset[str] = frozenset()
    prefix: str = ""
    flag_prefixes: tuple[str, ...] = ()


_QUIET: Final = frozenset({"-q", "--quiet"})
_YES: Final = frozenset({"-y", "--yes"})
_NPM_EXEC: Final = _Program(
    ecosystem=Ecosystem.NPM,
    form=_Form.EXEC,
    flags=_YES | _QUIET,
    package_options=frozenset({"--package"}),
)
_NPM_INSTALL: Final = _Program(
    ecosystem=Ecosystem.NPM,
    form=_Form.INSTALL,
    flags=_YES | _QUIET | {"-g", "--global", "--ignore-scripts", "-E", "--save-exact"},
)
_NPM_RUN: Final = _Program(
    ecosystem=Ecosystem.NPM,
    form=_Form.RUN,
    flags=_YES | _QUIET,
    package_options=frozenset({"-p", "--package"}),
)
_UVX: Final = _Program(
    ecosystem=Ecosystem.PYPI,
    form=_Form.RUN,
    flags=_QUIET | {"--isolated", "--no-cache"},
    package_options=frozenset({"--from"}),
)
_PIPX_RUN: Final = _Program(
    ecosystem=Ecosystem.PYPI, form=_Form.RUN, flags=_QUIET, package_options=frozenset({"--spec"})
)
_PIP: Final = _Program(
    ecosystem=Ecosystem.PYPI, form=_Form.INSTALL, flags=_QUIET | {"--user", "--no-cache-dir", "--force"}
)
_DENO: Final = _Program(
    ecosystem=Ecosystem.NPM,
    form=_Form.RUN,
    flags=_QUIET | {"-A", "--no-prompt"},
    flag_prefixes=("--allow-", "--deny-"),  # what it may do is said by `permissions`
    prefix="npm:",
)
_PROGRAMS: Final[Mapping[tuple[str, ...], _Program]] = {
    ("npx",): _NPM_RUN,
    ("bunx",): _NPM_RUN,
    ("pnpm", "dlx"): _NPM_RUN,
    ("npm", "exec"): _NPM_EXEC,
    ("npm", "x"): _NPM_EXEC,
    ("npm", "install"): _NPM_INSTALL,
    ("npm", "i"): _NPM_INSTALL,
    ("deno", "run"): _DENO,
    ("uvx",): _UVX,
    ("uv", "tool", "run"): _UVX,
    ("uv", "tool", "install"): _PIP,
    ("uv", "pip", "install"): _PIP,
    ("pip", "install"): _PIP,
    ("pip3", "install"): _PIP,
    ("pipx", "run"): _PIPX_RUN,
    ("pipx", "install"): _PIP,
}
_REGISTRY_OPTIONS: Final = frozenset(
    {"--registry", "--index-url", "--extra-index-url", "--index", "--default-index", "--find-links"}
    | {"-i", "-f", "--userconfig", "--globalconfig", "--config-file"}
)
_FILE_OPTIONS: Final = frozenset(
    {"-r", "--requirement", "--requirements", "--constraint", "--constraints", "-e", "--editable"}
    | {"--with", "--with-requirements", "--with-editable", "--prefix", "--target", "-t"}
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.*|.*://.*|git@.*", re.DOTALL)
_FILE: Final = re.compile(r"[./~].*|.*\.(?:tgz|tar|tar\.gz|tar\.bz2|whl|zip)", re.IGNORECASE)
_TOOL: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_EXAMPLES: Final = {
    Ecosystem.NPM: "npx {}@1.2.3",
    Ecosystem.PYPI: "uvx {}==1.2.3",
    Ecosystem.MCPB: "mcpb /folder/{}.mcpb",
}
_BUNDLE: Final = "mcpb"


def parse_install(line: str, *, version: str | None = None) -> Package:
    """Return the package that `line` installs or runs; `version` is what else is said of its version.

    Raises: Invalid, with the reason and the word that gave it.
    """
    try:
        return _package(split_words(line), version)
    except Invalid as exc:
        raise Invalid(f"install line {quote(line)}: {exc.message}", hint=exc.hint) from exc


def _package(words: tuple[Word, ...], version: str | None) -> Package:
    if words and words[0].text == _BUNDLE:
        return _bundle(words[1:], version)
    if words and _ASSIGNMENT.fullmatch(words[0].text):
        _refuse(words[0], "sets a variable", hint="name it in `env_required`, or its value in `env`")
    program, rest = _program(words)
    reading = _Reading(program)
    reading.read(rest)
    if reading.spec is None:
        raise Invalid(
            "it names no package", hint="expected a line like `npx name@1.2.3` or `uvx name==1.2.3`"
        )
    if reading.is_named and reading.tool is None:
        raise Invalid("it names a package, but no program of it")
    name, pinned = _parse_spec(reading.spec, program)
    for word in reading.args:
        if word.expands:
            _refuse(word, "would be expanded by a shell, and none runs it", hint="quote it")
        check_placeholders(word.text)
    return Package(
        ecosystem=program.ecosystem,
        name=name,
        version=_exact_version(name, pinned, version, program.ecosystem),
        tool=None if reading.tool is None else _parse_tool(reading.tool, name),
        args=tuple(word.text for word in reading.args),
    )


def _bundle(words: tuple[Word, ...], version: str | None) -> Package:
    """Return the package that `mcpb https://…/name.mcpb`, or a file by its whole path, means."""
    if len(words) != 1:
        raise Invalid("it must name one `.mcpb` file", hint="expected `mcpb https://…/name.mcpb`")
    origin = words[0].text
    if not origin.startswith(("https://", "/")):
        _refuse(words[0], "is neither an https URL nor a file by its whole path")
    name = bundle_name(origin)
    if version is None:
        raise Invalid("`version` must say which version the bundle is")
    return Package(
        ecosystem=Ecosystem.MCPB,
        name=name,
        version=_exact_version(name, None, version, Ecosystem.MCPB),
        origin=origin,
    )


def bundle_line(origin: str) -> str:
    """Return the line that names the MCP bundle at `origin`."""
    return f"{_BUNDLE} {shlex.quote(origin)}"


def bundle_name(origin: str) -> str:
    """Return the name of the MCP bundle at `origin`: that of its file."""
    stem = re.split(r"[?#]", origin)[0].rpartition("/")[2].removesuffix(".mcpb")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100]
    return name or "bundle"


def _program(words: tuple[Word, ...]) -> tuple[_Program, tuple[Word, ...]]:
    for length in (3, 2, 1):
        found = _PROGRAMS.get(tuple(word.text for word in words[:length]))
        if found is not None and len(words) >= length:
            return found, words[length:]
    first = quote(words[0].text) if words else "nothing"
    raise Invalid(
        f"{first} says no package of npm or PyPI",
        hint="expected a line like `npx name@1.2.3`, `uvx name==1.2.3` or `pip install name==1.2.3`",
    )


class _Reading:
    """One command line behind its program: the package, the tool if it has another name, the arguments."""

    def __init__(self, program: _Program) -> None:
        self._program = program
        self.spec: Word | None = None
        self.tool: Word | None = None
        self.args: tuple[Word, ...] = ()
        self.is_named = False  # the package stands in an option, so the first word is the tool

    def read(self, words: tuple[Word, ...]) -> None:
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word.text == "--":
                return self._read_rest(words[at:])
            if word.text.startswith("-"):
                at += self._read_option(word, words[at : at + 1])
            elif self._program.form is _Form.RUN:
                self._read_word(word)
                self.args = words[at:]
                return None
            else:
                self._read_word(word)
        return None

    def _read_rest(self, words: tuple[Word, ...]) -> None:
        """Read what follows `--`: the package or tool if it is not there yet, then the server's arguments."""
        at = 0
        is_complete = self.tool if self.is_named else self.spec
        if is_complete is None and words:
            self._read_word(words[0])
            at = 1
        if self._program.form is _Form.INSTALL and words[at:]:
            _refuse(words[at], "is more than the one package")
        self.args = (*self.args, *words[at:])

    def _read_option(self, word: Word, following: tuple[Word, ...]) -> int:
        """Read an option; return how many words of `following` are its value."""
        name, equals, value = word.text.partition("=")
        program = self._program
        if word.text in program.flags or word.text.startswith(program.flag_prefixes):
            return 0
        if name in program.package_options:
            if self.spec is not None:
                _refuse(word, "is more than the one package")
            if not equals and not following:
                _refuse(word, "has no value")
            self.spec = Word(text=value, expands=False) if equals else following[0]
            self.is_named = True
            return 0 if equals else 1
        if name in _REGISTRY_OPTIONS:
            _refuse(word, "names a registry: packages come from the one this machine is set up to use")
        if name in _FILE_OPTIONS:
            _refuse(word, "brings in more than the one package")
        _refuse(
            word, "is an option that PML does not know", hint="arguments of the server come after the package"
        )

    def _read_word(self, word: Word) -> None:
        if self.is_named and self.tool is None:
            self.tool = word
        elif self.spec is None:
            self.spec = word
        elif self._program.form is _Form.EXEC:
            self.args = (*self.args, word)
        else:
            _refuse(word, "is more than the one package")


def _parse_spec(word: Word, program: _Program) -> tuple[str, str | None]:
    """Return the name and the version, if there is one, that a word such as `name@1.2.3` says."""
    text = word.text
    if program.prefix:
        if not text.startswith(program.prefix):
            _refuse(word, f"is not a package of npm: expected `{program.prefix}name@1.2.3`")
        text = text.removeprefix(program.prefix)
    if _URL.fullmatch(text.split("@", 1)[-1].strip()) or _URL.fullmatch(text):
        _refuse(word, "is a URL or an alias: only packages by name are installed")
    name, version = _split_spec(text, program.ecosystem)
    if _FILE.fullmatch(text):
        _refuse(word, "is a file: only packages by name are installed")
    if "[" in text:
        _refuse(word, "has extras, which are not supported")
    if program.ecosystem is Ecosystem.NPM and "/" in name and not name.startswith("@"):
        _refuse(word, "is a repository or a file: only packages by name are installed")
    if not is_name(name, program.ecosystem):
        _refuse(word, f"is not a name of a package of {program.ecosystem}")
    return normal_name(name, program.ecosystem), version


def _split_spec(text: str, ecosystem: Ecosystem) -> tuple[str, str | None]:
    """Split at the version; `name@1.2.3` is also how `uvx` takes it."""
    if ecosystem is Ecosystem.PYPI and (found := re.search(r"[=<>!~^ ]", text)):
        name, operator = text[: found.start()], text[found.start() :]
        return name, operator.removeprefix("==")
    name, at, version = text[1:].partition("@")
    return text[:1] + name, version if at else None


def _exact_version(name: str, pinned: str | None, said: str | None, ecosystem: Ecosystem) -> str:
    for version in (pinned, said):
        if version is not None and not is_version(version, ecosystem):
            raise _no_exact_version(name, ecosystem, f": {quote(version)} is not one")
    if pinned is not None and said is not None and pinned != said:
        raise Invalid(f"it says version {quote(pinned)} of {quote(name)}, but `version` says {quote(said)}")
    version = pinned or said
    if version is None:
        raise _no_exact_version(name, ecosystem, "")
    return version


def _no_exact_version(name: str, ecosystem: Ecosystem, why: str) -> Invalid:
    example = _EXAMPLES[ecosystem].format(name)
    return Invalid(f"it says no exact version of {quote(name)}{why}", hint=f"write it like `{example}`")


def _parse_tool(word: Word, name: str) -> str | None:
    """Return the program to run, or None if it is called like its package."""
    if not _TOOL.fullmatch(word.text):
        _refuse(word, "is not a name of a program of the package")
    return None if word.text == name.rpartition("/")[2] else word.text


def _refuse(word: Word, problem: str, *, hint: str | None = None) -> NoReturn:
    raise Invalid(f"{quote(word.text)} {problem}", hint=hint)
