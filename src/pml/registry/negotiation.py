"""Content negotiation: which of the forms of an entry a request wants, and whether it has it already."""

from collections.abc import Iterator, Sequence

from pml.registry.entries import Form


def negotiate(accept: str | None, offered: Sequence[Form]) -> Form | None:
    """Return the form of `offered` that the `Accept` header likes best, the first among equals."""
    if accept is None or not accept.strip():
        return offered[0] if offered else None
    ranges = list(_ranges(accept))
    liked = [(_quality(form, ranges), form) for form in offered]
    best = max((quality for quality, _ in liked), default=0.0)
    return next((form for quality, form in liked if quality == best > 0), None)


def has_already(if_none_match: str | None, etag: str) -> bool:
    """Tell whether the `If-None-Match` header names `etag`, weakly or not."""
    if if_none_match is None:
        return False
    given = [part.strip().removeprefix("W/") for part in if_none_match.split(",")]
    return "*" in given or etag in given


def _ranges(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            yield media, min(max(float(quality), 0.0), 1.0)
        except ValueError:  # a quality that is no number makes the range unreadable, and it does not count
            continue


def _quality(form: Form, ranges: Sequence[tuple[str, float]]) -> float:
    """Return what the most specific of the ranges that cover `form` says."""
    for covering in (form.value, f"{form.value.partition('/')[0]}/*", "*/*"):
        found = [quality for media, quality in ranges if media == covering]
        if found:
            return max(found)
    return 0.0
