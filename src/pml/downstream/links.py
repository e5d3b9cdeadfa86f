"""The client opens a page of the inbox: where a person gives a key, which no model, form or log ever sees, or
reads and decides what is too long for a form.

That the page was opened is only the client's word, and decides nothing: the page itself does. To decline is
an answer like that of a form.
"""

from collections.abc import Mapping
from typing import Final

from pml.core.approvals import Approval, Subject
from pml.core.values import Json, JsonObject
from pml.core.wire import headline
from pml.downstream.forms import apply_answer
from pml.service.desk import Desk

COMPLETE: Final = "notifications/elicitation/complete"


def link_params(record: Approval, url: str) -> JsonObject:
    """Return the params of `elicitation/create` that let the client open the page; legacy ones want an id."""
    return {"mode": "url", "message": _message(record), "url": url}


def was_opened(answer: Json) -> bool:
    """Tell whether the client says that its user opened the page."""
    return isinstance(answer, Mapping) and answer.get("action") == "accept"


async def apply_refusal(
    desk: Desk, record: Approval, answer: Json, *, client: str, elapsed_s: float
) -> Approval | None:
    """Deny the question if the client's user declined to open the page; None for any other answer."""
    if not isinstance(answer, Mapping) or answer.get("action") != "decline":
        return None
    declined: JsonObject = {"action": "decline"}
    return await apply_answer(desk, record, declined, client=client, elapsed_s=elapsed_s)


def link_to(record: Approval, base: str) -> str:
    """Return the page of the inbox at `base` where the question is answered."""
    page = "secrets" if record.subject is Subject.API_KEY_REQUIRED else "card"
    return f"{base}/#/{page}/{record.id}"


def _message(record: Approval) -> str:
    if record.subject is not Subject.API_KEY_REQUIRED:
        return (
            f"{headline(record)}. It is too long for a form: read it all, and decide it, on this page of "
            "PML's inbox, which you may have to log in to."
        )
    return (
        f"{headline(record)}. Give it on this page of PML's inbox, which you may have to log in to: "
        "it goes to PML only, never to the model."
    )
