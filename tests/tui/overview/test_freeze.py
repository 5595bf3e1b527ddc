"""The overview held still: p freezes it, comma and full stop go through the recorded past."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.model import State
from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import (
    OWNER_FILE,
    SAMPLE_INTERVAL_SECONDS,
    EncodedSample,
    Recorder,
    RecorderLocation,
    Role,
    UnreadableRecording,
    read_samples,
)
from engine.monitor.sample_codec import RecordedSample, decode_sample, encode_sample
from engine.monitor.throughput import FlowHistory, Rates, Trend
from engine.monitor.transport_health import (
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    Health,
    TransportHealth,
)
from engine.operations import plans
from engine.operations.execute import PlanRun
from engine.operations.journal import Intent, Journal
from engine.places.place import Place
from engine.places.recent_events import NO_EVENTS, EventMemory, RecentTaskEvents
from tests.console_operator import ConsoleOperator, clock_of, words
from tests.console_places import NOW, Clock, a_task, disk_place, make_spool, put_file, some_tasks
from tests.journaled_places import ANA, a_journaled_place, kept, seen
from tests.nftban_queues import Run
from tests.recorder_samples import a_sample, an_alert
from tests.tui.cli.print.test_overview import row_of
from tests.tui.drawn_screens import settled
from tests.tui.overview.test_screen import overview, screen_of
from tui.cli.queue.status import read_status
from tui.overview.freeze import Freeze, FrozenTime
from tui.overview.place_lines import live_line, part_lines, place_table, place_values, table_layout
from tui.overview.screen import OverviewScreen
from tui.overview.side_panes import transport_lines
from tui.overview.snapshot import recorded_snapshot, totals
from tui.overview.time_line import read_time_line
from tui.queue.screen import QueueScreen


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue on an ordinary day: 40 wait, 12 are dead."""
    make_spool(tmp_path / "mail.out", some_tasks())
    return tmp_path / "mail.out"


def spot_of(root: Path) -> RecorderLocation:
    """Where it is recorded."""
    return RecorderLocation(f"{root}/queue/.spooldeck/recorder", f"{root}/queue/pending")


def recorded_place(root: Path) -> Place:
    """The queue as a place that is recorded."""
    return disk_place(root)._replace(recording=spot_of(root))


def record(root: Path, *moments: tuple[float, int]) -> None:
    """What a worker wrote down before: seconds from now, and how many waited then."""
    with closing(Recorder(spot_of(root))) as recorder:
        for seconds, pending in moments:
            assert recorder.write(a_sample(NOW + seconds, pending, 8)).role is Role.RECORDS


PAST = [(-10.0 * n, 1000 + n) for n in (*range(1, 20), 60, 61)]
"""Two stretches, of which one began ten minutes ago; in between is nothing."""


@pytest.fixture
def past(root: Path) -> Path:
    """The queue, of which a worker has recorded the past."""
    record(root, *PAST)
    return root


async def freeze(operator: ConsoleOperator) -> None:
    """Hold the screen, and wait until all is at hand that was recorded."""
    await operator.press("p")
    await operator.until(lambda: frozen_of(operator).is_loaded)


@asynccontextmanager
async def frozen(root: Path, place: Place | None = None) -> AsyncIterator[ConsoleOperator]:
    """The overview, frozen, with all at hand that was recorded."""
    async with overview(place or recorded_place(root)) as operator:
        await freeze(operator)
        while rescanned(operator):
            await operator.press("p")
            await freeze(operator)
        yield operator


def frozen_of(operator: ConsoleOperator) -> FrozenTime:
    """What the screen holds."""
    held = screen_of(operator).parts.freeze.time
    assert held is not None
    return held


def rescanned(operator: ConsoleOperator) -> bool:
    """Whether all was being read again at the held moment: the folder of a recording is news."""
    held = frozen_of(operator)
    for live in operator.console.sessions:
        then = held.histories[live.number].at(held.since)
        if isinstance(then, RecordedSample) and then.due is None and live.sample().due is not None:
            return True
    return False


def waiting(operator: ConsoleOperator) -> str:
    """How many tasks wait, as the line of the queue has it."""
    return operator.cells("mail.out")[0]


def shows_pending(operator: ConsoleOperator, number: str) -> bool:
    """Whether so many tasks wait."""
    return waiting(operator) == number


