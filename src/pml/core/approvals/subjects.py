"""Subjects of approvals: one row for each says how it is worded, what alarms, and who may allow it how far.

Whatever shows or decides a question reads its row, so that a new subject is a row here, the use case that
asks about it, and a migration. Rows word and rule; they know neither a screen nor a protocol nor a store.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pml.core.approvals.fact import Fact, pairs, plain
from pml.core.approvals.reasons import (
    AllowRule,
    BrokenFile,
    CapabilityNeeds,
    needs_facts,
    place_words,
    rule_words,
    why_by,
)
from pml.core.approvals.record import Approval, Role, Scope, Subject, call_arguments
from pml.core.cards.facts import session_memory
from pml.core.config.trust_facts import tell_trust, trust_counts, trust_summary, why_trust
from pml.core.names import parse_tool
from pml.core.own_tools import LAUNCH_TOOL
from pml.core.packages.install_facts import (
    changed_rows,
    dependency_title,
    install_rows,
    is_installed,
    server_name,
    tell_variables,
    told_package,
    variable_names,
    why_install,
)
from pml.core.rules.ruleset import runs_code
from pml.core.sessions.launch import gives_commands, launch_facts
from pml.core.text import visible, visible_json
from pml.core.values import JsonObject

Words = Callable[[Approval], str]
ServerWords = Callable[[Approval, str | None], str | None]  # given how the server is started, where known

_ANYONE: Final = frozenset(Role)
_NOT_FOR_AGENTS: Final = frozenset({Role.PERSON, Role.FORM})
_PERSON: Final = frozenset({Role.PERSON})
_ONCE: Final = frozenset({Scope.ONCE})


def _no_server(_: Approval, __: str | None) -> None:
    return None


def _just_once(_: Approval) -> str:
    return "just this once"


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectRow:
    """All that is particular to a subject.

    Words: `deed` continues "Approval required to"; `headline` replaces that sentence and `question` a form's,
    where it is no deed. `sentence` is None for a call, which its tool words. `once` and `form_once` say what
    a yes does, at a terminal and in a form. `summary` follows the title in a form.
    Card: `frame` is what it is, where it stands alone: read by itself, and never allowed with others. `chip`
    marks it in a list, `verb` is on the button, `server` says what server it is about.
    """

    deed: Words
    headline: Words | None = None
    question: Words | None = None
    sentence: Words | None = None
    why: Words
    facts: Callable[[Approval], list[Fact]]
    once: Words
    form_once: Words
    summary: Callable[[JsonObject], str] | None = None

    frame: str | None = None
    chip: str | None = None
    verb: Words
    server: ServerWords = _no_server
    told_above: frozenset[str] = frozenset()  # facts that `server` tells already
    is_diff: bool = False  # its `diff` is drawn in place of the facts
    warns: bool = False  # what alarms in the facts stands among the card's warnings too
    first: tuple[str, ...] = ()  # facts that a form shows before others: a client may cut its end
    wants_key: bool = False  # it waits for variables to be set
    page: str | None = None  # of the inbox, where it is settled; `on_page` says in a link what to do there
    on_page: str = ""

    approval_type: str  # in a result for the model
    context: tuple[str, ...] = ()  # parts of the input that such a result repeats

    holds_call: bool = False  # the input has, besides the facts, the call that waits
    is_about_call: bool = True  # rules judge that call again before the answer is used

    scopes: frozenset[Scope] = _ONCE  # what an answer may cover at most
    allowers: frozenset[Role]  # who may allow it at most
    over_http: bool = False  # a form or a model may also where whoever has the token is the client
    is_scriptable: bool = True  # a form counts even where a hook of the client answers it


def row_of(record: Approval) -> SubjectRow:
    return SUBJECTS[record.subject]


def frame_of(record: Approval) -> str | None:
    """Return what a question is that is read by itself and never allowed with others; None for the rest."""
    return row_of(record).frame or ("PML or a client's settings" if record.is_reserved else None)


def asked_facts(record: Approval) -> list[tuple[str, str]]:
    """Return what is asked, as plain text has it: the arguments, or what allowing it means."""
    return pairs(row_of(record).facts(record))


def why_asked(record: Approval) -> str:
    """Return why PML asks: the rule that says so, or what is missing."""
    return row_of(record).why(record)


def call_input(record: Approval) -> JsonObject:
    """Return the arguments of the call that the question is about, or that waits for it."""
    return call_arguments(record.tool_input) if row_of(record).holds_call else record.run_input


def headline(record: Approval) -> str:
    """Return the one line that says what is asked."""
    row = row_of(record)
    return f"Approval required to {row.deed(record)}" if row.headline is None else row.headline(record)


def title(record: Approval) -> str:
    """Return what would be done, in a few words: for lists and cards."""
    row = row_of(record)
    if row.headline is not None:
        return row.headline(record)
    deed = row.deed(record)
    return f"{deed[0].upper()}{deed[1:]}"


def form_title(record: Approval) -> str:
    """Return the same as a question, for a form."""
    question = row_of(record).question
    return f"{title(record)}?" if question is None else question(record)


def after_install(record: Approval) -> str:
    """Return what becomes of the call that needs the install, once it is allowed."""
    rule = record.rule
    if record.covers_call:
        return f"allows {session_memory(record.tool_name, call_input(record))}"
    if isinstance(rule, AllowRule):
        return f"the call runs, since your rule {rule_words(rule)} says so{place_words(rule)}"
    return f"the call itself is asked about: {_why_call(record)}"


def caller_facts(record: Approval) -> list[tuple[str, str]]:
    """Return what code makes a call, and what a capability that is called is and needs."""
    facts: list[tuple[str, str]] = []
    if record.run_id is not None:
        facts.append(("asked from", f"code that is paused here (run {record.run_id[:8]})"))
    return [*facts, *needs_facts(record.rule)] if isinstance(record.rule, CapabilityNeeds) else facts


def _why_call(record: Approval) -> str:
    return why_by(record.rule, record.tool_name)


def launch_rows(arguments: JsonObject) -> list[Fact]:
    """Return the facts of a launch; that its parent may let it run commands must not be overlooked."""
    alarming = gives_commands(arguments)
    return [
        Fact(name=name, value=value, alarming=alarming and name == "answers")
        for name, value in launch_facts(arguments)
    ]


def _call_facts(record: Approval) -> list[Fact]:
    given = Fact(name="input", value=visible_json(record.tool_input))
    is_launch = record.tool_name == LAUNCH_TOOL
    facts = [*launch_rows(record.run_input), given] if is_launch else [given, *plain(caller_facts(record))]
    if record.updated_input is not None:
        facts.append(Fact(name="edited to", value=visible_json(record.updated_input)))
    return facts


def _diff_facts(record: Approval) -> list[Fact]:
    diff = record.tool_input.get("diff")
    lines = map(str, diff) if isinstance(diff, list | tuple) else ()
    return [Fact(name="changes", value="\n".join(lines))]


def _install_facts(record: Approval) -> list[Fact]:
    then = Fact(name="then", value=after_install(record))
    return [*install_rows(record.tool_input, at=record.created_at), then]


def _is_call_allowed(record: Approval) -> bool:
    return isinstance(record.rule, AllowRule)


def _install_sentence(record: Approval) -> str:
    is_asked = record.rule is not None and not record.covers_call and not _is_call_allowed(record)
    then = "ask about" if is_asked else "call"
    return f"Install {dependency_title(record.tool_input)}, then {then} {record.tool_name}"


def _install_yes(record: Approval) -> str:
    if record.is_foreign:
        return "Just this once"
    if record.covers_call:
        is_exact = runs_code(record.tool_name, call_input(record))
        return f"Install it; allow {'exactly this call' if is_exact else 'this tool'} this session"
    return "Install it" if _is_call_allowed(record) else "Install it, then ask about the call"


def _why_install(record: Approval) -> str:
    missing = why_install(record.tool_input, record.tool_name)
    is_left = isinstance(record.rule, BrokenFile)
    return f"{missing}; {_why_call(record)}" if is_left else missing


def _why_trust(record: Approval) -> str:
    if (rule := record.rule) is None:
        return why_trust(record.tool_input)
    return f"it would allow a call that waits, by {rule_words(rule)}{place_words(rule)}"


def _changed_sentence(record: Approval) -> str:
    since = "its install" if is_installed(record.tool_input) else "they were trusted"
    return f"Run {server_name(record.tool_input)} with files that changed since {since}"


def _key_headline(record: Approval) -> str:
    return f"{server_name(record.tool_input)} requires {variable_names(record.tool_input)}"


def _key_sentence(record: Approval) -> str:
    names = variable_names(record.tool_input)
    return f"{server_name(record.tool_input)} needs {names} before {record.tool_name} can run"


def _login_facts(record: Approval) -> list[Fact]:
    name, url = server_name(record.tool_input), record.tool_input.get("url")
    return plain([("server", f"{name}, at {visible(str(url))}"), ("log in", f"here, or `pml login {name}`")])


def _login_sentence(record: Approval) -> str:
    return f"Log in to {server_name(record.tool_input)}, so that {record.tool_name} can run"


def _started_server(record: Approval, starts: str | None) -> str | None:
    name = visible(parse_tool(record.tool_name).namespace or server_name(record.tool_input))
    return f"{name} is a server: {starts}" if starts else None


SUBJECTS: Final[Mapping[Subject, SubjectRow]] = {
    Subject.TOOL_CALL: SubjectRow(
        deed=lambda record: (
            "launch an agent" if record.tool_name == LAUNCH_TOOL else f"call {record.tool_name}"
        ),
        why=_why_call,
        facts=_call_facts,
        once=_just_once,
        form_once=lambda _: "Just this once",
        verb=lambda record: "Start the agent" if record.tool_name == LAUNCH_TOOL else "Allow",
        approval_type="tool_call",
        scopes=frozenset(Scope),
        allowers=_ANYONE,
        over_http=True,
    ),
    Subject.DEPENDENCY_INSTALL: SubjectRow(
        deed=lambda record: f"install {dependency_title(record.tool_input)}",
        sentence=_install_sentence,
        why=_why_install,
        facts=_install_facts,
        once=lambda record: f"install exactly this; {after_install(record)}",
        form_once=_install_yes,
        frame="Install a server",
        chip="install",
        verb=lambda _: "Install and run",
        server=lambda record, _: told_package(record.tool_input),
        told_above=frozenset({"from"}),
        warns=True,
        first=("runs",),
        approval_type="dependency",
        context=("dependency",),
        holds_call=True,
        scopes=frozenset({Scope.ONCE, Scope.ALWAYS}),
        allowers=_ANYONE,
    ),
    Subject.API_KEY_REQUIRED: SubjectRow(
        deed=lambda record: f"continue without {variable_names(record.tool_input)}",
        headline=_key_headline,
        question=lambda record: f"{_key_headline(record)}. Is it set?",
        sentence=_key_sentence,
        why=lambda _: "the server that was called cannot work without it",
        facts=lambda record: plain(tell_variables(record.tool_input)),
        once=lambda _: "it is set now: continue",
        form_once=lambda _: "It is set now: continue",
        chip="wants a key",
        verb=lambda _: "Continue without the key",
        wants_key=True,
        page="secrets",
        on_page="Give it on this page of PML's inbox, which you may have to log in to: "
        "it goes to PML only, never to the model.",
        approval_type="api_key_required",
        context=("missing",),
        holds_call=True,
        allowers=_ANYONE,
        over_http=True,
    ),
    Subject.INTEGRITY_CHANGED: SubjectRow(
        deed=lambda record: f"accept the changed files of {server_name(record.tool_input)}",
        sentence=_changed_sentence,
        why=lambda _: "files of the server are not those that were installed, trusted or accepted",
        facts=lambda record: changed_rows(record.tool_input),
        once=lambda _: "accept the files as they are now",
        form_once=lambda _: "Accept it as it is now",
        frame="A server's files changed",
        chip="changed files",
        verb=lambda _: "Run the changed files",
        server=_started_server,
        approval_type="integrity",
        holds_call=True,
        allowers=_PERSON,
    ),
    Subject.TOOL_CHANGED: SubjectRow(
        deed=lambda record: f"accept the changed tool {record.tool_name}",
        sentence=lambda record: f"{record.tool_name} changed its description. Keep using it?",
        why=lambda _: "the server changed the description of this tool since it was first used",
        facts=_diff_facts,
        once=lambda _: "accept it as it is now",
        form_once=lambda _: "Accept it as it is now",
        frame="A tool changed",
        chip="changed tool",
        verb=lambda _: "Accept the new description",
        server=_started_server,
        is_diff=True,
        approval_type="tool_changed",
        is_about_call=False,
        allowers=_NOT_FOR_AGENTS,
    ),
    Subject.WORKSPACE_TRUST: SubjectRow(
        deed=lambda _: "trust this workspace's .pml.json",
        sentence=lambda record: f"Trust this workspace's .pml.json: {trust_counts(record.tool_input)}",
        why=_why_trust,
        facts=lambda record: tell_trust(record.tool_input),
        once=lambda _: "trust exactly this content",
        form_once=lambda _: "Trust this exact content",
        summary=trust_summary,
        frame="Trust a file",
        chip="trust",
        verb=lambda _: "Trust this file",
        first=("starts", "allows"),
        approval_type="workspace_trust",
        is_about_call=False,
        allowers=_NOT_FOR_AGENTS,
        is_scriptable=False,
    ),
    Subject.LOGIN_REQUIRED: SubjectRow(
        deed=lambda record: f"continue, logged in to {server_name(record.tool_input)}",
        headline=lambda record: f"{server_name(record.tool_input)} requires a login",
        question=lambda record: f"{server_name(record.tool_input)} requires a login. Are you logged in?",
        sentence=_login_sentence,
        why=lambda _: "the server runs elsewhere and answers nobody who is not logged in, or not for this",
        facts=_login_facts,
        once=lambda _: "you are logged in now: continue",
        form_once=lambda _: "I am logged in now: continue",
        chip="wants a login",
        verb=lambda _: "Continue: I am logged in",
        page="server-login",
        on_page="Begin the login on this page of PML's inbox, which you may have to log in to itself: "
        "what you are given goes to PML only, never to the model.",
        approval_type="login_required",
        context=("server",),
        holds_call=True,
        allowers=_PERSON,
    ),
}
