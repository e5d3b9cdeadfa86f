"""What a question about a server holds and says: every fact that a person weighs, whole and unforged."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pml.core.approvals.fact import pairs
from pml.core.approvals.record import Subject, call_facts
from pml.core.approvals.subjects import asked_facts, form_title, headline, why_asked
from pml.core.packages.install_facts import (
    changed_rows,
    dependency_title,
    install_facts,
    rule_could_cover,
    tell_install,
    tell_variables,
    variable_names,
)
from pml.core.packages.lock import Locked
from pml.core.packages.package import Ecosystem
from pml.core.packages.permissions import Access, Containment, Permissions
from pml.core.ports.loader import Accepted, Installed, Plan
from pml.core.values import Json, JsonObject, check
from tests.builders import NOW, make_approval
from tests.fakes_loading import INTEGRITY, OTHER_INTEGRITY, make_dependency, make_lock
from tests.promises import promise

CALL = call_facts("memory:add", {"text": "hello"})
TEXT = st.text(st.sampled_from("a:{\n\\\u2028\u202e\x1b"), max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def plan(containment: Containment = Containment.BUBBLEWRAP, **more: Any) -> Plan:
    dependency = make_dependency(**more)
    return Plan(dependency=dependency, lock=make_lock(dependency), containment=containment)


def installed_as(of: Plan, containment: Containment) -> Installed:
    return Installed(
        dependency=of.dependency,
        lock=of.lock.digest,
        terms=of.terms,
        tree="tree",
        path="/home/servers/memory/1",
        entry="main.js",
        runtime="deno",
        containment=containment,
        installed_at=NOW,
    )


def asked(
    of: Plan, *, accepted: str | None = None, before: Containment | None = None, source: str = "catalog"
) -> dict[str, Json]:
    installed = None if before is None else installed_as(of, before)
    consented = None if accepted is None else Accepted(lock=accepted, terms="sha256:terms")
    return {**install_facts(of, source=source, accepted=consented, before=installed), **CALL}


REACHES = {
    "network": Permissions(net=True, workspace=Access.NONE),
    "hosts": Permissions(net=("x.test",), workspace=Access.NONE),
    "read": Permissions(read=("~/.ssh",), workspace=Access.NONE),
    "write": Permissions(write=("~/notes",), workspace=Access.NONE),
    "program": Permissions(run=("git",), workspace=Access.NONE),
    "workspace": Permissions(workspace=Access.READ),
}


@promise("load:rules-cover-only-the-confined")
@pytest.mark.parametrize("permissions", REACHES.values(), ids=REACHES)
@pytest.mark.parametrize("containment", Containment)
def test_no_rule_could_cover_what_reaches_anything_unless_it_is_the_catalogs(
    permissions: Permissions, containment: Containment
) -> None:
    of = plan(containment, permissions=permissions)

    assert not rule_could_cover(of, bundled=[], accepted=None, before=None)
    bundled = [plan().dependency, replace(of.dependency, lock=of.lock.digest)]
    assert rule_could_cover(of, bundled=bundled, accepted=None, before=None)


@promise("load:rules-cover-only-the-confined")
@pytest.mark.parametrize(
    ("containment", "covers"),
    [(Containment.BUBBLEWRAP, True), (Containment.LANDLOCK, False), (Containment.NONE, False)],
)
def test_a_rule_could_cover_what_reaches_nothing_where_it_is_wholly_held_to_that(
    containment: Containment, covers: bool
) -> None:
    assert rule_could_cover(plan(containment), bundled=[], accepted=None, before=None) is covers


@promise("load:rules-cover-only-the-confined")
@pytest.mark.parametrize("lock", [None, "sha256:" + "0" * 64], ids=["looked up", "another"])
def test_only_the_lock_of_the_catalog_makes_it_the_catalogs(lock: str | None) -> None:
    of = plan(permissions=Permissions())

    assert not rule_could_cover(of, bundled=[replace(of.dependency, lock=lock)], accepted=None, before=None)


@promise("load:rules-cover-only-the-proven")
@pytest.mark.parametrize("is_bundled", [True, False])
def test_no_rule_could_cover_other_terms_or_weaker_containment_or_what_is_unverified(
    is_bundled: bool,
) -> None:
    of, unverified = plan(), plan(integrity=None)
    bundled = [replace(each.dependency, lock=each.lock.digest) for each in (of, unverified) if is_bundled]
    stronger = installed_as(of, Containment.BUBBLEWRAP)
    weak = replace(of, containment=Containment.LANDLOCK)

    assert rule_could_cover(
        of, bundled=bundled, accepted=Accepted(lock=of.lock.digest, terms=of.terms), before=stronger
    )
    assert not rule_could_cover(unverified, bundled=bundled, accepted=None, before=None)
    assert not rule_could_cover(weak, bundled=bundled, accepted=None, before=stronger)
    other = Accepted(lock=of.lock.digest, terms="sha256:other")
    assert not rule_could_cover(of, bundled=bundled, accepted=other, before=None)


def facts(of: JsonObject) -> JsonObject:
    found = of["dependency"]
    assert isinstance(found, dict)
    return found


def test_an_install_is_told_with_all_that_a_person_weighs_the_weightiest_first() -> None:
    of = plan(
        env_required=("API_KEY", "REGION"),
        env={"MODE": "all"},
        args=("--root", "${workspace}"),
        permissions=Permissions(net=("api.example.com",), workspace=Access.READ, run=("git",)),
    )

    assert tell_install(asked(of)) == [
        ("package", "npx @acme/memory@1.2.3"),
        (
            "runs",
            "contained by bubblewrap (network: api.example.com (only Deno holds it to that); "
            "workspace: read; run: git)",
        ),
        ("hash", INTEGRITY),
        ("packages", "2 packages, each checked against its hash, 3.0 MiB"),
        ("scripts", "never run; zod carry some"),
        ("released", "2026-01-02"),
        ("needs", "API_KEY, REGION"),
        ("from", "PML's catalog"),
        ("lock file", of.lock.digest),
        ("arguments", '["--root", "${workspace}"]'),
        ("sets", '{"MODE": "all"}'),
        ("call", 'memory:add {"text": "hello"}'),
    ]


def test_what_the_registry_does_not_tell_is_said_to_be_unknown() -> None:
    of = plan()
    root = of.lock.packages[0]
    told = dict(
        tell_install(asked(replace(of, lock=replace(of.lock, packages=(root,), size=None, released_at=None))))
    )

    assert told["packages"] == "1 package, each checked against its hash, size not known before the download"
    assert (told["released"], told["scripts"], told["needs"]) == ("unknown", "none", "no settings")


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 bytes"), (1023, "1023 bytes"), (2048, "2.0 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_are_told_as_people_read_them(size: int, said: str) -> None:
    of = plan()

    assert said in dict(tell_install(asked(replace(of, lock=replace(of.lock, size=size)))))["packages"]


@promise("load:nothing-unproven")
def test_an_install_without_integrity_is_told_with_that_word() -> None:
    assert dict(tell_install(asked(plan(integrity=None))))["hash"].startswith("UNVERIFIED")
    assert "UNVERIFIED" not in str(tell_install(asked(plan())))


@pytest.mark.parametrize(
    ("containment", "said"),
    [
        (Containment.BUBBLEWRAP, "contained by bubblewrap (network: none; workspace: none)"),
        (
            Containment.LANDLOCK,
            "contained by Landlock (network: none, as far as the kernel can; workspace: none)",
        ),
        (
            Containment.NONE,
            "NOT CONTAINED: it can do what you can; it says it needs network: none; workspace: none",
        ),
    ],
)
def test_what_holds_the_server_is_told_with_what_it_may_reach(containment: Containment, said: str) -> None:
    assert dict(tell_install(asked(plan(containment))))["runs"] == said


@pytest.mark.parametrize(
    ("days", "said"),
    [(0, "0 days ago: NEW"), (1, "1 day ago: NEW"), (6, "6 days ago: NEW"), (7, "7 days ago")],
)
def test_a_release_is_told_with_its_age_and_a_young_one_as_new(days: int, said: str) -> None:
    at = datetime.fromisoformat("2026-01-02T03:04:05Z") + timedelta(days=days)

    assert dict(tell_install(asked(plan()), at=at))["released"] == f"2026-01-02, {said}"


def test_hosts_that_nothing_holds_a_server_to_are_told_as_an_open_network() -> None:
    of = plan(permissions=Permissions(net=("api.example.com",)))
    python = replace(of.dependency.package, ecosystem=Ecosystem.PYPI)
    of = replace(of, dependency=replace(of.dependency, package=python))

    assert "network: open (it says it needs api.example.com);" in dict(tell_install(asked(of)))["runs"]


def test_what_a_registry_claims_is_told_as_its_word() -> None:
    told = dict(tell_install(asked(plan(), source="https://registry.example")))

    assert told["packages"].endswith(" (says the registry)")
    assert told["released"].endswith(" (says the registry)")


def test_all_of_the_network_is_told_as_all() -> None:
    assert "network: all;" in dict(tell_install(asked(plan(permissions=Permissions(net=True)))))["runs"]


def test_another_lock_than_the_one_first_accepted_is_told_before_all_that_follows() -> None:
    of = plan()

    assert "accepted_lock" not in facts(asked(of, accepted=of.lock.digest))
    assert tell_install(asked(of, accepted="sha256:1"))[1] == (
        "moved",
        "another lock was accepted before: sha256:1",
    )


@promise("load:weaker-containment-asks")
@pytest.mark.parametrize("before", list(Containment))
@pytest.mark.parametrize("now", list(Containment))
def test_a_server_that_was_held_better_before_is_told_so(before: Containment, now: Containment) -> None:
    told = dict(tell_install(asked(plan(now), before=before, accepted="sha256:1")))

    assert ("weaker" in told) is now.is_weaker_than(before)
    assert [*told][:3] == ["package", "moved", "runs"]


def test_several_artefacts_of_one_package_are_told_as_so_many_wheels() -> None:
    of = plan()
    wheels = Locked(
        key="@acme/memory@1.2.3",
        name="@acme/memory",
        version="1.2.3",
        integrity=(INTEGRITY, OTHER_INTEGRITY),
    )
    lock = replace(of.lock, packages=(wheels, *of.lock.packages[1:]))

    assert facts(asked(replace(of, lock=lock)))["artefact"] == "2 wheels, each hashed"
    assert facts(asked(of))["artefact"] == (INTEGRITY,)


@promise("load:exactly-what-was-approved")
@pytest.mark.parametrize(
    "other",
    [
        plan(env_required=("API_KEY",)),
        plan(env={"MODE": "all"}),
        plan(args=("--all",)),
        plan(permissions=Permissions(net=True)),
        plan(integrity=None),
        plan(version="1.2.4"),
        plan(name="storage"),
    ],
    ids=["variables", "values", "arguments", "permissions", "integrity", "version", "name"],
)
def test_whatever_an_approval_binds_is_in_its_terms_and_its_facts(other: Plan) -> None:
    assert other.terms != plan().terms
    assert asked(other) != asked(plan())


def test_the_facts_can_be_stored_and_hold_nothing_of_the_hour() -> None:
    check(asked(plan()), what="the facts")

    assert asked(plan()) == asked(plan())


def test_a_variable_is_told_with_how_to_set_it_and_never_through_the_model() -> None:
    question: JsonObject = {"server": "serena", "missing": ["ANTHROPIC_API_KEY", "TOKEN"], **CALL}

    assert tell_variables(question) == [
        ("missing", "ANTHROPIC_API_KEY, TOKEN"),
        (
            "set it",
            "pml secrets set ANTHROPIC_API_KEY\npml secrets set TOKEN\n"
            "or as NAME=value in .env of PML_HOME or of the trusted workspace",
        ),
        ("never", "through the model or in this conversation"),
        ("call", 'memory:add {"text": "hello"}'),
    ]


def test_changed_files_are_named_and_too_many_are_counted() -> None:
    files = [f"lib/{n}.js" for n in range(25)]
    question: JsonObject = {"server": "memory@1.2.3", "files": files, "was": "1", "now": "2", **CALL}
    told = dict(pairs(changed_rows(question)))

    assert (told["server"], told["was"], told["now"]) == ("memory@1.2.3", "1", "2")
    assert told["changed"].split("\n") == [*files[:20], "and 5 more"]


@pytest.mark.parametrize(
    ("subject", "question", "line", "title"),
    [
        (
            Subject.DEPENDENCY_INSTALL,
            asked(plan()),
            "Approval required to install memory@1.2.3",
            "Install memory@1.2.3?",
        ),
        (
            Subject.API_KEY_REQUIRED,
            {"server": "serena", "missing": ["ANTHROPIC_API_KEY"]},
            "serena requires ANTHROPIC_API_KEY",
            "serena requires ANTHROPIC_API_KEY. Is it set?",
        ),
        (
            Subject.INTEGRITY_CHANGED,
            {"server": "memory@1.2.3", "files": ["a"]},
            "Approval required to accept the changed files of memory@1.2.3",
            "Accept the changed files of memory@1.2.3?",
        ),
    ],
    ids=["install", "variables", "files"],
)
def test_each_question_has_its_line_and_its_title(
    subject: Subject, question: JsonObject, line: str, title: str
) -> None:
    record = make_approval(subject=subject, tool_name="memory:add", tool_input=question)

    assert (headline(record), form_title(record)) == (line, title)


def test_why_an_install_is_asked_for_names_the_tool_that_needs_it() -> None:
    record = make_approval(
        subject=Subject.DEPENDENCY_INSTALL, tool_name="memory:add", tool_input=asked(plan())
    )

    assert why_asked(record) == "memory:add's server is not installed yet"


@promise("show:nothing-hidden")
@pytest.mark.parametrize(
    "subject", [Subject.DEPENDENCY_INSTALL, Subject.API_KEY_REQUIRED, Subject.INTEGRITY_CHANGED]
)
@given(
    question=st.dictionaries(
        st.sampled_from(["dependency", "server", "missing", "files", "was", "call"]), ANY_JSON
    )
)
def test_whatever_a_question_holds_it_is_told_without_a_failure(
    subject: Subject, question: dict[str, Json]
) -> None:
    record = make_approval(subject=subject, tool_name="memory:add", tool_input=question)

    told = [headline(record), form_title(record), *(value for _, value in asked_facts(record))]
    assert all(line.isprintable() for text in told for line in text.split("\n"))


EVIL = "a\nproof: sha512-good\u2028\u202e\x1b[2J"


@promise("show:nothing-hidden")
def test_no_value_of_a_registry_can_forge_a_line_or_hide_a_character() -> None:
    good = asked(plan(), accepted="sha256:1")
    text: dict[str, Json] = dict.fromkeys(facts(good), EVIL)
    lists: dict[str, Json] = {key: [EVIL] for key in facts(good)}
    reach: JsonObject = {"net": [EVIL], "read": [EVIL], "workspace": EVIL}
    for evil in (text, lists, {**text, "permissions": reach}):
        told = tell_install({"dependency": evil, **call_facts(EVIL, {EVIL: EVIL})})
        assert all(value.isprintable() for _, value in told)
        assert all(
            name in {*dict(tell_install(good)), "starts", "arguments", "sets", "weaker"} for name, _ in told
        )
    assert dependency_title({"dependency": text}).isprintable()
    assert variable_names({"missing": [EVIL]}).isprintable()
    for told in (
        tell_variables({"server": EVIL, "missing": [EVIL]}),
        pairs(changed_rows({"server": EVIL, "files": [EVIL], "was": EVIL, "now": EVIL})),
    ):
        assert all(line.isprintable() for _, value in told for line in value.split("\n"))
        assert not any(line.strip().startswith("proof:") for _, value in told for line in value.split("\n"))