def shows_only(operator: ConsoleOperator, texts: Sequence[str]) -> bool:
    """Whether these texts are there, and the kind `geoban_apply` only if it is one of them."""
    has_kind = "geoban_apply" in operator.text
    return all(each in operator.text for each in texts) and has_kind == ("geoban_apply" in texts)


def lacks(operator: ConsoleOperator, text: str) -> bool:
    """Whether a text is gone."""
    return text not in operator.text


async def test_p_freezes_and_p_goes_on(root: Path) -> None:
    """Frozen, it says since when, nothing of it changes, and no plan is opened; p is live."""
    async with overview(recorded_place(root)._replace(recovery_command=("true",))) as operator:
        await operator.step(",", "not frozen: p freezes")
        await freeze(operator)
        assert operator.cells("mail.out")[:4] == ["40", "1", "10", "12"]
        assert "Alerts at 09:42:08Z, 0s ago" in operator.text
        assert "FROZEN 09:42:08Z" in operator.text.splitlines()[0]
        put_file(root, a_task(1400, due=0.0))
        live = operator.console.sessions[0]
        await operator.until(lambda: live.inspector.latest.counts.get(State.PENDING) == 41)
        clock_of(operator).now += 75
        await operator.sees("Alerts at 09:42:08Z, 1m15s ago")
        assert operator.cells("mail.out")[:4] == ["40", "1", "10", "12"]
        for key, text in (
            ("U", "frozen at 09:42:08Z: p goes live, then U"),
            ("r", "frozen at 09:42:08Z: p goes live, then r"),
            (".", "end of the recording: p goes live"),
        ):
            await operator.step(key, OverviewScreen, text)
        await operator.press("p")
        await operator.until(lambda: shows_pending(operator, "41"))
        assert "FROZEN" not in operator.text


async def test_a_frozen_wall_holds_the_number_of_tasks(root: Path) -> None:
    """The pane of places counts the tasks of the freeze, also after others have come."""
    async with overview(recorded_place(root), size=(200, 60)) as operator:
        await freeze(operator)
        live = operator.console.sessions[0]
        words = f"{sum(live.inspector.latest.counts.values())} tasks"
        assert words in operator.text
        put_file(root, a_task(1400, due=0.0))
        await operator.until(lambda: live.inspector.latest.counts.get(State.PENDING) == 41)
        clock_of(operator).now += 75
        await operator.sees("1m15s ago")
        assert words in operator.text


@pytest.mark.parametrize(
    ("width", "chip"), [(120, "LIVE, overview frozen 09:42:08Z"), (80, "LIVE")]
)
async def test_beside_a_frozen_overview_other_screens_say_that_they_are_live(
    root: Path, width: int, chip: str
) -> None:
    """The time of the overview is in their top line, until it is live again."""
    async with overview(recorded_place(root), size=(width, 24)) as operator:
        await freeze(operator)
        for key in ("2", "3", "7", "8"):
            await operator.press(key)
            await operator.until(lambda: chip in operator.text.splitlines()[0])
        await operator.press("1")
        await operator.until(lambda: "LIVE" not in operator.text.splitlines()[0])
        await operator.press("p", "2")
        await operator.opens(QueueScreen)
        assert "LIVE" not in operator.text.splitlines()[0]


async def test_a_console_sees_what_a_worker_recorded_before(past: Path) -> None:
    """A comma is ten seconds back, a full stop on again; Esc is live. What is copied and exported
    is of the moment that is shown, also with the recording gone from the disk. Alerts, lock, rates
    and tokens are those of then; what was not recorded says so."""
    async with frozen(past, recorded_place(past)._replace(tokens=lambda: ())) as operator:
        of_then = "Alerts at 09:41:58Z, 10s ago", "lock was held)"
        await operator.step(",", *of_then, "mail_send 3 of 5", "(.)")
        later = ("12 dead in", "TOTAL", "Processing task")
        await operator.until(lambda: not [text for text in later if text in operator.text])
        assert operator.cells("mail.out")[:4] == ["1,001", "1", "971", "8"]
        assert "[WARN]  mail.out  12 dead, +12 in 10m" in operator.text.splitlines()[2]
        assert operator.cells("mail.out")[6:8] == ["1.5", "2.2"]
        assert operator.text.count(" not recorded: step to 09:42:08Z (.)") == 1  # ages
        copies = {copy.name: copy.text for copy in screen_of(operator).copies()}
        assert "1,001" in copies["row"]
        assert "overview --at 2026-11-20T09:41:58Z" in copies["command"]
        sheet = screen_of(operator).export_table()
        assert sheet is not None and {"at", "recorded", "by", "gap"} <= set(sheet.columns)
        await asyncio.to_thread((past / "queue").rename, past / "away")
        for pressed, pending in ((",,", "1,003"), (".", "1,002")):
            await operator.press(*pressed)
            await operator.until(partial(shows_pending, operator, pending))
        await asyncio.to_thread((past / "away").rename, past / "queue")
        await operator.press("escape")
        await operator.until(lambda: waiting(operator) == "40")


