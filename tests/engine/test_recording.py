"""A moment becomes a few hundred bytes and comes back; of other bytes nothing is believed."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.alerts import Sight
from engine.limits import Left
from engine.model import State
from engine.recording import _USUAL, LARGEST, BadSample, pack, sample, unpack
from tests.engine.moments import NOW, a_sample, a_way, an_alert


def test_a_moment_comes_back_as_it_was() -> None:
    """Counts, rates, ages, lock, alerts, transports and tokens are what they were; an alert is of
    the place as it is called now; of a place that could not be read only the reason comes back."""
    seen = a_sample()
    again = unpack(pack(seen), "mail.out")
    assert again._replace(transports=()) == seen._replace(transports=())
    (way,), (before,) = again.transports, seen.transports
    assert way[:2] == before[:2]
    assert way.last_success == before.last_success
    assert [w.tally for w in way.windows] == [w.tally for w in before.windows]
    assert unpack(pack(seen), "/srv/mail.out").alerts[0].leads_to.place == "/srv/mail.out"
    lost = sample(Sight("x", unavailable="No such file"), NOW, "a console", tokens="no limits file")
    assert unpack(pack(lost), "x") == lost


@given(
    st.lists(st.text(max_size=200), max_size=30),
    st.lists(st.text(max_size=200), max_size=30),
    st.text(max_size=300),
    st.integers(0, 10**12),
)
def test_a_moment_is_never_larger_than_its_bound(
    ways: list[str], alerts: list[str], words: str, number: int
) -> None:
    """Whatever names and words there are, it fits, its counts stay, and it can be read again."""
    seen = a_sample(
        pending=number,
        transports=tuple(a_way(name) for name in ways),
        alerts=tuple(an_alert(text) for text in alerts),
        unavailable=words,
        tokens=tuple(Left(name, 1, 5, None) for name in ways),
    )
    data = pack(seen)
    again = unpack(data, "x")
    assert len(data) <= LARGEST
    assert again.counts[State.PENDING] == number
    assert (again.oldest, again.due, again.rates) == (seen.oldest, seen.due, seen.rates)


@given(st.binary(max_size=LARGEST))
def test_other_bytes_are_no_moment(data: bytes) -> None:
    """Bytes by chance are refused, whatever they are."""
    with pytest.raises(BadSample):
        unpack(data, "x")


def packed(row: Any) -> bytes:
    """Anything in the form of a moment."""
    deflate = zlib.compressobj(9, wbits=-15, zdict=_USUAL)
    return deflate.compress(json.dumps(row).encode()) + deflate.flush()


SPOILT: list[tuple[int, Any]] = [
    *((0, 2), (1, "soon"), (1, float("nan")), (1, 10**400), (7, [1e300, None, None])),
    *(
        (8, [0.0, 10**4299]),
        (2, 7),
        (3, [["pending", "pending", -1]]),
        (3, [["elsewhere", "x", 1]]),
    ),
    *((3, [["pending", "pending", True]]), (6, 1 << 60), (7, [None, None]), (8, [0.1])),
    (9, ["free", "x", None, 0, ""]),
    (10, [["LOUD", "an old task", "", None, "queue", None, ""]]),
    (11, [["postfix", [1, 2], None, None, []]]),
    *((12, [["", 1]]), (12, 5)),
]
"""A field of a moment, and what is written into it."""


def test_a_moment_with_a_field_that_cannot_be_is_refused() -> None:
    """One that is right in all but one field is not believed at all; bytes that unpack to megabytes
    cost no more than a moment does."""
    inflate = zlib.decompressobj(wbits=-15, zdict=_USUAL)
    row = json.loads(inflate.decompress(pack(a_sample())))
    assert unpack(packed(row), "x")
    for field, value in SPOILT:
        spoilt = [value if at == field else kept for at, kept in enumerate(row)]
        with pytest.raises(BadSample):
            unpack(packed(spoilt), "x")
    with pytest.raises(BadSample):
        unpack(packed([1, " " * (8 << 20)])[:LARGEST], "x")
