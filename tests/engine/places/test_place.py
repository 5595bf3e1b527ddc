"""What a `Place` makes of its fields."""

from __future__ import annotations

from engine.places.place import Place
from engine.store import Store, Unavailable


def _open() -> Store:
    raise Unavailable("not here")


def test_all_logs_are_those_of_ours_and_of_the_server() -> None:
    """A log that both name comes once: its lines would come twice."""
    place = Place("a", _open, logs=("/q.log", "/m.log"), server_logs=("/m.log", "/s.log"))

    assert place.all_logs == ("/q.log", "/m.log", "/s.log")