async def test_a_freeze_holds_what_was_on_screen(past: Path) -> None:
    """Each line stays after any later event; a step back shows what was recorded alone. Where the
    log in memory reaches, warnings and kinds are those up to then, and no later."""

    def panes() -> list[str]:
        """The lines without the titles with the time and the last two; of the header the dead."""
        head, _, *lines = operator.text.splitlines()[:-2]
        return [f"{'dead 12' in head}", *(line for line in lines if " Queues 1 " not in line)]

    async with overview(recorded_place(past), size=(120, 40)) as operator:
        await operator.sees("connect_timeout", "dead 12")
        live = operator.console.sessions[0]
        await operator.until(lambda: live.recording.role is Role.RECORDS)
        await operator.sees("oldest in pending", "feeds_sync")  # the ages have their final height
        await settled(operator.console, operator.pilot)
        before = panes()
        await freeze(operator)
        assert panes() == before
        put_file(past, a_task(1400, due=0.0))
        with (past / "log" / "queue.log").open("a") as log:
            log.write("[2026-11-20 09:42:08] [ERROR] later\n")
        await operator.until(lambda: live.inspector.latest.counts.get(State.PENDING) == 41)
        await operator.until(lambda: "later" in live.readings.log[-1].text)
        assert panes() == before
        await operator.step(",", "Ages, clusters, workers", "Alerts at 09:41:58Z")
        # The log knows the rest.
        assert operator.text.count(" not recorded: step to 09:42:08Z (.)") == 1
        for pressed, *texts in (
            (",,,", "Alerts at 09:41:28Z", "c2c41696 moving to DLQ", "geoban_apply", "feeds_sync"),
            (",", "Alerts at 09:41:18Z", "none until then", "feeds_sync  "),
            (",", "no runs in the log in 10m"),
        ):
            await operator.press(*pressed)
            await operator.until(partial(shows_only, operator, texts))


@pytest.mark.parametrize(
    ("size", "panes"),
    [
        ((80, 24), "Ages"),
        ((120, 40), "Ages, clusters, workers"),
        ((200, 60), "Ages, clusters, workers, places"),
    ],
)
async def test_panes_with_nothing_recorded_are_one_line(
    past: Path, size: tuple[int, int], panes: str
) -> None:
    """It names all of them; their other lines are those of the rest. The keys that go on in time
    are the first hints, also on the smallest screen with frames."""
    async with overview(recorded_place(past), size=size) as operator:
        await operator.until(lambda: "TOTAL" in operator.text)
        await freeze(operator)
        await operator.step(",", "not recorded: step to 09:42:08Z (.)", f" {panes} ")
        hints = operator.text.splitlines()[-1]
        assert hints.startswith(" p live  , . step  < > alerts ") and hints.count("live") == 1
        then = screen_of(operator).panes.frame
        assert then.inside(then.ages) == 1 and then.other_ages == 0
        assert not {"clusters", "workers", "places"} & then.sides.keys()
        await operator.press("p")
        await operator.until(lambda: "TOTAL" in operator.text)
        live = screen_of(operator).panes.frame
        assert then.log > live.log and then.queues >= live.queues


