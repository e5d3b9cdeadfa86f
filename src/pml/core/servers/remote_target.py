"""A server that is reached by URL: its address, what is sent to it, and what may be shown of both.

Plain http is refused but to this machine, or where the entry says `insecure`. Reaching it, and logging in, is
not known here.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pml.core.config.section import Section
from pml.core.digest import digest
from pml.core.rules.places import Starts
from pml.core.servers.expansion import Expander, expansion_problem
from pml.core.servers.remote_facts import RemoteFacts
from pml.core.text import has_hidden, quote
from pml.core.values import JsonObject

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
# what the transport itself says; another value would be about another message, or another host
_OWN_HEADERS: Final = re.compile(
    r"host|connection|content-.*|transfer-encoding|te|trailer|upgrade|expect|keep-alive|proxy-.*|accept"
    r"|accept-encoding|last-event-id|mcp-.*",
    re.IGNORECASE,
)
_SECRET_PARAMETER: Final = re.compile(
    r"([?&][^=&#]*(?:auth|token|secret|passw|credential|key|sig|code)[^=&#]*=)([^&#]*)", re.IGNORECASE
)
_VARIABLE_ONLY: Final = re.compile(r"\$\{[^}]*\}")
_ELSEWHERE: Final = {"serverUrl": "Windsurf", "httpUrl": "Gemini"}
_PORTS: Final = (1, 65535)


class RemoteKind(StrEnum):
    """How a server is spoken to over HTTP; `auto` is Streamable HTTP, and legacy SSE where it has none."""

    AUTO = "auto"
    HTTP = "http"
    SSE = "sse"


_KINDS: Final[Mapping[str | None, RemoteKind]] = {
    None: RemoteKind.AUTO,
    "http": RemoteKind.HTTP,
    "streamable-http": RemoteKind.HTTP,
    "sse": RemoteKind.SSE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OAuthSettings:
    """How PML logs in to a server, where the server's own metadata does not suffice. No secrets."""

    client_id: str | None = None
    callback_port: int | None = None
    scopes: tuple[str, ...] = ()
    client_metadata_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRemote:
    """The entry as its file has it, with variables where `RemoteTarget` has their values.

    `unset` are those of `names` that have no value: the server cannot be reached.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    names: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteTarget:
    """A server's address. The values of `headers` are secrets: they are never shown, and go to `url` only.

    `written` None: its entry has no variables. `is_insecure`: its file allows plain http to another machine.
    `is_private`: its name, though a public one, may lead to a private address.
    """

    url: str = field(repr=False)
    kind: RemoteKind = RemoteKind.AUTO
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuthSettings | None = None
    is_insecure: bool = False
    is_private: bool = False
    written: WrittenRemote | None = None

    @property
    def shown(self) -> WrittenRemote:
        """The entry as it may be shown but for its headers: with variables, and no secret in the URL."""
        entry = self.written or WrittenRemote(url=self.url, headers=self.headers)
        return WrittenRemote(url=shown_url(entry.url), headers={}, names=entry.names, unset=entry.unset)

    @property
    def artefact(self) -> None:
        """Nothing of it is installed here."""
        return

    @property
    def permissions(self) -> None:
        """It runs elsewhere: nothing here holds it to any."""
        return

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of PML's own environment that its entry names."""
        return () if self.written is None else self.written.names

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables that it cannot be reached without, and that are not set."""
        return () if self.written is None else self.written.unset

    @property
    def secrets(self) -> Mapping[str, str]:
        """The values that are shown nowhere: of headers, also without their scheme, variables, and URL."""
        found = dict(self.headers)
        for name, value in self.headers.items():
            _, _, bare = value.partition(" ")
            if bare.strip():
                found[f"{name} without its scheme"] = bare.strip()
        for index, (_, value) in enumerate(_SECRET_PARAMETER.findall(self.url)):
            found[f"secret {index + 1} of the URL"] = value
        return {**found, **({} if self.written is None else self.written.values)}

    @property
    def origin(self) -> str:
        """The scheme, host and port, as a browser compares them."""
        return origin_of(self.url)

    @property
    def line(self) -> str:
        """Where it is, in a line that may be shown."""
        return self.shown.url

    def digest(self) -> str:
        """Return the digest of how it is reached: any other address or header is another server.

        One whose entry has variables is the same whatever their values: its pins tell of another address.
        """
        entry = self.written or WrittenRemote(url=self.url, headers=self.headers)
        oauth = self.oauth
        return digest(
            {
                "kind": self.kind,
                "url": entry.url,
                "headers": entry.headers,
                "insecure": self.is_insecure,
                "private": self.is_private,
                "oauth": None
                if oauth is None
                else {
                    "client_id": oauth.client_id,
                    "callback_port": oauth.callback_port,
                    "scopes": oauth.scopes,
                    "client_metadata_url": oauth.client_metadata_url,
                },
            }
        )

    def facts(self, name: str) -> RemoteFacts:
        """Return what a person is shown who is asked to let the server `name` be reached so."""
        return RemoteFacts(
            name=name,
            url=self.line,
            transport=self.kind,
            header_names=tuple(self.headers),
            variables=self.variables,
            unset=self.unset,
            insecure=self.is_insecure,
            private=self.is_private,
            oauth=self.oauth is not None,
            sent_to=self.origin if self.written is not None and "${" in self.written.url else None,
            entry=self.digest(),
        )

    def start_json(self, name: str) -> JsonObject:
        """Return how the server `name` is reached; of its headers and variables only the names."""
        return {
            "name": name,
            "url": self.line,
            "transport": self.kind,
            "header_names": tuple(self.headers),
            "variables": self.variables,
            "unset": self.unset,
            "insecure": self.is_insecure,
            "private": self.is_private,
            "oauth": self.oauth is not None,
        }

    def starts(self, *, workspace: str, home: str) -> Starts:
        """Return where its relative paths begin: it sees no folder of this machine but as text."""
        return Starts()


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL; text that compares equal for one origin only."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = (parts.hostname or "").rstrip(".")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def shown_url(url: str) -> str:
    """Return the URL without the values of parameters that are named like secrets, and without a login."""

    def masked(found: re.Match[str]) -> str:
        return found[0] if _VARIABLE_ONLY.fullmatch(found[2]) else f"{found[1]}…"

    return _SECRET_PARAMETER.sub(masked, re.sub(r"//[^/?#]*@", "//…@", url))


def is_remote(entry: Section) -> bool:
    """Tell whether the entry is meant to be reached by URL. Raises: ConfigInvalid if it is both."""
    kind = entry.text("type")
    has_url = "url" in entry.node.members
    if has_url and "command" in entry.node.members:
        hint = "remove `url` to start a program, or `command` to reach a server elsewhere"
        entry.refuse("", entry.node, "has both `command` and `url`", hint=hint)
    if kind == "stdio" and has_url:
        entry.refuse("type", entry.node.members["type"], '`"stdio"` does not have a `url`')
    if kind not in _KINDS and kind != "stdio":
        hint = '`"http"` for Streamable HTTP, `"sse"` for the older transport, or leave it out'
        entry.refuse("type", entry.node.members["type"], f"cannot be {quote(kind or '')}", hint=hint)
    foreign = next((key for key in _ELSEWHERE if key in entry.node.members), None)
    if foreign is not None and not has_url:
        hint = f"write `url` in place of `{foreign}`, which is how {_ELSEWHERE[foreign]} writes it"
        entry.refuse("", entry.node, "has no `url`", hint=hint)
    return has_url or kind not in (None, "stdio")


def parse_remote(entry: Section, *, environ: Mapping[str, str]) -> RemoteTarget:
    """Return the server that the entry reaches by URL; `environ` has the values of variables in it.

    Raises: ConfigInvalid, which shows no value of a header and no secret of the URL.
    """
    written = entry.text("url")
    if written is None:
        entry.refuse("", entry.node, "has no `url`")
    insecure = entry.boolean("insecure") or False
    private = entry.boolean("private") or False
    headers = _headers(entry.section("headers"))
    oauth = _oauth(entry.section("oauth"))
    node = entry.node.members["url"]
    if problem := expansion_problem(written):
        entry.refuse("url", node, problem)
    expander = Expander(environ)
    url = expander(written)
    if not expander.unset and (problem := url_problem(url, is_insecure=insecure)):
        hint = 'or write `"insecure": true` beside it' if "plain http" in problem else None
        entry.refuse("url", node, problem, hint=hint)
    sent = {name: expander(value) for name, value in headers.items()}
    for name, value in sent.items():
        if not _VALUE.fullmatch(value):
            where = entry.node.members["headers"]
            entry.refuse(f"headers.{name}", where, "has a value that cannot stand in a header")
    entry.note_unknown()
    names, unset = tuple(expander.names), tuple(expander.unset)
    entry_written = WrittenRemote(
        url=written, headers=headers, names=names, unset=unset, values=expander.values
    )
    return RemoteTarget(
        url=url,
        kind=_KINDS[entry.text("type")],
        headers=sent,
        oauth=oauth,
        is_insecure=insecure,
        is_private=private,
        written=entry_written if names else None,
    )


def url_problem(url: str, *, is_insecure: bool) -> str | None:
    """Return why a server cannot be reached at `url`, or None. The URL is not in it."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable, parts = False, SplitResult("", "", "", "", "")
    if not is_usable or has_hidden(url) or " " in url or "\\" in url or not url.isascii():
        return "must be an http or https URL"
    if "@" in parts.netloc:
        return "must not have a user or password in it: a header can have it"
    if parts.fragment or url.endswith("#"):
        return "must not have a fragment (`#…`)"
    if parts.scheme == "http" and not (is_insecure or is_this_machine(parts.hostname or "")):
        return "is plain http to another machine, where others can read and change it: write `https`"
    return None


