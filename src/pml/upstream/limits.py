"""Every bound on a server in one place: how long anything may take, and how much it may send."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Times in seconds, sizes in bytes. The defaults are what users get; tests shorten them."""

    start_s: float = 30.0  # from the spawn to the manifest: package runners may still be unpacking
    call_s: float = 600.0  # of silence: progress starts it again
    # After closing stdin, and again after SIGTERM: clients kill a gateway 4 s after they close its input.
    stop_s: float = 1.0
    # For last words in the pipes, where something that escaped the group holds them open.
    drain_s: float = 0.5
    backoff_s: float = 0.5  # before the start after a crash, doubled by each further one in a row
    backoff_max_s: float = 30.0  # also how long a crash loop cools before it is tried again
    backoff_wait_s: float = 2.0  # a call waits for a start that is this near, and fails at once otherwise
    crash_loop: int = 5  # crashes in a row
    healthy_s: float = 60.0  # a run that lasted this long ends a row of crashes; one that answered does not
    line_bytes: int = 64 * 1024 * 1024
    unread_bytes: int = 64 * 1024 * 1024  # sent to a server that does not read its input
    requests_by_server: int = 16  # that a server may have open towards the client
    logged_per_s: int = 100  # log messages passed on to the client
    pages: int = 100  # of one list
    entries: int = 10_000  # of one list
    connections: int = 64  # to one remote server; what is more waits
    idle_connections: int = 8
    log_bytes: int = 1024 * 1024  # of a log file; one older one is kept beside it
    tail_lines: int = 3  # of stderr, told when the server fails
