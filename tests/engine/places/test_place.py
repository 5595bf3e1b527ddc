"""What a `Place` makes of its fields."""

import pytest

from engine.model import LockEvidence, Verdict
from engine.places.place import Place, ServerState, WholeQueueFigures
from engine.store import Store, Unavailable

NOW = 1_767_787_200.0  # 2026-01-07 12:00:00Z
MAILER = ServerState("the mailer", "the mailer is stopped", None)
RUNS = MAILER._replace(is_running=True)
RUNNING = "the mailer delivers: running"


def _open() -> Store:
    raise Unavailable("not here")


def test_all_logs_are_those_of_ours_and_of_the_server() -> None:
    """A log that both name comes once: its lines would come twice."""
    place = Place("a", _open, logs=("/q.log", "/m.log"), server_logs=("/m.log", "/s.log"))
    assert place.all_logs == ("/q.log", "/m.log", "/s.log")


@pytest.mark.parametrize(("state", "words"), [
    (MAILER, "the mailer delivers: running or not is unknown"),
    (MAILER._replace(why="no\x1b right"), "the mailer delivers: running or not is unknown: no"),
    (RUNS, "the mailer delivers: running"),
    (RUNS._replace(pid=812, since=NOW - 60), f"{RUNNING}, PID 812, since 11:59Z"),
    (RUNS._replace(since=NOW - 86_400), f"{RUNNING}, since 2026-01-06 12:00Z"),
    (MAILER._replace(is_running=False), "the mailer is stopped: 1,345 wait"),
    (None, "the mailer delivers: cannot ask"),
])  # fmt: skip
def test_the_server_of_a_place_in_words(state: ServerState | None, words: str) -> None:
    """Which server delivers, and whether it runs, since when."""
    place = Place("a", _open, no_worker="it delivers", server="the mailer")
    figures = WholeQueueFigures(server=state, unknown="" if state else "cannot ask")
    assert place.describe_server(figures, 1345, NOW).startswith(words)


def test_a_place_without_a_server_in_words() -> None:
    """Without a worker of ours, the reason; nothing where a worker can be, or a lock shows it."""
    place, none = Place("a", _open, no_worker="the jobs do it"), WholeQueueFigures()
    locked = place._replace(lock=lambda: LockEvidence(Verdict.FREE))
    assert place.describe_server(none, 3, NOW) == "no worker here: the jobs do it"
    assert locked.describe_server(none, 3, NOW) == ""
    assert place._replace(no_worker="").describe_server(none, 3, NOW) == ""