async def test_the_journal_shows_the_operations_of_then(past: Path) -> None:
    """Operations of a past time are those that had begun; one that had not ended was running."""
    place = a_journaled_place(past)._replace(recording=spot_of(past))
    clock = Clock(NOW - 35)
    tasks = await asyncio.to_thread(seen, place, State.DEAD)

    def purge() -> None:
        journal = Journal(kept(place).folder, place.root, clock)
        plan = plans.freeze_plan("purge", tasks[:2], clock())
        record = journal.begin(Intent("purge", ANA), plan)
        with closing(place.open()) as store, closing(record):
            run = PlanRun(store, plan, clock, record)
            run.step(run.open_rows)
            clock.now = NOW - 15
            run.finish("")

    await asyncio.to_thread(purge)
    async with overview(place, size=(200, 60)) as operator:
        await operator.sees("ana purge 2 tasks on")
        await freeze(operator)
        for state in ("DONE", "RUNNING", "RUNNING"):
            await operator.press(",")
            (line,) = (row for row in operator.text.splitlines() if "purge 2 tasks" in row)
            assert state in line
        await operator.step(",", "none in the last 24 hours")


async def test_beyond_the_log_in_memory_its_panes_say_so(past: Path) -> None:
    """Of a rotated file that cannot be read no line is known; warnings and kinds name the time
    of the first known ones, kinds at the freeze: their ten minutes are never whole."""
    rotated = past / "log" / "queue.log.1"
    rotated.mkdir()
    os.utime(rotated, (NOW - 60, NOW - 60))
    async with overview(recorded_place(past), size=(120, 40)) as operator:
        await operator.sees("connect_timeout")
        await freeze(operator)
        await operator.step(",,,,,,,,,,", "Alerts at 09:40:28Z")
        lines = operator.text.splitlines()
        for title, known in (("Kinds", "09:42:08Z"), ("Recent warnings", "09:41:08Z")):
            below = next(lines[at + 1] for at, line in enumerate(lines) if title in line)
            assert f"log not read so far back: step to {known} (.)" in below


def test_transports_of_then_are_counted_from_the_log(root: Path) -> None:
    """A sample without figures gets those of the log up to then, if there is a log."""
    mail_log = root / "log" / "mail.log"
    words = "MAIL_SEND_RESULT task_id=a status=success transport=postfix attempt=1"
    lines = [f"[2026-11-20 09:{minute}:00] [INFO] {words}\n" for minute in (20, 35, 40, 42)]
    mail_log.write_text("".join(lines))
    with closing(RecentTaskEvents([str(mail_log)])) as events:
        events.read_new(NOW)
        memory = events.copy()
    unknown = tuple(CountWindow(*window) for window in WINDOWS)
    transport = TransportHealth("postfix", DeliveryCounts(), unknown)
    history = RecordedHistory((), "mail.out", a_sample(NOW - 30)._replace(transports=(transport,)))
    place = disk_place(root)._replace(logs=(str(mail_log),))

    def health(events: EventMemory) -> tuple[Health, list[DeliveryCounts | None]]:
        sending = recorded_snapshot(place, 1, history, at=NOW - 20, cells=10, memory=events).sending
        assert sending is not None
        (one,) = sending.transports
        return one.health(0.5), [window.tally for window in one.windows]

    assert health(memory) == (Health.OK, [DeliveryCounts(0, sent, 0) for sent in (0, 2, 3)])
    assert health(NO_EVENTS) == (Health.UNKNOWN, [None, None, None])


def test_the_growth_of_totals_is_over_the_whole_window(root: Path) -> None:
    """They do not come from the log, so that when it began is of no matter."""
    mail_log, at = root / "log" / "mail.log", NOW
    start = "[2026-11-20 09:40:40] [INFO] MAIL_SEND_RESULT"
    mail_log.write_text(f"{start} task_id=a status=success transport=curl\n")
    with closing(RecentTaskEvents([str(mail_log)])) as events:
        events.read_new(NOW)
        memory = events.copy()
    unknown = tuple(CountWindow(*window) for window in WINDOWS)
    totals = {
        at - 600: TransportHealth("curl", DeliveryCounts(0, 0, 0), unknown),
        at: TransportHealth("curl", DeliveryCounts(36, 36, 0), unknown),
    }
    samples = [a_sample(when)._replace(transports=(one,)) for when, one in totals.items()]
    moments = [EncodedSample(one.when, encode_sample(one)) for one in samples]
    place = disk_place(root)._replace(logs=(str(mail_log),))
    history = RecordedHistory(moments, "mail.out")
    sending = recorded_snapshot(place, 1, history, at=at, cells=10, memory=memory).sending
    shown = words(transport_lines(sending, 0.5, 60, 4, has_mail=True)).split()
    assert at - memory.began < 180 and shown[-1] == "3.6/min"


