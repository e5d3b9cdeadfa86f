"""Names of PML's own tools, and the argument that continues a workflow."""

from typing import Final

OWN_NAMESPACE: Final = "pml"


CONTINUE: Final = "continue_workflow"  # reserved on every tool: for the client that was asked


META_TOOLS: Final = frozenset({"pml:call", "pml:discover"})  # they only carry other calls


EXECUTE: Final = "pml:execute"  # its code does nothing by itself: every call it makes is judged


LAUNCH_TOOL: Final = "pml:session_launch"  # starts an agent: a person's to allow, whatever rules cover it


# PML's own tools by which sessions ask, answer and supervise; who may use them is told by the session's role
SUPERVISING: Final = frozenset(
    f"pml:{name}"
    for name in (
        *("loopback_permit", "loopback_respond", "loopback_pending", "loopback_wait"),
        *("session_launch", "session_wait", "session_list", "session_stop"),
    )
)
