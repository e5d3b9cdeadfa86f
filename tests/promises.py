"""What users rely on. At least one test, marked `@promise(id)`, keeps each; a meta-test checks that."""

from typing import Final

import pytest

PROMISES: Final[dict[str, str]] = {
    "agent:cannot-decide": "A deciding command refuses to run beneath a registered agent process.",
    "agent:nothing-unapproved": "What is neither allowed by a rule or grant nor approved is never granted.",
    "always:only-what-was-shown": "A remembered allow covers what was shown beside the button and no more.",
    "approval:bounded-asks": "A session has at most 20 undecided questions; one more leaves no trace.",
    "approval:decision-never-lost": "A decision made before the waiter waits is not lost.",
    "approval:exact-arguments": "A claim runs exactly the call that was approved.",
    "approval:final": "A denied, expired or cancelled approval never changes again.",
    "approval:first-decision-wins": "The first decision wins; later ones learn who and when.",
    "approval:survives-restart": "A question and its answer survive the end of the process that asked.",
    "audit:payloads-can-go": "The audit log holds digests only; payloads can go and it still verifies.",
    "audit:tamper-shows": "An edited, removed or reordered audit entry, or a cut tail, is found.",
    "claim:judged-again": "A deny or a change that came after the decision stops the call.",
    "config:concurrent-writes-lose-nothing": "Rules that several processes write at once are all kept.",
    "config:duplicate-keys-refused": "A configuration file with one key twice is refused at the second.",
    "config:never-overwritten-unparsed": "A file that PML cannot parse is reported and never written.",
    "config:untrusted-only-tightens": "A workspace's file that nobody trusts can deny and ask, nothing else.",
    "deny:beats-grants": "A configured deny beats every grant and every decision.",
    "edit:judged-again": "Edited arguments are judged like new ones.",
    "expiry:not-denial": "Denied, expired and cancelled are told apart everywhere.",
    "form:bound-and-single-use": "A form's answer counts once, and only for the very call it was asked for.",
    "form:never-forged": "A server can show nothing that looks like PML's own question.",
    "form:nobody-decides-nothing": "An answer that nobody clearly gave decides nothing.",
    "gate:agent-cannot-approve-itself": "A model allows only what it may, never trust or a changed tool.",
    "gate:approved-is-executed": "What runs is exactly the allowed call, on the tool as it was shown.",
    "gate:asks-before-running": "What must be asked for does not run before it is allowed.",
    "gate:deny-starts-nothing": "A denied call starts no server and asks nobody.",
    "gate:nothing-before-first-request": "Handshakes, pings and discovery touch no file and start nothing.",
    "names:never-a-pattern": "A tool's name holds no wildcard and nothing hidden, so it is never a pattern.",
    "names:wire-by-table": "A wire name leads to exactly the tool it was made for.",
    "names:wire-fits": "Every tool name offered to a client fits `[a-zA-Z0-9_-]{1,64}`.",
    "pins:never-silently": "The pinned definition of a tool changes only when somebody accepted the change.",
    "release:only-what-was-shown": "A new rule releases only those of the waiting that were shown with it.",
    "result:lossless": "A server's result or error reaches the client with everything the server wrote.",
    "rules:commands-never-by-glob": "A command or code argument matches only by its exact text.",
    "rules:deny-wins": "A deny rule beats every allow and ask.",
    "rules:doubt-denies": "A value that cannot be read for sure matches no allow, and every deny and ask.",
    "rules:hosts-parsed": "A URL is judged by its parsed host; a look-alike is another host.",
    "rules:literals-stay-literal": "A literal value in a rule is never read as a pattern.",
    "rules:paths-by-real-path": "A path is judged by where it really leads, however it is written.",
    "run:at-most-once": "An approved call is claimed at most once.",
    "run:unknown-never-rerun": "A call whose owner died while it ran is unknown and never run again by PML.",
    "server:crash-told-at-once": "When a server dies, its waiting calls fail at once, with its last words.",
    "server:env-allow-list": "A server gets listed variables and what is declared for it, nothing else.",
    "server:killed-whole": "Stopping a server ends all that it started.",
    "server:never-replayed": "A call that was interrupted is never sent to a server again.",
    "session:own-memory": "A session's memory serves only the principal and workspace it belongs to.",
    "show:nothing-hidden": "What a person is shown is whole, and hides and forges nothing.",
    "stdio:end-noticed": "A client that goes is noticed also while it leaves answers unread.",
    "stdio:garbage-survived": "Whatever a client sends, the gateway answers and goes on.",
    "stdio:stdout-clean": "Nothing but protocol messages reaches standard output.",
    "store:kill-loses-nothing": "A process killed at any moment loses no reported decision and repeats none.",
    "trust:exact-content": "Trust holds for the exact content a person saw and for no other.",
    "trust:no-server-before-trust": "A server of a file that nobody trusts is never started.",
    "values:exact": "JSON is stored and shown exactly as it was sent, or refused with a reason.",
    "workflow:bound-to-its-call": "A workflow continues only its own call, for its own principal.",
    "workflow:once": "A workflow is continued or given up at most once.",
}


def promise(promise_id: str) -> pytest.MarkDecorator:
    """Mark a test as keeping the promise `promise_id`."""
    return pytest.mark.promise(promise_id)