@pytest.mark.parametrize(("seconds", "rate"), [(180, "6.0/min"), (-60, "1.8/min")])
def test_the_rate_of_a_transport_is_over_the_time_that_its_log_has(
    root: Path, seconds: int, rate: str
) -> None:
    """A log that began three minutes ago has 18 mails: 6 a minute frozen, as live; so if its counts
    are recorded. One that the log does not mention, or of a time before it, has them over the whole
    ten minutes."""
    mail_log = root / "log" / "mail.log"
    line = "[2026-11-20 09:37:{}] [INFO] MAIL_SEND_RESULT task_id=a status=success transport=curl\n"
    mail_log.write_text("".join(line.format(f"{second:02}") for second in range(40, 58)))
    with closing(RecentTaskEvents([str(mail_log)])) as events:
        events.read_new(NOW)
        memory = events.copy()
    counted = tuple(CountWindow(*window, DeliveryCounts(18, 18, 0)) for window in WINDOWS)
    known = tuple(TransportHealth(name, None, counted) for name in ("curl", "exim"))
    place, at = disk_place(root)._replace(logs=(str(mail_log),)), memory.began + seconds
    history = RecordedHistory((), "mail.out", a_sample(at)._replace(transports=known))
    sending = recorded_snapshot(place, 1, history, at=at, cells=10, memory=memory).sending
    shown = words(transport_lines(sending, 0.5, 60, 4, has_mail=True)).split()
    assert [word for word in shown if word.endswith("/min")] == [rate, "1.8/min"]


def test_a_transport_is_suspended_as_in_the_alert_of_then(root: Path) -> None:
    """Beside an alert that it is suspended, a transport of a past time is not failing."""
    tally = DeliveryCounts(30, 0, 30)
    windows = tuple(CountWindow(*window)._replace(tally=tally) for window in WINDOWS)
    known = tuple(TransportHealth(name, tally, windows) for name in ("msmtp", "curl"))
    goal = Goal("mail.out", Where.TRANSPORTS, None, "msmtp")
    alert = Alert(Level.WARN, AlertKind.SUSPENDED, "msmtp suspended by root", NOW - 60, goal)
    sample = a_sample(NOW - 30, alerts=(alert,))._replace(transports=known)
    history = RecordedHistory((), "mail.out", decode_sample(encode_sample(sample), "mail.out"))
    sending = recorded_snapshot(disk_place(root), 1, history, at=NOW - 20, cells=10).sending
    assert sending is not None
    states = [transport.health(0.5) for transport in sending.transports]
    assert states == [Health.SUSPENDED, Health.FAILING]


def test_the_line_of_then_counts_what_the_live_one_counts(root: Path) -> None:
    """Finer words are counted apart, too, and the header has the workers."""
    sample = a_sample(NOW - 30, pending=20)._replace(
        finer={"failed": (State.PENDING, 4)}, lease_workers=2, gone_failures=3, lock=None
    )
    history = RecordedHistory((), "mail.out", sample)
    past = recorded_snapshot(disk_place(root), 1, history, at=NOW - 20, cells=10)
    columns = {column.title: column for column in table_layout([past.queue], 120).columns}
    cells = [columns[title].cell(past.queue, NOW)[0].strip() for title in ("PEND", "FAILED", "DLQ")]
    counted = totals([past])
    assert cells == ["16", "4", "15"] and counted is not None and counted.workers == 2


async def test_a_moment_is_shown_as_it_was_live(root: Path) -> None:
    """What a console records of a place are the numbers of its own line, with the time to empty
    that a rate limit gives; of the queues of a server it says that they are not recorded."""
    place = recorded_place(root)._replace(
        tokens=lambda: (BucketState("mail_send", 0, 5, NOW + 12, 300),)
    )
    async with overview(place) as operator:
        (live,) = operator.console.sessions
        await operator.until(lambda: live.backlog and "mail_send" in live.backlog.kinds)
        live.flow = FlowHistory()
        for n in range(20, -1, -1):
            live.flow.add(NOW - 5 * n, 0, 400 - 20 * n, {State.PENDING: 40 + 20 * n})
        sample = decode_sample(encode_sample(live.sample()), place.name)
        history = RecordedHistory((), place.name, sample)
        then = recorded_snapshot(place, 1, history, at=NOW, cells=18, parts=["orders"]).queue
        now = live_line(live, NOW, 18)
        assert now.drain.trend is Trend.DRAINING and now.drain.seconds
        for width in (80, 120, 200):
            lines = [place_table([one._replace(spark=())], NOW, width) for one in (then, now)]
            assert lines[0] == lines[1]
        ((name, line),) = part_lines([then], 0, NOW, 80)
        assert name == "orders" and "not recorded" in "".join(text for text, _ in line)


