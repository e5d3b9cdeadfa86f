"""Questions to registries by URL, answered from the cache where it will do; and what folders had, kept there.

Fresh: no request. Stale: asked again, by ETag. Out of reach: what was answered last, with one warning. Those
who ask for one thing at once share one request. What an answer means is the asker's: it gives the reading.
Folders are read elsewhere: what was read is kept here, and recalled while a folder is not there.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec

from pml.core.errors import PmlError, Unavailable
from pml.core.ports.world import Clock
from pml.core.text import visible
from pml.registry.client.cache import Answered, Cache, Key
from pml.registry.client.web import Answer, Offline, Outcome, Patience, get

FRESH_S: Final = 3600.0  # what is published anew is in use within the hour
ABSENT_S: Final = 60.0  # a publisher of what was missing does not wait long for it
RETRY_S: Final = 30.0  # an agent that tries again and again does not wait for the same timeout each time

T = TypeVar("T")
Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question(Generic[T]):
    """What is asked for. `read` makes a value of a body, and raises for one that is not sound.

    `is_settled`: what `read` takes is right for ever. `absent_s` tells how long a miss is believed.
    """

    key: Key
    url: str
    read: Callable[[bytes], T]
    is_settled: bool = False
    absent_s: Callable[[], float] = lambda: ABSENT_S


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known(Generic[T]):
    """The last answer; `value` is None where the registry has no such entry."""

    answered: Answered
    value: T | None


class Lookups:
    """One for a process: it shares requests and warns once."""

    def __init__(self, home: Path, *, clock: Clock, warn: Say, debug: Say, patience: Patience) -> None:
        self._clock = clock
        self._warn = warn
        self._debug = debug
        self._patience = patience
        self._cache = Cache(home, debug=debug)
        self._kept: dict[Key, tuple[str, datetime]] = {}
        self._asking: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._down: dict[str | Key, tuple[datetime, Unavailable]] = {}
        self._has_warned = False

    async def answer(self, question: Question[T]) -> T | None:
        """Return the value, None if the registry has no such entry.

        Raises: Unavailable if it cannot be asked and nothing is known; what `read` raises.
        """
        known = self._known(question.key, question.read)
        if known is not None and self._is_fresh(question, known):
            self._tell("hit", question.key)
            return known.value
        lock = self._asking.setdefault(question.key, asyncio.Lock())
        async with lock:
            known = self._known(question.key, question.read)  # the one that had the lock may have asked
            if known is not None and self._is_fresh(question, known):
                self._tell("hit", question.key)
                return known.value
            return await self._ask(question, known)

    def keep(self, key: Key, body: bytes | None) -> None:
        """Keep what a folder has now, None for no such entry. Nothing is written if that is kept already."""
        sha256 = None if body is None else hashlib.sha256(body).hexdigest()
        now = self._clock.now()
        kept, seen_at = self._kept.get(key, (None, now))
        if kept is not None and kept == sha256 and 0 <= (now - seen_at).total_seconds() < FRESH_S:
            return
        loaded = self._cache.load(key)
        if loaded is None or loaded[0].sha256 != sha256:
            self._cache.store(Answered(key=key, fetched_at=now, etag=None, sha256=sha256), body or b"")
        if sha256 is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = (sha256, now)  # looked at again in an hour: others may empty the cache

    def recall(self, key: Key, read: Callable[[bytes], T], *, failure: Unavailable) -> T:
        """Return what was kept of a folder that is not there, with one warning.

        Raises: Unavailable, as `failure` has it, if nothing was, or nothing that `read` takes.
        """
        return self._stand_in(key, self._known(key, read), failure)

    def has(self, key: Key) -> bool:
        """Tell whether the registry is known to have had this entry."""
        loaded = self._cache.load(key)
        return loaded is not None and loaded[0].sha256 is not None

    @property
    def cache(self) -> Cache:
        return self._cache

    def forget(self, key: Key) -> None:
        """Make the next question about `key` a request, and what is kept for it nothing."""
        self._kept.pop(key, None)
        self._cache.forget(key)

    def _known(self, key: Key, read: Callable[[bytes], T]) -> _Known[T] | None:
        loaded = self._cache.load(key)
        if loaded is None:
            return None
        answered, body = loaded
        if answered.sha256 is None:
            return _Known(answered=answered, value=None)
        try:
            return _Known(answered=answered, value=read(body))
        except PmlError:  # kept by another version, or no longer what the metadata names
            self.forget(key)
            return None

    def _is_fresh(self, question: Question[T], known: _Known[T]) -> bool:
        age_s = (self._clock.now() - known.answered.fetched_at).total_seconds()
        if known.value is None:
            return 0 <= age_s < question.absent_s()
        return question.is_settled or 0 <= age_s < FRESH_S

    async def _ask(self, question: Question[T], known: _Known[T] | None) -> T | None:
        failure = self._recent_failure(question.key)
        if failure is not None:
            return self._stand_in(question.key, known, failure)
        has_value = known is not None and known.value is not None
        try:
            answer = await get(
                question.url,
                question.key.form,
                etag=known.answered.etag if known is not None and has_value else None,
                patience=self._patience,
                sent_by=question.key.registry,
            )
        except Offline as exc:
            scope = question.key.registry if exc.is_whole else question.key
            self._down[scope] = (self._clock.now() + timedelta(seconds=RETRY_S), exc)
            return self._stand_in(question.key, known, exc)
        return self._take(question, known, answer)

    def _take(self, question: Question[T], known: _Known[T] | None, answer: Answer) -> T | None:
        """Return what the registry answered, and keep it if it is sound."""
        now, key = self._clock.now(), question.key
        if answer.outcome is Outcome.UNCHANGED and known is not None:
            self._tell("revalidated", key)
            self._cache.renew(msgspec.structs.replace(known.answered, fetched_at=now))
            return known.value
        if answer.outcome is Outcome.ABSENT:
            self._tell("miss, no such entry", key)
            self._cache.store(Answered(key=key, fetched_at=now, etag=None, sha256=None), b"")
            return None
        value = question.read(answer.body)
        self._tell("miss, fetched", key)
        sha256 = hashlib.sha256(answer.body).hexdigest()
        self._cache.store(Answered(key=key, fetched_at=now, etag=answer.etag, sha256=sha256), answer.body)
        return value

    def _recent_failure(self, key: Key) -> Unavailable | None:
        for scope in (key, key.registry):
            until, failure = self._down.get(scope, (None, None))
            if until is not None and self._clock.now() < until:
                return failure
            self._down.pop(scope, None)
        return None

    def _stand_in(self, key: Key, known: _Known[T] | None, failure: Unavailable) -> T:
        if known is None or known.value is None:
            raise Unavailable(failure.message, hint=failure.hint) from failure
        self._tell("hit, offline", key)
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"{failure.message}; what it answered before is used")
        return known.value

    def _tell(self, what: str, key: Key) -> None:
        self._debug(f"registry cache: {what}: {key.name} ({key.form.value}) of {visible(key.registry)}")
