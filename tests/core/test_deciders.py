"""Who may decide an approval: fixed when the question is asked, checked when it is answered."""

from typing import Final

import pytest

from pml.core.approvals import (
    Channel,
    Decider,
    DeciderKind,
    Role,
    Scope,
    State,
    Subject,
    advance,
    role_of,
    who_may_allow,
)
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
MAY_ALLOW: Final[dict[tuple[Subject, bool], set[Role]]] = {
    (Subject.TOOL_CALL, True): EVERYONE,
    (Subject.TOOL_CALL, False): {Role.PERSON},
    (Subject.DEPENDENCY_INSTALL, True): EVERYONE,
    (Subject.DEPENDENCY_INSTALL, False): {Role.PERSON},
    (Subject.API_KEY_REQUIRED, True): EVERYONE,
    (Subject.INTEGRITY_CHANGED, True): {Role.PERSON},
    (Subject.TOOL_CHANGED, True): {Role.PERSON, Role.FORM, Role.PARENT},
    (Subject.WORKSPACE_TRUST, True): {Role.PERSON, Role.FORM},
}
SPEAKERS: Final = {Role.PERSON: PERSON, Role.FORM: FORM, Role.MODEL: MODEL, Role.PARENT: PARENT}


def test_every_decider_speaks_in_one_role_and_a_rule_in_none() -> None:
    assert {role_of(by): by for by in (PERSON, FORM, MODEL, PARENT, RULE)} == {**SPEAKERS, None: RULE}


def test_a_client_speaks_as_the_model_only_through_the_model_channel() -> None:
    for channel in Channel:
        by = Decider(kind=DeciderKind.CLIENT, id="c", channel=channel)
        assert role_of(by) is (Role.MODEL if channel is Channel.MODEL else Role.FORM)


@promise("agent:nothing-unapproved")
@pytest.mark.parametrize(("subject", "verified"), list(MAY_ALLOW))
@pytest.mark.parametrize("has_form", [True, False])
@pytest.mark.parametrize("model", [True, False])
@pytest.mark.parametrize("parent", [True, False])
def test_who_may_allow_follows_the_subject_and_the_switches(
    *, subject: Subject, verified: bool, has_form: bool, model: bool, parent: bool
) -> None:
    switched_off = {
        role for role, on in ((Role.FORM, has_form), (Role.MODEL, model), (Role.PARENT, parent)) if not on
    }
    roles = who_may_allow(
        subject,
        has_form=has_form,
        model_may_approve=model,
        parent_may_decide=parent,
        verified=verified,
    )
    assert roles == MAY_ALLOW[subject, verified] - switched_off


@promise("load:rules-cover-only-the-confined")
def test_an_install_that_no_rule_could_cover_is_neither_a_models_nor_a_parents() -> None:
    roles = who_may_allow(
        Subject.DEPENDENCY_INSTALL,
        has_form=True,
        model_may_approve=True,
        parent_may_decide=True,
        rule_could_cover=False,
    )
    assert roles == {Role.PERSON, Role.FORM}


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
