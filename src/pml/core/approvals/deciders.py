"""Deciders: who may allow a question. Worked out once, when it is asked, and kept with it.

A person may always. Everybody else, a client's form, its model or a parent session, only where nothing
stands against it, and what stands against whom is here and nowhere else. It knows no settings file, no
session and no protocol: what they say arrives as a `Matter` and a `Way`.
"""

from typing import Final

import msgspec

from pml.core.approvals.record import Role, Subject
from pml.core.approvals.subjects import SUBJECTS


class Matter(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about, as far as it decides who may allow it."""

    subject: Subject
    is_named: bool = False  # an `ask` rule names it, or a broken file may
    is_command: bool = False  # it runs commands or code
    is_launch: bool = False  # it starts an agent
    is_reserved: bool = False  # it reaches PML or a client's settings, or may have run before
    is_foreign: bool = False  # another publisher's tool than the one that the short name means in rules
    is_verified: bool = True  # what would be installed has a hash to be checked against
    is_coverable: bool = True  # a rule could cover the install


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How it is asked, and whose answer would come that way.

    `form`: the client shows forms to somebody who is not an agent. `model`: its model may confirm what it
    asked for. `parent`: a parent session may decide what no rule names; `parent_for_named`: also what a rule
    names. `over_http`: whoever holds a token is the client, so what it answers proves little.
    """

    form: bool = False
    model: bool = False
    parent: bool = False
    parent_for_named: bool = False
    over_http: bool = False
    is_scripted: bool = False  # a hook of the client answers its forms


PERSON_ONLY: Final = frozenset({Role.PERSON})


def who_may_allow(matter: Matter, way: Way) -> frozenset[Role]:
    """Return who may allow the question; fixed when it is asked, never read from who answers."""
    if matter.is_reserved or not matter.is_verified:
        return PERSON_ONLY
    roles = {Role.PERSON}
    if way.form and _form_counts(matter, way):
        roles.add(Role.FORM)
    if _parent_may(matter, way):
        roles.add(Role.PARENT)
    if way.model and _model_may(matter, way):
        roles.add(Role.MODEL)
    return SUBJECTS[matter.subject].allowers & roles


def _form_counts(matter: Matter, way: Way) -> bool:
    """Tell whether a form's answer proves enough: over HTTP whoever has the token fills it in."""
    row = SUBJECTS[matter.subject]
    if way.is_scripted and (matter.is_launch or not row.is_scriptable):
        return False
    is_plain = row.over_http and not (matter.is_command or matter.is_launch)
    return is_plain or not way.over_http


def _parent_may(matter: Matter, way: Way) -> bool:
    if matter.is_launch or not matter.is_coverable:
        return False
    return way.parent_for_named if matter.is_named else way.parent


def _model_may(matter: Matter, way: Way) -> bool:
    """Tell whether a model may confirm its own call: an unlisted plain one, or the install that it needs.

    Over HTTP not the install: whoever holds the token is the model.
    """
    is_special = matter.is_named or matter.is_command or matter.is_launch or matter.is_foreign
    counts = SUBJECTS[matter.subject].over_http or not way.over_http
    return counts and not is_special and matter.is_coverable
