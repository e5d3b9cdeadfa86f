"""One code and one message for every refusal, the same for models and for code."""

import pytest

from pml.core import errors
from pml.core.approvals.record import State
from pml.core.errors import (
    AlreadyClaimed,
    AlreadySettled,
    ApprovalExpired,
    ArtefactChanged,
    Changed,
    CodeFailed,
    ConfigInvalid,
    Conflict,
    EnvMissing,
    IntegrityFailed,
    Invalid,
    MayNotDecide,
    NotApproved,
    NotFound,
    PmlError,
    ProgramChanged,
    ServerFailed,
    ServerRefused,
    TooLargeToAsk,
    ToolDenied,
    ToolFailed,
    TooManyPending,
    Unavailable,
)
from pml.core.refusals import refusal_code
from tests.promises import promise

NO_BUSINESS_OF_THE_CALLERS = [
    PmlError("x"),
    Conflict("x"),
    AlreadyClaimed("x"),
    MayNotDecide("x"),
    Unavailable("x"),
    errors.LoginFailed("x"),
    ServerRefused("x", error=b"{}"),
]
REFUSALS = [
    (ToolDenied("x", tool="notes:add"), "TOOL_DENIED", "Tool notes:add is denied by user config"),
    (NotApproved("said no", outcome=State.DENIED), "user_denied", "said no"),
    (NotApproved("too late", outcome=State.EXPIRED), "approval_expired", "too late"),
    (NotApproved("gone", outcome=State.CANCELLED), "approval_cancelled", "gone"),
    (AlreadySettled("settled", outcome=State.CANCELLED), "approval_cancelled", "settled"),
    (NotApproved("who knows", outcome=State.UNKNOWN), "run_unknown", "who knows"),
    (NotApproved("not installed", outcome="dependency_refused"), "dependency_refused", "not installed"),
    (NotApproved("used", outcome=State.COMPLETED), "approval_cancelled", "used"),
    (ApprovalExpired("x"), "approval_expired", "Approval timed out"),
    (TooManyPending("enough"), "too_many_pending", "enough"),
    (ToolFailed("no such file"), "tool_failed", "no such file"),
    (ToolFailed("ask there", refusal="cloud_asks"), "cloud_asks", "ask there"),
    (CodeFailed("it broke", refusal="code_failed"), "code_failed", "it broke"),
    (CodeFailed("other steps", refusal="run_diverged"), "run_diverged", "other steps"),
    (ServerFailed("died"), "server_failed", "died"),
    (
        IntegrityFailed("memory@1", expected="a", got="b"),
        "integrity_failed",
        "Integrity check failed for memory@1",
    ),
    (
        ArtefactChanged("memory", files=("a",), tree="t"),
        "integrity_failed",
        "server `memory` is not started: its files have changed: `a`",
    ),
    (
        ProgramChanged("shop", files=("srv.sh",), programs={"srv.sh": "b"}, was="a", now="b"),
        "integrity_failed",
        "server `shop` is not started: its files have changed: `srv.sh`",
    ),
    (TooLargeToAsk("too much"), "too_large", "too much"),
    (EnvMissing("memory", ("KEY",)), "env_missing", "memory requires KEY"),
    (errors.LoginRequired("far"), "login_required", "server `far` requires a login"),
    (Changed("it changed"), "approval_cancelled", "it changed"),
    (NotFound("none"), "not_found", "none"),
    (errors.WorkflowGone(), "workflow_gone", "Workflow expired or not found"),
    (errors.WorkflowAborted("use b"), "workflow_aborted", "Workflow aborted by user: use b"),
    (
        ConfigInvalid("/f", 1, 2, "bad"),
        "config_broken",
        "/f:1:2: bad; until it is fixed its servers cannot be used",
    ),
    (Invalid("wrong"), "invalid_arguments", "wrong"),
]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    REFUSALS,
    ids=lambda it: type(it).__name__ if isinstance(it, PmlError) else "",
)
def test_a_refusal_has_its_code_and_its_words(error: PmlError, code: str, message: str) -> None:
    assert refusal_code(error) == (code, message)


@pytest.mark.parametrize("error", NO_BUSINESS_OF_THE_CALLERS, ids=lambda error: type(error).__name__)
def test_what_is_not_the_callers_business_has_none(error: PmlError) -> None:
    assert refusal_code(error) is None


@promise("expiry:not-denial")
def test_denied_expired_cancelled_and_unknown_are_told_apart() -> None:
    states = (State.DENIED, State.EXPIRED, State.CANCELLED, State.UNKNOWN)
    told = [refusal_code(NotApproved("x", outcome=state)) for state in states]

    assert len({found[0] for found in told if found is not None}) == len(states)


def test_every_kind_of_error_is_looked_at_here() -> None:
    """An error that is new must be given a code, or be said to have none."""
    looked_at = {type(error) for error in NO_BUSINESS_OF_THE_CALLERS} | {type(it[0]) for it in REFUSALS}
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PmlError)}
    bases = {errors.Forbidden, errors.AlreadyDecided, errors.IllegalEvent}

    assert known - looked_at - bases == set()