@pytest.mark.parametrize(
    ("inward", "brief"),
    [(0.0, "empty in 1h00m without new ones"), (0.017, "ETA: ? (as many tasks came as ran)")],
)
def test_arrivals_of_the_recording_are_in_the_forecast(
    root: Path, inward: float, brief: str
) -> None:
    """Where as many tasks came as ran, a limit of all kinds gives no ETA: frozen as live, and in
    the status of the same place."""
    tokens = (BucketState(ALL_KINDS, 0, 5, None, 40),)
    samples = [
        a_sample(NOW - 10 * n, rates=Rates(inward, inward), kinds={}, tokens=tokens, due=40)
        for n in range(20, -1, -1)
    ]
    with closing(Recorder(spot_of(root))) as recorder:
        assert {recorder.write(sample).role for sample in samples} == {Role.RECORDS}
    place = recorded_place(root)._replace(tokens=lambda: tokens)
    history = RecordedHistory(read_samples(spot_of(root), 0, 4e9), place.name)
    frozen = recorded_snapshot(place, 1, history, at=NOW, cells=10)
    assert place_values(frozen.queue, NOW)["drain_is_least"] is not bool(inward)
    frozen_drain, *_ = frozen.forecasts
    status_drain, *_ = read_status(place._replace(lock=None), NOW).forecasts
    assert (frozen_drain.brief, status_drain.brief) == (brief, brief)


async def test_keys_go_to_the_alerts_of_the_time_line(root: Path) -> None:
    """The title of the queues has the recorded span with its alerts and the time shown; < and > go
    to the alert before and after, and say which it is."""

    def write_down() -> None:
        with closing(Recorder(spot_of(root))) as recorder:
            for n in range(30, 0, -1):
                alerts = (an_alert(),) if n < 10 else ()
                assert recorder.write(a_sample(NOW - 10 * n, 100 + n, alerts=alerts)).role

    await asyncio.to_thread(write_down)
    async with overview(recorded_place(root)) as operator:
        await operator.step("<", "not frozen: p freezes")
        await freeze(operator)
        await operator.sees("< 09:37 |", "| 09:42 >")
        words = "WARN mail.out: 12 dead, +12 in 10m, since 09:40:38Z"
        await operator.step("<", words, "Alerts at 09:40:38Z, 1m30s ago")
        assert waiting(operator) == "109"
        (line,) = (row for row in operator.text.splitlines() if "| 09:42 >" in row)
        assert "^" in line and "!" in line
        await operator.step("<", "no earlier alert recorded")
        await operator.step(",", "Alerts at 09:40:28Z")
        await operator.step(">", words)


def test_an_alert_of_the_first_sample_may_have_begun_before_it() -> None:
    """It is told apart from one that began; a sample that cannot be read ends none."""
    short = zlib.compress(b"[1]", wbits=-15)
    samples = [EncodedSample(NOW - 30, encode_sample(a_sample(NOW - 30, alerts=(an_alert(),))))]
    samples.append(EncodedSample(NOW - 20, short))
    history = RecordedHistory(samples, "mail.out", a_sample(NOW, alerts=(an_alert(),)))
    line = read_time_line([("mail.out", history)])
    assert [(one.when, one.is_first) for one in line.starts] == [(NOW - 30, True)]


async def test_a_gap_is_shown_as_one(past: Path) -> None:
    """Where nothing was recorded there are no figures; a second comma is beyond it."""
    async with frozen(past) as operator:
        while "nothing recorded 0" not in (before := operator.text.partition("Alerts at ")[2]):
            await operator.press(",")
            await operator.until(partial(lacks, operator, f"Alerts at {before[:9]}"))
        await operator.sees("nothing recorded 09:32:08Z to 09:38:58Z")
        assert operator.cells("mail.out")[:5] == [*"????", "nothing"]
        await operator.press(",")
        await operator.until(lambda: waiting(operator) == "1,060")
        await operator.step(",,,", "start of the recording")
        await operator.until(lambda: waiting(operator) == "1,061")


