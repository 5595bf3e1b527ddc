"""The facts of the queue as a whole, and when an operator should act."""

from pathlib import Path
from typing import Any

from engine.formats.zgb import queue_config, queue_place
from engine.formats.zgb.claims import OrphanCount
from engine.formats.zgb.control import Backlog, QueueFigures
from engine.formats.zgb.log import Log, read_recent
from engine.formats.zgb.place import RateLimit
from engine.formats.zgb.queue_config import QueueConfig
from engine.formats.zgb.queue_place import describe_state, read_state
from engine.formats.zgb.store import ZgbStore
from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.model import State
from engine.monitor.forecast import ForecastInputs, forecast_drain
from engine.monitor.throughput import Drain, Trend
from tests.store_contents import naming
from tests.zgb import NOW, Opener, Sql, fail

REFILLED = str(int(NOW - 60))
CONFIG = QueueConfig(
    True, "40", False, tokens="2.5", refilled=REFILLED, start=None, end=None, move_token=""
)
FIGURES = QueueFigures(400, 40, 3, NOW + 30, drained=NOW + 270, drained_terms="3 x 90s at 40/h")


def a_state(**changes: Any) -> queue_place.QueueState:
    """A queue of which all is well."""
    backlog, unchanged = Backlog(6, 4, 1, 0), queue_config.RedirectDecision.UNCHANGED
    state = queue_place.QueueState(
        NOW, CONFIG, RateLimit(), figures=FIGURES, backlog=backlog, redirection=unchanged
    )
    return state._replace(**changes)


def test_each_figure_has_its_row() -> None:
    """Without faults there is no warning; without tokens, when the next one comes."""
    rows, warnings = describe_state(a_state(last_end=NOW - 60, last_result="2 sent"))
    assert (warnings, rows) == (
        (),
        (
            ("tokens", "3 of 5"),
            ("rate", "40 mails/hour, burst 5"),
            ("backlog", "6 waiting, 4 due; at least 4m: 3 x 90s at 40/h"),
            ("registrations", "400"),
            ("last run", "2026-11-20 10:19:00Z, 1m ago: 2 sent"),
            ("redirect", "off"),
        ),
    )
    empty, full = FIGURES._replace(tokens=0), FIGURES._replace(tokens=5, registrations=None)
    for changes, row, text in (
        ({"figures": empty}, "next token", "10:20:30Z (in 30s)"),
        ({"figures": empty} | settings(is_enabled=False), "next token", None),
        (
            {
                "figures": full._replace(drained=NOW, drained_terms=""),
                "backlog": Backlog(1, 0, 1, 0),
            },
            "backlog",
            "1 waiting, 0 due; tokens for all of them",
        ),
        ({"figures": full} | EMPTY, "tokens", "5 of 5"),
        ({"figures": full} | EMPTY, "backlog", "none waiting"),
        ({"figures": full} | EMPTY, "registrations", None),
    ):
        assert dict(describe_state(a_state(**changes))[0]).get(row) == text
    one, two = (OrphanCount(count, 9, 0).description for count in (1, 2))
    assert one == "1 job has no registration: the next run deletes it"
    assert two == "2 jobs have no registration: the next run deletes them"


def test_facts_and_forecast_agree_on_the_end_of_the_backlog(open_queue: Opener, sql: Sql) -> None:
    """Both count all that waits, due or in backoff, against the tokens, in the same words."""
    store = open_queue(rate_limit=RateLimit())
    for number in range(1001, 1005):
        store.enqueue(number)
    store.control("mailMaxPerHour", value="60")
    sql("UPDATE mail_queue SET next_attempt_at = ? WHERE mail_type = 'user'", int(NOW + 900))
    state = read_state(store, "", NOW)
    left = BucketState(ALL_KINDS, state.figures.tokens, 5, None, state.figures.per_hour)
    counts = {State.PENDING: state.backlog.waiting}
    known = ForecastInputs(
        counts, {}, Drain(Trend.UNKNOWN), None, None, has_arrivals=False, tokens=(left,)
    )
    forecast = forecast_drain(known, NOW)
    assert (state.backlog.waiting, state.backlog.due) == (8, 4)
    assert (state.figures.drained or 0) - NOW == forecast.numbers["at_bucket_rate"]
    least = forecast.sentence.removeprefix("ETA unknown: not enough data yet; ")
    ahead = least.removesuffix(" of all kinds")
    assert dict(describe_state(state)[0])["backlog"] == f"8 waiting, 4 due; {ahead}"


def settings(**changes: Any) -> dict[str, Any]:
    """Their settings, changed."""
    return {"settings": CONFIG._replace(**changes)}


EMPTY = {"backlog": Backlog(0, 0, 0, 0)}
DECISIONS = queue_config.RedirectDecision


