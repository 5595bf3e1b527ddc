"""The overview held still: p freezes it, comma and full stop go through what was recorded."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from engine.model import State
from engine.recorder import OWNER, PERIOD, Recorder, Role, Spot, Unreadable, recorded
from engine.recording import Sample, unpack
from tests.engine.moments import a_sample
from tests.tui.spools import NOW, disk_place, make_spool, put_file, some_tasks
from tests.tui.spools import a_task as spool_task
from tests.tui.test_cli import Run, spooldeck
from tests.tui.test_overview import Desk, a_desk
from tests.tui.test_twins import row_of
from tui.place import Place
from tui.screens.overview import OverviewScreen

__all__ = ["spooldeck"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue on an ordinary day: 40 wait, 12 are dead."""
    made = tmp_path / "mail.out"
    make_spool(made, some_tasks())
    return made


def spot_of(root: Path) -> Spot:
    """Where it is recorded."""
    return Spot(f"{root}/queue/.spooldeck/recorder", f"{root}/queue/pending")


def recorded_place(root: Path) -> Place:
    """The queue as a place that is recorded."""
    return disk_place(root)._replace(recording=spot_of(root))


def record(root: Path, *moments: tuple[float, int]) -> None:
    """What a worker wrote down before: seconds from now, and how many waited then."""
    with closing(Recorder(spot_of(root))) as recorder:
        for seconds, pending in moments:
            told = recorder.write(a_sample(NOW + seconds, pending, 8))
            assert told.role is Role.RECORDS


PAST = [(-10.0 * n, 1000 + n) for n in (*range(1, 20), 60, 61)]
"""Two stretches, of which one began ten minutes ago; in between is nothing."""


@asynccontextmanager
async def a_frozen_desk(root: Path, *places: Place) -> AsyncIterator[Desk]:
    """The overview, frozen, with all at hand that was recorded."""
    async with a_desk(*(places or (recorded_place(root),))) as desk:
        screen = desk.screen
        await freeze(desk)
        while looked_again(desk):
            await desk.press("p")
            await freeze(desk)
        assert screen._frozen is not None
        yield desk


async def freeze(desk: Desk) -> None:
    """Hold the screen, and wait until all is at hand that was recorded."""
    screen = desk.screen
    await desk.press("p")
    await desk.until(lambda: screen._frozen is not None and screen._frozen.read)


def looked_again(desk: Desk) -> bool:
    """Whether everything was being looked at anew at the moment that is held, and is known now: the
    folder that a recording makes is news."""
    frozen = desk.screen._frozen
    assert frozen is not None
    for live in desk.console.lives:
        held = frozen.tapes[live.number].at(frozen.since)
        if isinstance(held, Sample) and held.due is None and live.sample().due is not None:
            return True
    return False


def line_of(desk: Desk, words: str) -> str:
    """The line with these words."""
    return next((line for line in desk.text.splitlines() if words in line), "")


async def test_p_freezes_and_p_goes_on(root: Path) -> None:
    """Frozen, it says so, at which time and how long ago, and nothing of it changes; p is live."""
    async with a_frozen_desk(root) as desk:
        assert desk.cells("mail.out")[:4] == ["40", "1", "10", "12"]
        assert "FROZEN  at 09:42:08Z, 0s ago" in desk.text
        assert "FROZEN 09:42:08Z" in desk.text.splitlines()[0]

        put_file(root, spool_task(1400, due=0.0))
        live = desk.console.lives[0]
        await desk.until(lambda: live.inspector.latest.counts.get(State.PENDING) == 41)
        desk.clock.now += 75
        await desk.until(lambda: "FROZEN  at 09:42:08Z, 1m15s ago" in desk.text)
        assert desk.cells("mail.out")[:4] == ["40", "1", "10", "12"]

        await desk.press("p")
        await desk.until(lambda: desk.cells("mail.out")[:1] == ["41"])
        assert "FROZEN" not in desk.text


async def test_a_console_sees_what_a_worker_recorded_before(root: Path) -> None:
    """A comma is ten seconds back, a full stop on again; Esc is live."""
    await asyncio.to_thread(record, root, *PAST)
    async with a_frozen_desk(root) as desk:
        await desk.press("comma")
        assert desk.cells("mail.out")[:4] == ["1,001", "1", "971", "8"]
        assert "FROZEN  at 09:41:58Z, 10s ago, recorded by a worker" in desk.text

        await desk.press("comma", "comma")
        assert desk.cells("mail.out")[0] == "1,003"
        await desk.press("full_stop")
        assert desk.cells("mail.out")[0] == "1,002"

        await desk.press("escape")
        assert desk.cells("mail.out")[0] == "40"