def test_a_key_that_is_held_makes_longer_steps() -> None:
    """Steps grow to minutes; a pause, or the other direction, makes them fine again."""
    times = [NOW - 10 * n for n in range(1, 200)]
    samples = [EncodedSample(at, encode_sample(a_sample(at))) for at in times]
    history = RecordedHistory(samples, "mail.out", a_sample(NOW))
    freeze = Freeze([], Clock(NOW))
    assert freeze.step(-1, 0.0) == "not frozen: p freezes, then , and . step"
    freeze.time = FrozenTime(NOW, NOW, {1: history})
    assert freeze.step(-1, 0.0) == "still reading the recording"
    freeze.time = freeze.time._replace(is_loaded=True)
    assert {freeze.step(-1, 0.1 * press) for press in range(25)} == {""}
    held = freeze.later
    assert freeze.is_past and NOW - freeze.shown_at == held > 450
    freeze.step(-1, 9.0)
    assert freeze.later == held + 10
    freeze.step(1, 9.1)
    assert freeze.later == held
    while not (refusal := freeze.step(1, 9.1)):
        pass
    assert (refusal, freeze.later) == ("end of the recording: p goes live", 0.0)


async def test_a_place_that_is_not_recorded_freezes_too(root: Path) -> None:
    """What was on screen is held; that there is nothing before it is said."""
    async with frozen(root, disk_place(root)) as operator:
        assert waiting(operator) == "40"
        await operator.sees("no recorded history of this place")
        await operator.step(",,,", "start of the recording")


# Who records


async def test_a_console_records_while_no_worker_does(root: Path) -> None:
    """A moment each ten seconds by its clock; a worker that comes later takes over at its end."""
    location = spot_of(root)

    def role_of_another() -> Role:
        with closing(Recorder(location)) as other:
            return other.write(a_sample(NOW + 20)).role

    def found() -> list[tuple[float, int, str]]:
        if not Path(location.folder, OWNER_FILE).exists():
            return []
        samples = [(m.at, decode_sample(m.data, "x")) for m in read_samples(location, 0, 4e9)]
        return [(at, sample.counts[State.PENDING], sample.by) for at, sample in samples]

    async with overview(recorded_place(root)) as operator:
        live = operator.console.sessions[0]
        await operator.until(lambda: live.recording.role is Role.RECORDS)
        clock_of(operator).now += SAMPLE_INTERVAL_SECONDS
        while len(moments := await asyncio.to_thread(found)) < 2:
            await operator.pilot.pause(0.05)
        assert await asyncio.to_thread(role_of_another) is Role.WATCHES
    times = (NOW, NOW + SAMPLE_INTERVAL_SECONDS)
    assert moments == [(at, 40, "a console") for at in times]
    assert await asyncio.to_thread(role_of_another) is Role.RECORDS


async def test_why_nothing_is_recorded_is_shown_while_frozen(root: Path) -> None:
    """A console that may not write records nothing, and says why."""
    folder = root / "queue" / ".spooldeck"
    async with overview(recorded_place(root), read_only=True) as operator:
        await operator.step("p", "read only: recorder off")
    assert not folder.exists()
    async with overview(recorded_place(root), is_chosen=False) as operator:
        live = operator.console.sessions[0]
        await operator.step("p", "recorder off until armed")
        await operator.press("p")
        await operator.until(lambda: live.inspector.latest.is_complete and live.has_readings)
        assert not folder.exists()
        await operator.press("!")
        await operator.until(lambda: live.recording.role is Role.RECORDS)
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "recorder").write_text("no folder")
    async with overview(recorded_place(root)) as operator:
        await operator.until(lambda: operator.console.sessions[0].recording.message)
        await operator.step("p", "recording not possible from here: ")


async def test_a_broken_recording_is_renewed_and_reported_once(root: Path) -> None:
    """A recording that is no database is moved away, and a line says so."""
    folder = root / "queue" / ".spooldeck" / "recorder"
    folder.mkdir(parents=True)
    (folder / "ring.db").write_bytes(b"garbage" * 5000)
    async with overview(recorded_place(root)) as operator:
        parts = screen_of(operator).parts
        await operator.until(lambda: parts.reported)
        (words,) = parts.reported
        assert words.endswith("quarantined as ring.aside, new recording started")


