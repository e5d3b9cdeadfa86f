"""Metrics of the hub, in Prometheus' text format. No value of a request is in a label.

Decisions are counted from the audit log, so that those of other processes on the store are included.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pml import __version__
from pml.core.ports.queries import AuditQuery
from pml.hub.webhook.notifier import Deliveries
from pml.service.context import Context

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGE: Final = 1000
_DECIDED: Final = {"approval.allowed": "allowed", "approval.denied": "denied"}


@dataclass(frozen=True, kw_only=True)
class Gauges:
    """What other parts of the hub count."""

    waiting_permits: Callable[[], int]
    event_streams: Callable[[], int]
    deliveries: Callable[[], Deliveries] = Deliveries


class Metrics:
    def __init__(self, context: Context, gauges: Gauges, *, started_at: datetime) -> None:
        self._context = context
        self._gauges = gauges
        self._started_at = started_at
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._seen_seq = 0
        self._reading = asyncio.Lock()

    def seen(self, method: str, route: str, status: int) -> None:
        """Count an answer; `route` is a path of the table, never one that was asked for."""
        self._requests[method if method in _METHODS else "other", route, str(status)] += 1

    async def text(self) -> str:
        """Return all numbers as they are now."""
        await self._count_decisions()
        store = self._context.store
        sessions = Counter(_key(session.role) for session in await store.sessions.live())
        runs = Counter(_key(run.state) for run in await store.runs.live())
        pending = await store.approvals.count_pending()
        now = self._context.clock.now()
        deliveries = self._gauges.deliveries()
        families = [
            _family("pml_info", "gauge", "the version", ("version",), {(__version__,): 1}),
            _gauge("pml_approvals_pending", "questions that wait", pending),
            _family(
                "pml_decisions_total",
                "counter",
                "decisions since the hub started",
                ("by", "outcome"),
                self._decisions,
            ),
            _family("pml_sessions_live", "gauge", "sessions that have not ended", ("role",), sessions),
            _family("pml_runs_live", "gauge", "launched agents that have not ended", ("state",), runs),
            _gauge("pml_permits_waiting", "permission calls that wait here", self._gauges.waiting_permits()),
            _gauge("pml_event_streams", "open event streams", self._gauges.event_streams()),
            _family(
                "pml_webhook_deliveries_total",
                "counter",
                "attempts to tell the webhook of a question",
                ("outcome",),
                {("delivered",): deliveries.delivered, ("failed",): deliveries.failed},
            ),
            _family(
                "pml_http_requests_total",
                "counter",
                "answered requests",
                ("method", "route", "status"),
                self._requests,
            ),
            _gauge("pml_uptime_seconds", "since the start", (now - self._started_at).total_seconds()),
            _gauge("process_resident_memory_bytes", "memory of the hub", _resident_bytes()),
        ]
        return "".join(families)

    async def _count_decisions(self) -> None:
        async with self._reading:  # two readers at once would count the same entries
            while links := await self._context.store.audit.list(
                AuditQuery(since=self._started_at, after=self._seen_seq, limit=_PAGE)
            ):
                for entry in (link.entry for link in links):
                    if entry.kind in _DECIDED and entry.by is not None:
                        self._decisions[str(entry.by.kind), _DECIDED[entry.kind]] += 1
                self._seen_seq = links[-1].seq


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _gauge(name: str, told: str, value: float) -> str:
    return _family(name, "gauge", told, (), {(): value})


def _family(
    name: str, kind: str, told: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> str:
    lines = [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels, key)} {value}" for key, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _key(value: str) -> tuple[str, ...]:
    return (str(value),)


def _labels(names: tuple[str, ...], values: Iterable[str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident_bytes() -> int:
    if sys.platform == "linux":
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil

    return psutil.Process().memory_info().rss