def is_this_machine(host: str) -> bool:
    """Tell whether `host` is spelt as this machine itself."""
    name = host.lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _headers(section: Section | None) -> dict[str, str]:
    if section is None:
        return {}
    found: dict[str, str] = {}
    for name, key in section.node.keys.items():
        if not _TOKEN.fullmatch(name):
            section.refuse(name, key, "is not a name for a header")
        if _OWN_HEADERS.fullmatch(name):
            section.refuse(name, key, "is a header that PML sets itself")
        if name.lower() in {other.lower() for other in found}:
            section.refuse(name, key, "is there twice")
        node = section.node.members[name]
        found[name] = section.as_text(name, node, may_be_empty=True)
        if problem := expansion_problem(found[name]):
            section.refuse(name, node, problem)
    return found


def _oauth(section: Section | None) -> OAuthSettings | None:
    if section is None:
        return None
    low, high = _PORTS
    metadata = section.text("client_metadata_url")
    if metadata is not None and (
        not metadata.startswith("https://") or url_problem(metadata, is_insecure=False)
    ):
        section.refuse(
            "client_metadata_url", section.node.members["client_metadata_url"], "must be an https URL"
        )
    scopes = section.texts("scopes") or ()
    for index, scope in enumerate(scopes):
        if not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", scope):
            node = section.node.members["scopes"].items[index]
            section.refuse(f"scopes[{index}]", node, "is not a scope: no spaces, quotes or backslashes")
    settings = OAuthSettings(
        client_id=section.text("client_id"),
        callback_port=section.whole_number("callback_port", low=low, high=high),
        scopes=scopes,
        client_metadata_url=metadata,
    )
    section.note_unknown()
    return settings
