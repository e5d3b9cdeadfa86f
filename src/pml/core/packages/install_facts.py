"""Facts of a question about a server, and how people read them: its install, variables, changed files.

The facts are stored with the question and bound by its digest, so nothing in them depends on the hour.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from pml.core.approvals.fact import Fact, pairs
from pml.core.approvals.record import call_arguments, instant
from pml.core.text import visible, visible_json
from pml.core.values import Json, JsonObject

if TYPE_CHECKING:
    from pml.core.packages.capability import McpDependency
    from pml.core.packages.lock import Lock
    from pml.core.ports.loader import Accepted, Installed, Plan

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SHOWN_FILES: Final = 20
_NEW_DAYS: Final = 7  # most bad releases are found, and taken back, sooner
_KINDS: Final = {"npm": "an npm package", "pypi": "a Python package", "mcpb": "an MCP bundle"}
_STATUS: Final[Mapping[str, str]] = {
    "deprecated": "DEPRECATED: its registry says that it should no longer be used",
    "deleted": "DELETED: its registry has taken it back, often because it did harm",
}
_CONTAINED: Final[Mapping[str, str]] = {"bubblewrap": "bubblewrap", "landlock": "Landlock"}


def install_facts(
    plan: "Plan", *, source: str, accepted: "Accepted | None", before: "Installed | None" = None
) -> JsonObject:
    """Return all that an approval to install binds.

    `accepted` is what was consented to under that name before, `before` the version that is in use so far.
    """
    dependency, lock = plan.dependency, plan.lock
    permissions: Json = msgspec.to_builtins(dependency.permissions)
    facts: dict[str, Json] = {
        "name": dependency.name,
        "version": dependency.version,
        "install": dependency.install,
        "integrity": dependency.integrity,
        "source": source,
        "ecosystem": dependency.package.ecosystem,
        "artefact": lock.artefact if len(lock.artefact) == 1 else f"{len(lock.artefact)} wheels, each hashed",
        "lock": lock.digest,
        "packages": len(lock.packages),
        "size": lock.size,
        "released_at": lock.released_at,
        "scripts": lock.with_scripts,
        "env_required": dependency.env_required,
        "env": dict(dependency.env),
        "tool": dependency.package.tool,
        "args": dependency.argv,
        "permissions": permissions,
        "containment": plan.containment,
    }
    if dependency.package.ecosystem == "mcpb":
        facts["bundle"] = lock.packages[0].detail.get("kind")
    if dependency.mcp_name is not None:
        facts["mcp_name"] = dependency.mcp_name
    if dependency.status is not None:
        facts["status"] = dependency.status
    if accepted is not None and accepted.lock != lock.digest:
        facts["accepted_lock"] = accepted.lock
    if before is not None:
        facts["in_use"] = before.dependency.version
    if before is not None and plan.containment.is_weaker_than(before.containment):
        facts["contained_before"] = before.containment
    if (age := plan.age) is not None:
        facts["min_age_days"] = age.min_days
        facts["youngest_at"] = None if age.youngest_at is None else instant(age.youngest_at)
    return {"dependency": facts}


def rule_could_cover(
    plan: "Plan",
    *,
    bundled: "Iterable[McpDependency]",
    accepted: "Accepted | None",
    before: "Installed | None",
) -> bool:
    """Tell whether a rule, a model or a parent may have it installed; all else is a person's.

    It is the catalog's, lock and all, or it reaches nothing and is wholly held to that on this machine. Never
    on other terms than those consented to under its name before, nor held by less, nor too young.
    """
    if plan.dependency.integrity is None or (accepted is not None and accepted.terms != plan.terms):
        return False
    if before is not None and plan.containment.is_weaker_than(before.containment):
        return False
    if plan.age is not None and not plan.age.is_enough:
        return False
    is_confined = plan.dependency.permissions.reach_nothing and plan.containment.is_whole
    return is_confined or any(each.terms(_digest_of(each.lock)) == plan.terms for each in bundled)


def _digest_of(lock: "Lock | str | None") -> str:
    return lock if isinstance(lock, str) else "" if lock is None else lock.digest


def why_install(asked: JsonObject, tool: str) -> str:
    """Return why PML asks to install the server of `tool`."""
    in_use = _facts(asked).get("in_use")
    if in_use is None:
        return f"{visible(tool)}'s server is not installed yet"
    return f"{visible(tool)}'s server is in use as {visible(str(in_use))}, approved on other terms"


def dependency_title(asked: JsonObject) -> str:
    """Return `memory@1.2.3`."""
    facts = _facts(asked)
    return visible(f"{facts.get('name')}@{facts.get('version')}")


def told_package(asked: JsonObject) -> str:
    """Return what is to be installed and where it comes from, in one sentence; visible."""
    facts = _facts(asked)
    kind = _KINDS.get(str(facts.get("ecosystem")), "a package")
    name, version = visible(str(facts.get("name"))), visible(str(facts.get("version")))
    return f"{name} is a server: {kind}, version {version}, from {_source(facts)}"


def dependency_name(asked: JsonObject) -> str:
    return visible(str(_facts(asked).get("name")))


def server_name(asked: JsonObject) -> str:
    return visible(str(asked.get("server")))


def is_installed(asked: JsonObject) -> bool:
    """Tell whether changed files are those of an installed server, not programs in the workspace."""
    return "@" in str(asked.get("server"))


def variable_names(asked: JsonObject) -> str:
    return ", ".join(missing_variables(asked))


def missing_variables(asked: JsonObject) -> list[str]:
    return [visible(name) for name in _texts(asked.get("missing"))]


def tell_install(asked: JsonObject, *, at: datetime | None = None) -> list[tuple[str, str]]:
    """Return the facts of an install, the weightiest first, as plain text has them."""
    return pairs(install_rows(asked, at=at))


def install_rows(asked: JsonObject, *, at: datetime | None = None) -> list[Fact]:
    """Return the facts of an install, the weightiest first; `at` is when it is weighed."""
    facts = _facts(asked)
    told_by = "" if facts.get("source") == "catalog" else " (says the registry)"
    integrity, moved, before = (facts.get(key) for key in ("integrity", "accepted_lock", "contained_before"))
    released, is_new = _age(facts.get("released_at"), at)
    youngest, is_young = _youngest(facts, at)
    status, listed_as = facts.get("status"), facts.get("mcp_name")
    told: list[tuple[str, str | None]] = [
        ("status", None if status is None else _STATUS.get(str(status), visible(str(status)))),
        ("package", visible(str(facts.get("install")))),
        ("hash", "UNVERIFIED: no integrity is given" if integrity is None else None),
        ("moved", None if moved is None else f"another lock was accepted before: {visible(str(moved))}"),
        ("runs", _containment(facts)),
        ("weaker", None if before is None else f"so far it ran contained by {_CONTAINED.get(str(before))}"),
        ("hash", None if integrity is None else visible(str(integrity))),
        ("bundle", _bundle(facts.get("bundle"))),
        ("packages", _packages(facts) + told_by),
        ("scripts", _scripts(facts)),
        ("released", released + told_by),
        ("youngest", youngest),
        ("needs", ", ".join(map(visible, _texts(facts.get("env_required")))) or "no settings"),
        ("from", _source(facts)),
        ("listed as", None if listed_as is None else _listed_as(str(listed_as))),
        ("lock file", visible(str(facts.get("lock")))),
    ]
    for key, word in (("tool", "starts"), ("args", "arguments"), ("env", "sets")):
        told.append((word, visible_json(facts[key], indent=None) if facts.get(key) else None))
    told.append(("call", _call(asked) if "call" in asked else None))
    alarming = {
        "status": True,
        "bundle": facts.get("bundle") == "binary",
        "hash": integrity is None,
        "moved": True,
        "runs": str(facts.get("containment")) not in _CONTAINED,
        "weaker": True,
        "released": is_new,
        "youngest": is_young,
    }
    return [
        Fact(name=name, value=value, alarming=alarming.get(name, False))
        for name, value in told
        if value is not None
    ]


def tell_variables(asked: JsonObject) -> list[tuple[str, str]]:
    names = _texts(asked.get("missing"))
    how = [f"pml secrets set {visible(name)}" for name in names]
    return [
        ("missing", variable_names(asked)),
        ("set it", "\n".join([*how, "or as NAME=value in .env of PML_HOME or of the trusted workspace"])),
        ("never", "through the model or in this conversation"),
        ("call", _call(asked)),
    ]


def changed_rows(asked: JsonObject) -> list[Fact]:
    """Return the facts of changed files; which they are must not be overlooked."""
    files = [visible(file) for file in _texts(asked.get("files"))]
    more = len(files) - _SHOWN_FILES
    shown = files[:_SHOWN_FILES] + ([f"and {more} more"] if more > 0 else [])
    safest = "look at the files first: an agent that can write the workspace may have changed them"
    if is_installed(asked):
        safest = f"deny it, then `pml deps install {server_name(asked).partition('@')[0]}` reinstalls it"
    return [
        Fact(name="server", value=server_name(asked)),
        Fact(name="changed", value="\n".join(shown), alarming=True),
        Fact(name="safest", value=safest),
        Fact(name="was", value=visible(str(asked.get("was")))),
        Fact(name="now", value=visible(str(asked.get("now")))),
        Fact(name="call", value=_call(asked)),
    ]


def _facts(asked: JsonObject) -> JsonObject:
    facts = asked.get("dependency")
    return facts if isinstance(facts, Mapping) else {}


def _texts(values: Json) -> list[str]:
    return [str(value) for value in values] if isinstance(values, list | tuple) else []


def _call(asked: JsonObject) -> str:
    call = asked.get("call")
    tool = call.get("tool") if isinstance(call, Mapping) else None
    return f"{visible(str(tool))} {visible_json(call_arguments(asked), indent=None)}"


def _source(facts: JsonObject) -> str:
    return "PML's catalog" if facts.get("source") == "catalog" else visible(str(facts.get("source")))


def _packages(facts: JsonObject) -> str:
    size, count = facts.get("size"), facts.get("packages")
    told = bytes_text(size) if isinstance(size, int) else "size not known before the download"
    packages = f"{visible(str(count))} package{'' if count == 1 else 's'}"
    return f"{packages}, each checked against its hash, {told}"


def _scripts(facts: JsonObject) -> str:
    names = _texts(facts.get("scripts"))
    return f"never run; {', '.join(map(visible, names))} carry some" if names else "none"


def _containment(facts: JsonObject) -> str:
    """Return what the server will reach and what holds it to that, claiming no more than is so."""
    given = facts.get("permissions")
    permissions: JsonObject = given if isinstance(given, Mapping) else {}
    kind = str(facts.get("containment"))
    parts = [
        f"network: {_network(permissions.get('net', False), kind, facts.get('ecosystem'))}",
        f"workspace: {visible(str(permissions.get('workspace', 'write')))}",
    ]
    parts += [
        f"{key}: {', '.join(map(visible, _texts(permissions.get(key))))}"
        for key in ("read", "write", "run")
        if permissions.get(key)
    ]
    if kind in _CONTAINED:
        return f"contained by {_CONTAINED[kind]} ({'; '.join(parts)})"
    return f"NOT CONTAINED: it can do what you can; it says it needs {'; '.join(parts)}"


def _network(net: Json, kind: str, ecosystem: Json) -> str:
    if net is True:
        return "all"
    hosts = ", ".join(map(visible, _texts(net)))
    if hosts and ecosystem == "npm":
        return f"{hosts} (only Deno holds it to that)"
    if hosts:
        return f"open (it says it needs {hosts})"
    return "none, as far as the kernel can" if kind == "landlock" else "none"


def _bundle(kind: Json) -> str | None:
    """Return what proves an MCP bundle, and what that does not say."""
    if kind is None:
        return None
    told = "known by this hash of its file; signatures in it are not verified"
    if kind == "binary":
        return f"A PROGRAM whose source nobody here can read, run only where it is contained; {told}"
    return f"{visible(str(kind))} code with all its packages, {told}"


def _listed_as(name: str) -> str:
    return f"{visible(name)}; not installed if the package does not say so itself"


def _age(released: Json, at: datetime | None) -> tuple[str, bool]:
    """Return when it was released, and whether that is new: few have looked at it so far."""
    try:
        then = datetime.fromisoformat(str(released))
    except ValueError:
        return "unknown", False
    told = then.strftime("%Y-%m-%d")
    if at is None or then.tzinfo is None:
        return told, False
    days = (at - then).days
    is_new = days < _NEW_DAYS
    return f"{told}, {days} day{'' if days == 1 else 's'} ago" + (": NEW" if is_new else ""), is_new


def _youngest(facts: JsonObject, at: datetime | None) -> tuple[str | None, bool]:
    """Return how old the youngest package is, where it must have an age, and whether it lacks that."""
    if (days := facts.get("min_age_days")) is None:
        return None, False
    asked = f"`install.min_age_days` is {days}"
    try:
        then = datetime.fromisoformat(str(facts.get("youngest_at")))
    except ValueError:
        why = "the package registry does not say when each package was published"
        return f"AGE NOT KNOWN: {why}; {asked}", True
    told = then.strftime("%Y-%m-%d")
    is_young = isinstance(days, int) and at is not None and at - then < timedelta(days=days)
    return (f"TOO YOUNG: a package was published on {told}; {asked}" if is_young else told), is_young


def bytes_text(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