def test_what_is_a_warning() -> None:
    """Each fault is one warning; just within bounds there is none."""
    paused = settings(is_enabled=False)
    redirected, long_ago = (
        settings(is_redirected=True),
        str(int(NOW - queue_place.SILENT_SECONDS - 1)),
    )
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        (settings(refilled=long_ago), "cron silent: no run for 3m"),
        (settings(refilled=str(int(NOW - queue_place.SILENT_SECONDS))), ""),
        (settings(refilled=None), "no run known"),
        (settings(refilled="0"), "no run known"),
        (
            settings(is_enabled=False, refilled="0") | {"last_end": NOW - 600} | EMPTY,
            "cron silent: no run for 10m",
        ),
        ({"last_start": NOW - 200}, "cron silent: no run for 3m"),
        ({"changed": (NOW - 59.4,)}, "no run known"),
        ({"last_start": NOW - 90, "changed": (NOW - 59.4,)}, ""),
        ({"changed": (NOW - 120,)}, ""),
        (paused, "paused, 6 jobs waiting"),
        (paused | {"backlog": Backlog(0, 0, 0, 3)}, ""),
        (redirected | {"redirection": DECISIONS.REDIRECTED}, "redirect ON"),
        (redirected | {"redirection": DECISIONS.UNDECIDABLE}, "redirect guard undecidable"),
        (redirected, ""),
        (settings(rate="160"), "expected 1 to 60"),
        ({"usual_gap": 451.0}, "runs are 7m apart"),
        ({"usual_gap": 450.0}, ""),
        ({"other_warnings": ("the log is public",)}, "the log is public"),
    )
    for changes, warning in rows:
        with naming(changes, warning):
            warnings = describe_state(a_state(**changes))[1]
            assert len(warnings) == bool(warning) and all(warning in one for one in warnings)


def test_a_run_without_an_end_may_be_under_way() -> None:
    """Then it is not known that no worker runs, however long ago it started."""
    begun = {"last_start": NOW - 900}
    for changes, may_run in (({}, False), (begun, True), (begun | {"last_end": NOW - 899}, False)):
        assert a_state(**changes).may_run is may_run, changes


def test_the_gap_between_runs_is_the_usual_one(tmp_path: Path) -> None:
    """One run that was late does not make cron slow; of too few runs nothing is said."""
    path = str(tmp_path / "q.log")

    def ran(at: float) -> None:
        Log(path, "r", "q.db", lambda: NOW + at, print).write("run_start")

    for number in range(5):
        ran(60 * number)
    assert queue_place.usual_gap(read_recent(path, 0).lines) == 0.0
    ran(3000)
    assert queue_place.usual_gap(read_recent(path, 0).lines) == 60.0


def test_a_queue_is_scanned_with_its_log(open_queue: Opener, sql: Sql, tmp_path: Path) -> None:
    """Waiting, due, failed and parked jobs are counted, failed ones as parked where only an
    operator retries; the log gives the last run, and that it, or a line of it, cannot be read."""
    store, path = open_queue(), tmp_path / "q.log"
    store.enqueue(1001)
    store.enqueue(1002)
    fail(store, due=NOW + 60)
    fail(store)
    sql("INSERT INTO config VALUES ('mailRedirectToSchumbi', '1')")
    log = Log(str(path), "r", store.place.path, lambda: NOW - 5, print)
    log.write("run_end", sent=2, failed=1, recovered=0)
    Log(str(path), "r", "other.db", lambda: NOW - 1, print).write("run_end", sent=9)
    path.write_bytes(path.read_bytes() + b"broken\n")
    state = read_state(store, str(path), NOW)
    assert state.backlog == (3, 2, 1, 1)
    assert (state.last_end, state.last_result) == (NOW - 5, "2 sent, 1 failed")
    assert state.redirection is queue_config.RedirectDecision.UNDECIDABLE
    assert state.other_warnings == (f"1 line of the log {path} cannot be read",)
    assert open_queue(auto_retry=False).backlog(NOW + 90) == (2, 2, 0, 2)
    (warning,) = read_state(store, str(tmp_path), NOW).other_warnings
    assert warning.startswith(f"the log {tmp_path} cannot be read: ")


def test_who_sets_the_rate_is_no_run(open_queue: Opener, tmp_path: Path) -> None:
    """The bucket is settled at that second, but no run was started: that is still said."""
    path = str(tmp_path / "q.log")
    plain = open_queue()
    log = Log(path, "r", plain.place.path, lambda: NOW + 0.3, print)
    store = ZgbStore(plain.place, lambda: NOW, write_event=log.write)
    store.control("mailQueueEnabled", value="1")
    list(store.take(NOW - 1200, "me", 1))
    assert read_state(store, path, NOW + 5).last_active == NOW - 1200
    store.control("mailMaxPerHour", value="30")
    state = read_state(store, path, NOW + 5)
    store.close()
    assert state.settings.refilled == str(int(NOW))
    assert state.last_active is None
    assert any("cron silent" in warning for warning in describe_state(state)[1])
