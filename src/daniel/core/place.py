"""Where sums over records are made: in this process, or at a place in use that keeps the records.

    with at(place):        # `daniel.cluster` has one
        ...                # every sweep over enough records now goes there

Work is a function of the module level, ``work(records, shared, item)``, that returns a tuple of
arrays or numbers which add up over parts of the records.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from daniel.core.records import Records, refuse_cut

# Distinct records * codes from which the way costs little beside the sums:
WORTH = 1 << 26  # there and back
WORTH_ONCE = 1 << 29  # with the rows, which are sent for a few sums only

Sums = tuple[Any, ...]
Work = Callable[[Records, Any, Any], Sums]


class Place(Protocol):
    def sums(
        self, work: Work, records: Records, shared: Any, items: Sequence[Any]
    ) -> Iterator[Sums]:
        """``work(records, shared, item)`` for each item in turn."""
        ...


_place: ContextVar[Place | None] = ContextVar("place", default=None)


@contextmanager
def at(place: Place | None) -> Iterator[None]:
    """Make the sums of this thread at the place; None: here."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


@contextmanager
def once(records: Records) -> Iterator[None]:
    """Within it, sums are made here unless sending these records pays for a few of them."""
    with at(_place.get() if records.n * records.p >= WORTH_ONCE else None):
        yield


def elsewhere(records: Records) -> Place | None:
    """The place in use, if there are enough records to be worth the way."""
    refuse_cut(records.indices)
    worth = records.n * records.p >= WORTH and len(records.chunks) > 1
    return _place.get() if worth else None


def add_up(work: Work, records: Records, shared: Any) -> Sums:
    """``work(records, shared, None)``, here or elsewhere."""
    place = elsewhere(records)
    if place is None:
        return work(records, shared, None)
    (sums,) = place.sums(work, records, shared, [None])
    return sums