async def test_nothing_of_now_stands_among_the_past(root: Path) -> None:
    """Alerts, lock, rates and tokens are those of then; what was not recorded says so."""
    await asyncio.to_thread(record, root, *PAST)
    place = recorded_place(root)._replace(tokens=lambda: ())
    async with a_frozen_desk(root, place) as desk:
        await desk.press("comma")

        assert " WARN  mail.out: dlq +12 in 10m" in desk.text.splitlines()[1]
        assert "12 tasks in the dead-letter queue" not in desk.text
        assert desk.text.splitlines()[0].endswith(" 1!")
        assert desk.cells("mail.out")[6:8] == ["1.5", "2.2"]
        assert "the lock was held: PID 4711 is at work" in desk.text
        assert "mail_send 3 of 5" in desk.text
        assert desk.text.count(" not recorded") == 2  # ages, and the logs
        assert "TOTAL" not in desk.text
        assert "Processing task" not in desk.text


async def test_a_freeze_holds_what_was_on_screen(root: Path) -> None:
    """Each line below the first alert line stays, whatever happens then; only a step back in time
    shows what was recorded alone."""
    await asyncio.to_thread(record, root, *PAST)
    async with a_desk(recorded_place(root), size=(120, 40)) as desk:
        await desk.has_table()
        await desk.until(lambda: "connect_time~" in desk.text)
        live = desk.console.lives[0]
        await desk.until(lambda: live.recording.role is Role.RECORDS)
        before = panes(desk)
        await freeze(desk)
        assert panes(desk) == before

        put_file(root, spool_task(1400, due=0.0))
        with (root / "log" / "queue.log").open("a") as log:
            log.write("[2026-11-20 09:42:08] [ERROR] later\n")
        await desk.until(lambda: live.inspector.latest.counts.get(State.PENDING) == 41)
        await desk.until(lambda: "later" in live.signs.log[-1].text)
        assert panes(desk) == before

        await desk.press("comma")
        assert desk.text.count(" not recorded") == 4


def panes(desk: Desk) -> list[str]:
    """The lines of the overview, without the header, the rule of the freeze, and the last three."""
    lines = desk.text.splitlines()
    return [line for at, line in enumerate(lines[1:-3]) if at != desk.screen._frame.alerts]


async def test_a_gap_is_shown_as_one(root: Path) -> None:
    """Where nothing was recorded there are no figures; a second comma is beyond it."""
    await asyncio.to_thread(record, root, *PAST)
    async with a_frozen_desk(root) as desk:
        for _ in range(30):
            await desk.press("comma")
            if "nothing recorded 0" in desk.text:
                break
        assert "nothing recorded 09:32:08Z to 09:38:58Z" in line_of(desk, "FROZEN  at")
        assert desk.cells("mail.out")[:5] == [*"????", "nothing"]

        await desk.press("comma")
        assert desk.cells("mail.out")[0] == "1,060"
        await desk.press("comma", "comma", "comma")
        assert desk.cells("mail.out")[0] == "1,061"
        assert "nothing was recorded before" in desk.text


async def test_while_frozen_no_plan_is_opened(root: Path) -> None:
    """U says why it does nothing, and so do r and a full stop at the end."""
    place = recorded_place(root)._replace(recover=("true",))
    async with a_frozen_desk(root, place) as desk:
        for key, words in (
            ("U", "what is shown is of 09:42:08Z: p for now, then U"),
            ("r", "the past is not looked at again: p for now"),
            ("full_stop", "then it was frozen; p is live"),
        ):
            await desk.press(key)
            assert isinstance(desk.console.screen, OverviewScreen)
            assert words in desk.text


async def test_without_freezing_there_is_no_stepping(root: Path) -> None:
    """A comma on the live screen says how to go back."""
    async with a_desk(recorded_place(root)) as desk:
        await desk.press("comma")
        assert "only while frozen: p freezes" in desk.text


