"""The environment of installers: how the user reaches package registries, and nothing else of the user's.

An allow-list, so that no API key of the user is ever among it. Reads no file and no environment itself.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_SYSTEM: Final = (
    *("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TMP", "TEMP", "USER", "LOGNAME"),
    *("USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"),
)
_NETWORK: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "NETRC"),
)
_DENO: Final = ("DENO_CERT", "DENO_TLS_CA_STORE")
_UV: Final = re.compile(
    r"UV_((DEFAULT_|EXTRA_)?INDEX(_URL|_STRATEGY)?|INDEX_[A-Z0-9_]+_(USERNAME|PASSWORD)|FIND_LINKS"
    r"|KEYRING_PROVIDER|CONFIG_FILE|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|HTTP_TIMEOUT|CREDENTIALS_DIR"
    r"|EXCLUDE_NEWER|PYTHON_INSTALL_MIRROR|PYTHON_DOWNLOADS|PYTHON_INSTALL_DIR)"
)
_PIP: Final = re.compile(
    r"PIP_(INDEX_URL|EXTRA_INDEX_URL|NO_INDEX|FIND_LINKS|CERT|CLIENT_CERT|TRUSTED_HOST|PROXY|CONFIG_FILE"
    r"|KEYRING_PROVIDER)"
)
_NPM: Final = re.compile(
    r"npm_config_(registry|userconfig|globalconfig|cafile|proxy|https[-_]proxy|noproxy|@[^:]+:registry|//.+)",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\??\}")


def npm_surroundings(environ: Mapping[str, str], *, npmrc: str) -> dict[str, str]:
    """Return what Deno's installer gets; what `npmrc` refers to as `${NAME}` is for the registries too."""
    referred = _REFERENCE.findall(npmrc)
    kept = _pick(environ, (*_SYSTEM, *_NETWORK, *_DENO, *referred))
    kept |= {name: value for name, value in environ.items() if _NPM.fullmatch(name)}
    kept.setdefault("DENO_TLS_CA_STORE", "system,mozilla")
    if "NODE_EXTRA_CA_CERTS" in kept:
        kept.setdefault("DENO_CERT", kept["NODE_EXTRA_CA_CERTS"])
    return kept


def pypi_surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what uv gets: its own settings and those of pip, as the user has them."""
    kept = _pick(environ, (*_SYSTEM, *_NETWORK))
    return kept | {
        name: value for name, value in environ.items() if _UV.fullmatch(name) or _PIP.fullmatch(name)
    }


def _pick(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: environ[name] for name in names if name in environ}
