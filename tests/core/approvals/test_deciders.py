"""Who may decide an approval: fixed when the question is asked, checked when it is answered."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pml.core.approvals.deciders import Matter, Way, who_may_allow
from pml.core.approvals.record import Channel, Decider, DeciderKind, Role, Scope, State, Subject
from pml.core.approvals.states import advance, role_of
from pml.core.errors import (
    MayNotDecide,
)
from tests.builders import (
    ANYONE,
    FORM,
    MODEL,
    PARENT,
    PERSON,
    RULE,
    allow,
    deny,
    make_approval,
)
from tests.promises import promise

EVERYONE: Final = {Role.PERSON, Role.FORM, Role.MODEL, Role.PARENT}
ALL_WAYS: Final = Way(form=True, model=True, parent=True, parent_for_named=True)
MAY_ALLOW: Final[dict[Subject, set[Role]]] = {
    Subject.TOOL_CALL: EVERYONE,
    Subject.DEPENDENCY_INSTALL: EVERYONE,
    Subject.API_KEY_REQUIRED: EVERYONE,
    Subject.INTEGRITY_CHANGED: {Role.PERSON},
    Subject.TOOL_CHANGED: {Role.PERSON, Role.FORM},
    Subject.WORKSPACE_TRUST: {Role.PERSON, Role.FORM},
}
# what stands against whom, whatever else is said for them
AGAINST: Final[list[tuple[str, dict[str, bool], dict[str, bool], set[Role]]]] = [
    ("what an ask rule names is no model's", {"is_named": True}, {}, {Role.MODEL}),
    ("nor a parent's, unless it is listed", {"is_named": True}, {"parent_for_named": False}, {Role.PARENT}),
    ("a command is no model's", {"is_command": True}, {}, {Role.MODEL}),
    ("nor an HTTP form's", {"is_command": True}, {"over_http": True}, {Role.FORM}),
    ("a launch is a person's or a stdio form's", {"is_launch": True}, {}, {Role.MODEL, Role.PARENT}),
    ("and no HTTP form's", {"is_launch": True}, {"over_http": True}, {Role.FORM}),
    ("and no hook's", {"is_launch": True}, {"is_scripted": True}, {Role.FORM}),
    ("what reaches PML is a person's", {"is_reserved": True}, {}, {Role.FORM, Role.MODEL, Role.PARENT}),
    ("another publisher's tool is no model's", {"is_foreign": True}, {}, {Role.MODEL}),
    ("nothing unverified", {"is_verified": False}, {}, {Role.FORM, Role.MODEL, Role.PARENT}),
]
_flags = st.booleans()
matters = st.builds(
    Matter,
    subject=st.sampled_from(list(Subject)),
    is_named=_flags,
    is_command=_flags,
    is_launch=_flags,
    is_reserved=_flags,
    is_foreign=_flags,
    is_verified=_flags,
    is_coverable=_flags,
)
ways = st.builds(
    Way,
    form=_flags,
    model=_flags,
    parent=_flags,
    parent_for_named=_flags,
    over_http=_flags,
    is_scripted=_flags,
)
SPEAKERS: Final = {Role.PERSON: PERSON, Role.FORM: FORM, Role.MODEL: MODEL, Role.PARENT: PARENT}


def test_every_decider_speaks_in_one_role_and_a_rule_in_none() -> None:
    assert {role_of(by): by for by in (PERSON, FORM, MODEL, PARENT, RULE)} == {**SPEAKERS, None: RULE}


def test_a_client_speaks_as_the_model_only_through_the_model_channel() -> None:
    for channel in Channel:
        by = Decider(kind=DeciderKind.CLIENT, id="c", channel=channel)
        assert role_of(by) is (Role.MODEL if channel is Channel.MODEL else Role.FORM)


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize("subject", list(MAY_ALLOW))
@pytest.mark.parametrize("form", [True, False])
@pytest.mark.parametrize("model", [True, False])
@pytest.mark.parametrize("parent", [True, False])
def test_who_may_allow_follows_the_subject_and_the_switches(
    *, subject: Subject, form: bool, model: bool, parent: bool
) -> None:
    switched_off = {
        role for role, on in ((Role.FORM, form), (Role.MODEL, model), (Role.PARENT, parent)) if not on
    }
    roles = who_may_allow(Matter(subject=subject), Way(form=form, model=model, parent=parent))
    assert roles == MAY_ALLOW[subject] - switched_off


@promise("consent:who-may-allow")
@pytest.mark.parametrize(
    ("matter", "way", "not_these"), [row[1:] for row in AGAINST], ids=[r[0] for r in AGAINST]
)
def test_what_a_call_is_takes_deciders_away(
    matter: dict[str, bool], way: dict[str, bool], not_these: set[Role]
) -> None:
    asked = Matter(subject=Subject.TOOL_CALL, **matter)
    roles = who_may_allow(asked, replace(ALL_WAYS, **way))
    assert roles.isdisjoint(not_these)
    assert roles >= EVERYONE - not_these - {Role.MODEL, Role.PARENT}


@promise("consent:who-may-allow")
@pytest.mark.parametrize("subject", [each for each in Subject if each is not Subject.TOOL_CALL])
def test_over_http_a_form_decides_plain_calls_only(subject: Subject) -> None:
    way = Way(form=True, model=True, over_http=True)
    plain = subject is Subject.API_KEY_REQUIRED  # whether it is set is looked up, whatever the form says
    roles = who_may_allow(Matter(subject=subject), way)
    assert (Role.FORM in roles, Role.MODEL in roles) == (plain, plain)
    assert Role.FORM in who_may_allow(Matter(subject=Subject.TOOL_CALL), way)


def test_a_form_that_a_hook_answers_trusts_no_file() -> None:
    trust = Matter(subject=Subject.WORKSPACE_TRUST)
    assert who_may_allow(trust, Way(form=True, is_scripted=True)) == {Role.PERSON}


@promise("consent:who-may-allow")
@promise("load:rules-cover-only-the-confined")
def test_an_install_that_no_rule_could_cover_is_neither_a_models_nor_a_parents() -> None:
    install = Matter(subject=Subject.DEPENDENCY_INSTALL, is_coverable=False)
    assert who_may_allow(install, ALL_WAYS) == {Role.PERSON, Role.FORM}


@given(matter=matters, way=ways)
def test_a_fact_against_somebody_never_adds_a_decider(matter: Matter, way: Way) -> None:
    roles = who_may_allow(matter, way)
    assert Role.PERSON in roles
    worse = {"is_named", "is_command", "is_launch", "is_reserved", "is_foreign"}
    for fact in worse:
        assert who_may_allow(replace(matter, **{fact: True}), way) <= roles or (
            fact == "is_named" and way.parent_for_named and not way.parent
        )
    for fact in ("over_http", "is_scripted"):
        assert who_may_allow(matter, replace(way, **{fact: True})) <= roles


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("listed", Role)
def test_only_a_listed_role_may_allow(role: Role, listed: Role) -> None:
    record = make_approval(deciders=frozenset({listed}))
    event = allow(record, by=SPEAKERS[role])
    if role is listed:
        assert advance(record, event).decided_by == SPEAKERS[role]
    else:
        with pytest.raises(MayNotDecide) as refused:
            advance(record, event)
        assert refused.value.hint == f"it can be allowed by: {listed}"


@pytest.mark.parametrize("subject", Subject)
def test_a_rule_can_deny_anything_and_allow_nothing(subject: Subject) -> None:
    record = make_approval(subject=subject, deciders=ANYONE)
    with pytest.raises(MayNotDecide):
        advance(record, allow(record, by=RULE))
    assert advance(record, deny(record, by=RULE)).decided_by == RULE


def test_a_parent_allows_once_or_for_the_session_but_never_always() -> None:
    record = make_approval(deciders=ANYONE)
    for scope in (Scope.ONCE, Scope.SESSION):
        assert advance(record, allow(record, by=PARENT, scope=scope)).scope is scope
    with pytest.raises(MayNotDecide, match="never always"):
        advance(record, allow(record, by=PARENT, scope=Scope.ALWAYS))


@promise("agent:nothing-unapproved")
def test_a_model_may_confirm_the_call_it_made_but_not_change_it() -> None:
    record = make_approval(deciders=ANYONE)
    for edited in ({"title": "edited"}, {}, record.tool_input):
        with pytest.raises(MayNotDecide, match="not change it"):
            advance(record, allow(record, by=MODEL, updated_input=edited))
    assert advance(record, allow(record, by=MODEL)).decided_by == MODEL


@pytest.mark.parametrize("by", [PERSON, FORM, PARENT])
def test_everybody_else_who_may_allow_a_call_may_edit_it(by: Decider) -> None:
    record = make_approval(deciders=ANYONE)
    assert advance(record, allow(record, by=by, updated_input={"n": 1})).run_input == {"n": 1}


def test_a_parent_that_may_not_decide_may_not_deny_either() -> None:
    record = make_approval(deciders=ANYONE - {Role.PARENT})
    with pytest.raises(MayNotDecide):
        advance(record, deny(record, by=PARENT))


@pytest.mark.parametrize("by", [PERSON, FORM, MODEL])
def test_a_person_and_the_asking_client_may_always_refuse(by: Decider) -> None:
    record = make_approval(deciders=frozenset())
    assert advance(record, deny(record, by=by)).status is State.DENIED