async def test_a_key_that_is_held_is_answered_at_once(root: Path) -> None:
    """No step waits for a disk: with the recording gone from it, the way back goes on."""
    await asyncio.to_thread(record, root, *[(-10.0 * n, 2000 + n) for n in range(1, 200)])
    async with a_frozen_desk(root) as desk:
        await asyncio.to_thread((root / "queue").rename, root / "away")

        for _ in range(25):
            desk.screen.action_earlier()

        frozen = desk.screen._frozen
        assert frozen is not None
        assert frozen.at < NOW - 450  # the first steps are fine, then it is minutes
        assert desk.cells("mail.out")[0].startswith("2,")


async def test_a_place_that_is_not_recorded_freezes_too(root: Path) -> None:
    """What was on screen is held; that there is nothing before it is said."""
    async with a_frozen_desk(root, disk_place(root)) as desk:
        assert desk.cells("mail.out")[0] == "40"
        assert "nothing is recorded of this place" in desk.text
        await desk.press("comma")
        await desk.press("comma", "comma")
        assert "nothing was recorded before" in desk.text


async def test_what_is_copied_and_exported_is_of_then(root: Path) -> None:
    """The row, the command and the export are those of the moment that is shown."""
    await asyncio.to_thread(record, root, *PAST)
    async with a_frozen_desk(root) as desk:
        await desk.press("comma")

        copies = {copy.name: copy.text for copy in desk.screen.copies()}
        sheet = desk.screen.sheet()

        assert "1,001" in copies["row"]
        assert "overview --at 2026-11-20T09:41:58Z" in copies["command"]
        assert sheet is not None
        assert {"at", "recorded", "by", "gap"} <= set(sheet.columns)


# Who records


def role_of_another(spot: Spot) -> Role:
    """What somebody else would do now."""
    with closing(Recorder(spot)) as other:
        return other.write(a_sample(NOW + 20)).role


async def test_a_console_records_while_nobody_else_does(root: Path) -> None:
    """A moment each ten seconds by its clock; a worker that comes later takes over at its end."""
    spot = spot_of(root)

    def found() -> list[tuple[float, int, str]]:
        if not Path(spot.folder, OWNER).exists():
            return []
        return [
            (m.at, (s := unpack(m.data, "x")).counts[State.PENDING], s.by)
            for m in recorded(spot, 0, 4e9)
        ]

    async with a_desk(recorded_place(root)) as desk:
        live = desk.console.lives[0]
        await desk.until(lambda: live.recording.role is Role.RECORDS)
        desk.clock.now += PERIOD
        while len(moments := await asyncio.to_thread(found)) < 2:
            await desk.pilot.pause(0.05)
        assert await asyncio.to_thread(role_of_another, spot) is Role.WATCHES

    assert moments == [(NOW, 40, "a console"), (NOW + PERIOD, 40, "a console")]
    assert await asyncio.to_thread(role_of_another, spot) is Role.RECORDS


async def test_a_console_that_may_only_read_writes_nothing(root: Path) -> None:
    """Nothing is made in the spool, and frozen it says why there is nothing."""
    async with a_desk(recorded_place(root), read_only=True) as desk:
        await desk.until(lambda: desk.console.lives[0].counted)
        await desk.press("p")
        await desk.until(lambda: "read only: nothing is recorded here" in desk.text)

    assert not (root / "queue" / ".spooldeck").exists()


async def test_a_spool_that_cannot_be_written_says_so_where_it_matters(root: Path) -> None:
    """Frozen, one line says that nothing is recorded, and why."""
    desk_folder = root / "queue" / ".spooldeck"
    desk_folder.mkdir()
    (desk_folder / "recorder").write_text("no folder")
    async with a_desk(recorded_place(root)) as desk:
        live = desk.console.lives[0]
        await desk.until(lambda: live.recording.words)
        await desk.press("p")
        await desk.until(lambda: "nothing is recorded from here: " in desk.text)


def spoil(root: Path) -> None:
    """Put something else where the recording lies."""
    folder = Path(spot_of(root).folder)
    folder.mkdir(parents=True)
    (folder / "ring.db").write_bytes(b"garbage" * 5000)


async def test_a_broken_recording_is_renewed_and_said_once(root: Path) -> None:
    """The line that speaks says that it was set aside."""
    spoil(root)
    async with a_desk(recorded_place(root)) as desk:
        await desk.until(lambda: "file is not a database" in desk.text or desk.screen._told)
        (words,) = desk.screen._told
        assert words.endswith("set aside as ring.aside, a new recording was begun")


