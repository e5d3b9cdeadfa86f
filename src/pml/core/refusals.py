"""Refusals and failures of calls: one code and one message, for models and for code that calls."""

from collections.abc import Mapping
from typing import Final

from pml.core.errors import (
    ApprovalExpired,
    ArtefactChanged,
    Changed,
    CodeFailed,
    ConfigInvalid,
    EnvMissing,
    IntegrityFailed,
    Invalid,
    LoginRequired,
    NotApproved,
    NotFound,
    PmlError,
    ServerFailed,
    TooLargeToAsk,
    ToolDenied,
    ToolFailed,
    TooManyPending,
    WorkflowAborted,
    WorkflowGone,
)

_CODE_OF_OUTCOME: Final[Mapping[str, str]] = {
    "denied": "user_denied",
    "expired": "approval_expired",
    "cancelled": "approval_cancelled",
    "unknown": "run_unknown",
    "dependency_refused": "dependency_refused",
}


def refusal_code(error: PmlError) -> tuple[str, str] | None:
    """Return code and message of a refusal; None for an error that is not the caller's business."""
    match error:
        case ToolDenied():
            return "TOOL_DENIED", f"Tool {error.tool} is denied by user config"
        case NotApproved():
            return _CODE_OF_OUTCOME.get(error.outcome, "approval_cancelled"), error.message
        case ApprovalExpired():
            return "approval_expired", "Approval timed out"
        case TooManyPending():
            return "too_many_pending", error.message
        case TooLargeToAsk():
            return "too_large", error.message
        case ToolFailed():
            return error.refusal, error.message
        case CodeFailed():
            return error.refusal, error.message
        case ServerFailed():
            return "server_failed", error.message
        case IntegrityFailed():
            return "integrity_failed", f"Integrity check failed for {error.title}"
        case ArtefactChanged():
            return "integrity_failed", error.message
        case LoginRequired():
            return "login_required", error.message
        case EnvMissing():
            return "env_missing", error.message
        case Changed():
            return "approval_cancelled", error.message
        case WorkflowGone():
            return "workflow_gone", error.message
        case WorkflowAborted():
            return "workflow_aborted", error.message
        case NotFound():
            return "not_found", error.message
        case ConfigInvalid():
            return "config_broken", f"{error.message}; until it is fixed its servers cannot be used"
        case Invalid():
            return "invalid_arguments", error.message
        case _:
            return None
