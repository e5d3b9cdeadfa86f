"""The command line of a Deno process that may do nothing, and the box around it where bubblewrap makes one.

Deno's own flags deny everything, with or without the box. What is said to the process is not known here.
"""

import os
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent

import msgspec

from pml.core.sessions.agent_marks import SET

# Deno wants a folder for what it keeps. None can be made beneath a file: so nothing is ever kept.
ENVIRONMENT: Final = {"DENO_DIR": "/dev/null/none", "TZ": "UTC", "NO_COLOR": "1", **SET}
_DENY: Final = ("read", "write", "net", "env", "sys", "run", "ffi", "import")
_FLAGS: Final = (
    *("--no-prompt", "--no-remote", "--no-npm", "--cached-only", "--no-config", "--no-lock", "--no-check"),
    *(f"--deny-{what}" for what in _DENY),
)
# Modules of Node are part of Deno and load without any permission: the import map leads them nowhere.
_NODE_MODULES: Final = (
    *("_http_agent", "_http_client", "_http_common", "_http_incoming", "_http_outgoing", "_http_server"),
    *("_stream_duplex", "_stream_passthrough", "_stream_readable", "_stream_transform", "_stream_wrap"),
    *("_stream_writable", "_tls_common", "_tls_wrap", "assert", "assert/strict", "async_hooks", "buffer"),
    *("child_process", "cluster", "console", "constants", "crypto", "dgram", "diagnostics_channel", "dns"),
    *("dns/promises", "domain", "events", "fs", "fs/promises", "http", "http2", "https", "inspector"),
    *("inspector/promises", "module", "net", "os", "path", "path/posix", "path/win32", "perf_hooks"),
    *("process", "punycode", "querystring", "quic", "readline", "readline/promises", "repl", "sea", "sqlite"),
    *("stream", "stream/consumers", "stream/promises", "stream/web", "string_decoder", "sys", "test"),
    *("test/reporters", "timers", "timers/promises", "tls", "trace_events", "tty", "url", "util"),
    *("util/types", "v8", "vm", "wasi", "worker_threads", "zlib"),
)
_NOWHERE: Final = "blocked:"
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", "/gnu/store")
# The process is the first of its own world, so that it is found by the number that bubblewrap tells. It stays
# in bubblewrap's group, so that one signal meets both, and dies with it and with the thread that started it.
_BOX: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--cap-drop", "ALL", "--die-with-parent", "--as-pid-1"),
)


def script(name: str) -> Path:
    """Return the path of a script of this package."""
    return Path(str(files("pml.sandbox").joinpath("scripts", name)))


def command(deno: str, script_path: str, *, heap_mb: int) -> tuple[str, ...]:
    """Return the words that run a script of ours in a process that may do nothing."""
    # No code from text: what a program can do is in its own text, to be read there.
    v8 = f"--v8-flags=--max-old-space-size={heap_mb},--disallow-code-generation-from-strings"
    return (deno, "run", *_FLAGS, f"--import-map={_import_map()}", v8, script_path)


def boxed(bwrap: str, deno: str, script_path: Path, *, heap_mb: int, info_fd: int) -> tuple[str, ...]:
    """Return the words that do so in a box: libraries, Deno and the scripts, no network, no other process."""
    shown: list[str] = []
    for path in _LIBRARIES:
        if os.path.islink(path):
            shown += ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            shown += ("--ro-bind", path, path)
    scripts = os.path.realpath(script_path.parent)
    return (
        *(bwrap, *_BOX, "--info-fd", str(info_fd), *shown),
        *("--ro-bind", os.path.realpath(deno), "/deno", "--ro-bind", scripts, "/scripts"),
        *("--dev", "/dev", "--proc", "/proc", "--remount-ro", "/", "--chdir", "/", "--"),
        *command("/deno", f"/scripts/{script_path.name}", heap_mb=heap_mb),
    )


def _import_map() -> str:
    imports = {f"node:{name}": f"{_NOWHERE}node" for name in _NODE_MODULES}
    imports |= {"https://": f"{_NOWHERE}///", "http://": f"{_NOWHERE}///"}
    return "data:application/json," + percent(msgspec.json.encode({"imports": imports}).decode())