async def test_a_worker_records_and_is_seen_afterwards(root: Path, spooldeck: Run) -> None:
    """What `queue work` wrote down is what `overview --at` prints when it has ended."""
    spot = spot_of(root)
    argv = [sys.executable, "-m", "tui.cli", "--root", str(root), "queue", "work"]
    worker = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE)
    try:
        began = time.time()

        def is_written() -> bool:
            try:
                return bool(recorded(spot, 0, 4e9))
            except Unreadable:
                return False

        while not await asyncio.to_thread(is_written):
            assert worker.returncode is None
            await asyncio.sleep(0)
    finally:
        worker.send_signal(signal.SIGTERM)
        await worker.wait()

    (first, *_) = await asyncio.to_thread(recorded, spot, 0, 4e9)
    assert first.at >= began - 60
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first.at + 1))
    ended = await asyncio.to_thread(spooldeck, "overview", str(root), "--at", at, "--json")
    (row,) = json.loads(ended.stdout)["places"]
    assert (row["by"], row["recorded"], row["gap"]) == ("a worker", first.at, None)
    assert row["tasks"]["dlq"] == 12
    assert row["lock"]["verdict"] == "held"
    assert row["lock"]["pid"] == worker.pid


def test_overview_at_a_time(root: Path, spooldeck: Run) -> None:
    """It prints the figures of then, and when that was; 1 where something deserved a look."""
    record(root, *PAST)

    ended = spooldeck("overview", str(root), "--at", "2026-11-20T09:41:59Z")

    assert (ended.returncode, ended.stderr) == (1, "")
    first, *_ = ended.stdout.splitlines()
    assert first.startswith(" as it was at 2026-11-20 09:41:59Z, ") or "09:41:59Z, " in first
    assert row_of(ended.stdout, "mail.out")[:4] == ["1,001", "1", "971", "8"]
    for words in (
        "WARN  mail.out: dlq +12 in 10m",
        "lock      held: PID 4711 is at work",
        "tokens  mail_send 3 of 5",
        "retention deletes the oldest of dlq for good in 5d23h",
        "postfix",
    ):
        assert words in ended.stdout


def test_overview_at_a_time_of_which_nothing_is_known(root: Path, spooldeck: Run) -> None:
    """In a gap its ends are said, and nothing else; 2, as where a place cannot be read."""
    record(root, *PAST)

    ended = spooldeck("overview", str(root), "--at", "2026-11-20T09:36:00Z", "--json")
    (row,) = json.loads(ended.stdout)["places"]
    plain = spooldeck("overview", str(root), "--at", "2026-11-20T09:36:00Z")

    assert (ended.returncode, plain.returncode) == (2, 2)
    assert (row["recorded"], row["tasks"], row["transports"]) == (None, None, None)
    assert row["gap"] == {"after": NOW - 600, "before": NOW - 190}
    assert row_of(plain.stdout, "mail.out")[:6] == [*"????", "nothing", "recorded"]
    assert "09:32:08Z to " in plain.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "soon"), "--at soon: expected a time such as"),
        (("--at=-1h", "--filter", "x"), "--at and --filter: no task is recorded"),
        (("--at=-1h", "--over", "3"), "--at and --over: no task is recorded"),
    ],
)
def test_overview_at_what_is_no_time(
    root: Path, spooldeck: Run, words: tuple[str, ...], said: str
) -> None:
    """It is a usage error, in one line."""
    ended = spooldeck("overview", str(root), *words)

    assert ended.returncode == 64
    assert said in ended.stderr


def test_status_and_overview_say_what_is_to_be_expected(root: Path, spooldeck: Run) -> None:
    """Each forecast is a line with its sentence; for programs its numbers."""
    text = spooldeck("status", str(root)).stdout
    forecasts = json.loads(spooldeck("status", str(root), "--json").stdout)["forecasts"]
    (place,) = json.loads(spooldeck("overview", str(root), "--json").stdout)["places"]

    assert "forecast  not known when nothing waits any more: it was not watched" in text
    assert "          dlq has 12, over its threshold of 10" in text
    assert forecasts["drain"]["waiting"] == 40
    assert forecasts["dlq"]["seconds"] == 0.0
    died = NOW - 7200 - 11 * 60
    assert forecasts["retention"]["died"] == place["forecasts"]["retention"]["died"] == died