# ---- overview --at


async def test_a_worker_records_and_is_seen_afterwards(root: Path, spooldeck: Run) -> None:
    """What `queue work` wrote down is what `overview --at` prints when it has ended."""
    location, began = spot_of(root), time.time()
    argv = [sys.executable, "-m", "tui.cli", "--root", str(root), "queue", "work"]
    keeps = {**os.environ, "NFTBAN_QUEUE_DLQ_AUTO_RETENTION_DAYS": "99999"}  # tasks of a past date
    worker = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE, env=keeps)

    def is_written() -> bool:
        with suppress(UnreadableRecording):
            return bool(read_samples(location, 0, 4e9))
        return False

    try:
        while not await asyncio.to_thread(is_written):
            assert worker.returncode is None
            await asyncio.sleep(0)
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.wait()

    (first, *_) = await asyncio.to_thread(read_samples, location, 0, 4e9)
    assert first.at >= began - 60
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first.at + 1))
    ended = await asyncio.to_thread(spooldeck, "overview", str(root), "--at", at, "--json")
    (row,) = json.loads(ended.stdout)["places"]
    assert (row["by"], row["recorded"], row["gap"]) == ("a worker", round(first.at, 3), None)
    assert (row["tasks"]["dlq"], row["lock"]["verdict"]) == (12, "held")
    assert row["lock"]["pid"] == worker.pid


ONLY_COUNTS = "only counts are recorded, not single tasks"


def test_overview_at_a_time(past: Path, spooldeck: Run) -> None:
    """It prints the figures of then, and when that was; 1 where something deserved a look. In a gap
    only its ends are said, and it is 2, as where a place cannot be read; no time is a usage error.
    """
    shown = ["[WARN]  mail.out  12 dead, +12 in 10m", "lock      held: PID 4711 is running"]
    shown += ["postfix", "rate limit  mail_send 3 of 5 tokens", "09:41:59Z, "]
    shown += ["retention deletes the oldest of DLQ in 5d23h"]
    for options, code, texts, counts in (
        ("--at 2026-11-20T09:41:59Z", 1, shown, ["1,001", "1", "971", "8"]),
        ("--at 2026-11-20T09:36:00Z", 2, ["09:32:08Z to "], [*"????", "nothing", "recorded"]),
        ("--at soon", 64, ["--at soon: expected a time such as"], []),
        ("--at=-1h --filter x", 64, [f"--at and --filter: {ONLY_COUNTS}"], []),
        ("--at=-1h --over 3", 64, [f"--at and --over: {ONLY_COUNTS}"], []),
    ):
        ended = spooldeck("overview", str(past), *options.split())
        output = ended.stderr if code == 64 else ended.stdout
        assert ended.returncode == code
        assert not [text for text in texts if text not in output], options
        assert not counts or row_of(ended.stdout, "mail.out")[: len(counts)] == counts
    ended = spooldeck("overview", str(past), "--at", "2026-11-20T09:36:00Z", "--json")
    (row,) = json.loads(ended.stdout)["places"]
    assert (row["recorded"], row["tasks"], row["transports"]) == (None, None, None)
    gap = {"after": row["gap"]["after"], "before": row["gap"]["before"]}
    assert (ended.returncode, gap) == (2, {"after": NOW - 600, "before": NOW - 190})


def test_status_and_overview_forecast(root: Path, spooldeck: Run) -> None:
    """Each forecast is a line with its sentence; for programs its numbers."""
    text = spooldeck("status", str(root)).stdout
    forecasts = json.loads(spooldeck("status", str(root), "--json").stdout)["forecasts"]
    (place,) = json.loads(spooldeck("overview", str(root), "--json").stdout)["places"]
    assert "forecast  ETA unknown: no worker" in text
    assert "          DLQ has 12 (limit 10)" in text
    assert forecasts["drain"]["waiting"] == 40
    assert forecasts["dlq"]["seconds"] == 0.0
    died = NOW - 7200 - 11 * 60
    assert forecasts["retention"]["died"] == place["forecasts"]["retention"]["died"] == died
