"""Every subject has one row, and what is red on a card is data, not a word that happens to be shown."""

import pytest
from msgspec.structs import replace

from pml.core.approvals.record import Role, Subject
from pml.core.approvals.subjects import SUBJECTS, asked_facts, form_title, headline, title, why_asked
from pml.core.cards.blocks import facts_of
from pml.core.values import JsonObject
from tests.builders import make_approval

SHOUTED = "UNVERIFIED: NOT CONTAINED: TOO YOUNG: NEW"


def test_every_subject_has_a_row() -> None:
    assert set(SUBJECTS) == set(Subject)


@pytest.mark.parametrize("subject", Subject)
def test_every_subject_can_be_told_and_allowed_by_a_person(subject: Subject) -> None:
    record = make_approval(subject=subject)

    assert all((headline(record), title(record), form_title(record), why_asked(record), asked_facts(record)))
    assert Role.PERSON in SUBJECTS[subject].allowers


def test_a_fact_alarms_by_what_is_known_not_by_how_a_server_words_it() -> None:
    dependency: JsonObject = {"integrity": SHOUTED, "containment": "bubblewrap", "source": SHOUTED}
    record = replace(make_approval(subject=Subject.DEPENDENCY_INSTALL), tool_input={"dependency": dependency})

    assert [fact.name for fact in facts_of(record).rows if fact.alarming] == []
