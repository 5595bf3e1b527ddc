"""What concerns a queue as a whole: judged, written down, done, and read again after that."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from errno import ENOSPC
from pathlib import Path

import pytest

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.store import ZgbStore
from engine.live.inspector import Inspector
from engine.model import State, attempts_allowed
from engine.operations import controls, undo
from engine.operations.controls import Order
from engine.operations.journal import Intent, Journal, Operation
from engine.places.place import WholeQueueFigures
from engine.store import Control, ControlTarget, Store, Unavailable, Unsupported
from tests.engine.task_builders import NOW, clock
from tests.journaled_places import ANA
from tests.zgb_console_place import PAUSE, RATE, REDIRECT, RETRY, ZgbConsolePlace
from tui.operations import control_lines


@pytest.fixture
def whole(tmp_path: Path) -> ZgbConsolePlace:
    """A mail queue in a database, with two jobs."""
    return ZgbConsolePlace(tmp_path)


US = Intent(controls.CONTROL_VERB, ANA, "mx7 is down")
pytestmark = pytest.mark.usefixtures("nothing_blocks")


@asynccontextmanager
async def inspecting(
    opener: Callable[[], Store], journal: Journal | None = None
) -> AsyncIterator[Inspector]:
    """An inspector that has seen everything once, and no test that hangs."""
    inspector = Inspector(opener, clock=clock, journal=journal, limit=attempts_allowed)
    async with asyncio.timeout(60):
        await inspector.start()
        try:
            await until(inspector, lambda: inspector.latest.is_complete)
            yield inspector
        finally:
            await inspector.close()


async def until(inspector: Inspector, is_expected: Callable[[], bool]) -> None:
    """Wait for changes until it is so."""
    while not is_expected():
        await inspector.wait_for_change(inspector.latest.generation)


def outcome(operation: Operation) -> tuple[str | None, bool]:
    """The words of an operation's end, and whether it failed."""
    return controls.control_outcome(operation), controls.has_control_failed(operation)


async def test_the_controls_of_a_store_are_known(whole: ZgbConsolePlace) -> None:
    """They have values and reasons; a store without any refuses one."""
    whole.in_earnest()
    async with inspecting(whole.open) as inspector:
        controls = inspector.controls
    values = {name: each.now for name, each in controls.items() if each.now}
    assert values == {PAUSE: "1", RATE: "60", REDIRECT: "0"}
    assert [name for name, each in controls.items() if each.is_pause] == [PAUSE]
    assert controls[REDIRECT].refusal.startswith("registration period 2026-11-01 to 2026-12-31")
    assert not controls[PAUSE].refusal
    async with inspecting(lambda: MemoryStore(MemoryTasks())) as inspector:
        assert inspector.controls == {}
        with pytest.raises(Unsupported, match=r"no control 'pause' here: this queue has none"):
            await inspector.actions.run_control(Order("pause"))


async def test_a_control_is_done_recorded_and_seen(whole: ZgbConsolePlace) -> None:
    """The journal has who, why, what and the value before; changed tasks are seen."""
    await asyncio.to_thread(whole.fail_all)
    async with inspecting(whole.open, whole.journal) as inspector:
        done = await inspector.actions.run_control(Order(PAUSE, value="0"), US)
        await until(inspector, lambda: inspector.controls[PAUSE].now == "0")
        (operation,) = await inspector.history.operations()
        assert {str(state): n for state, n in inspector.latest.counts.items() if n} == {"dead": 2}
        retried = await inspector.actions.run_control(Order(RETRY))
        await until(inspector, lambda: not inspector.latest.counts.get(State.DEAD))
    assert retried.answer == "2 jobs failed or parked: due now"
    assert (done.answer, done.op, done.trouble) == ("paused: jobs wait", operation.op, "")
    assert await asyncio.to_thread(whole.setting, PAUSE) == "0"
    intent = operation.intent
    assert (intent.verb, intent.who, intent.reason) == ("control", ANA, US.reason)
    values = {"control": PAUSE, "target": "", "value": "0", "before": "1"}
    assert dict(operation.intent.values) == values
    assert (operation.planned, operation.is_interrupted) == (0, False)
    assert operation.ended == operation.started
    assert outcome(operation) == ("paused: jobs wait", False)


async def test_what_is_refused_changes_and_writes_nothing(whole: ZgbConsolePlace) -> None:
    """A wrong word is said before anything is touched, and is in no journal."""
    whole.in_earnest()
    before = await asyncio.to_thread(whole.sql, "SELECT * FROM config ORDER BY key")
    async with inspecting(whole.open, whole.journal) as inspector:
        for order, why in (
            (Order("nothing"), "no control 'nothing' here: expected one of mailQueueEn"),
            (Order(PAUSE, value="2"), "mailQueueEnabled is '2', expected 1 or 0"),
            (Order(PAUSE), "mailQueueEnabled is nothing, expected 1 or 0"),
            (Order(PAUSE, "x", "0"), "mailQueueEnabled takes no target"),
            (Order(RATE, value="0"), "mailMaxPerHour is '0', expected a whole number from 1 to"),
            (Order(RATE, value="9" * 99), "expected a whole number from 1 to"),
            (Order(RATE), "mailMaxPerHour is nothing, expected a whole number from 1 to"),
            (Order(RETRY, value="now"), "retryFailed takes no value"),
            (Order(PAUSE, value="0", before="0"), "has changed: it is 1 now"),
            (Order(REDIRECT, value="1"), "registration period 2026-11-01 to 2026-12-31"),
        ):
            with pytest.raises(Unsupported, match=why):
                await inspector.actions.run_control(order, US)
        assert await inspector.history.operations() == ()
    assert await asyncio.to_thread(whole.sql, "SELECT * FROM config ORDER BY key") == before


def test_a_change_outside_of_the_store_is_recorded_in_the_same_way(journal: Journal) -> None:
    """The answer, or the error of the disk, is recorded; the undo names the value before."""
    order = Order("transport", "curl", "suspended", before="not suspended")

    def full(_: object) -> str:
        raise OSError(ENOSPC, "No space left on device", "/suspended")

    with pytest.raises(OSError, match="No space"):
        controls.run_journaled_action(journal, US, order, full, clock)
    (refused,) = journal.operations()
    done = controls.run_journaled_action(journal, US, order, lambda _: "it is", clock)
    operation = journal.operation(done.op)
    assert operation is not None
    assert outcome(refused) == ("No space left on device", True)
    assert (*outcome(operation), operation.is_interrupted) == ("it is", False, False)
    text = "run the control to set it back: transport curl was not suspended before"
    assert controls.undo_refusal(operation.intent.values) == text


def test_an_action_is_done_also_if_it_cannot_be_recorded(journal: Journal) -> None:
    """A journal that cannot be written is named in the result; a refusal of the act is recorded."""
    order, busy = Order(controls.UNLOCK_CONTROL, "PID 4711"), KeyError("busy")

    def refuse() -> str:
        raise busy

    with pytest.raises(KeyError):
        controls.run_recorded_action(journal, US, order, refuse, clock, refusals=(KeyError,))
    (refused,) = journal.operations()
    assert outcome(refused) == ("'busy'", True)
    broken = Journal("/dev/null/journal", "", clock)
    done = controls.run_recorded_action(broken, US, order, lambda: "SIGTERM", clock)
    assert (done.answer, done.op) == ("SIGTERM", "") and "cannot be written" in done.trouble
    assert controls.run_recorded_action(None, US, order, lambda: "ok", clock).trouble == ""


class Dying(MemoryStore):
    """A store whose process ends in the middle of a control."""

    controls: Mapping[str, Control] = {"flush": Control("send what waits")}

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """End as a kill does: nothing behind it runs."""
        raise KeyboardInterrupt


def test_one_that_was_cut_off_is_settled_as_unknown(journal: Journal) -> None:
    """A crash leaves the intent; it is abandoned, its effect is unknown, nothing is undone."""
    store = Dying()
    with pytest.raises(KeyboardInterrupt):
        controls.run_control(store, journal, Order("flush"), US, clock)
    (left,) = journal.operations()
    settled = undo.settle_operation(store, journal, left).operation
    assert left.is_interrupted and settled is not None
    assert (settled.is_interrupted, controls.control_outcome(settled)) == (False, None)
    with pytest.raises(Unavailable, match="flush cannot be undone"):
        undo.plan_undo(store, journal, settled, NOW, 7.0)


def test_a_store_that_can_say_what_it_would_do_is_asked(tmp_path: Path) -> None:
    """A recovery says what it would mend, and mends nothing; another control says nothing."""
    make_spool(str(tmp_path / "spool"))
    (tmp_path / "spool" / "queue" / "stray").symlink_to("nowhere")
    with closing(KannaderStore(str(tmp_path / "spool"), clock)) as store:
        before = sorted((tmp_path / "spool").rglob("*"))
        outlook = controls.forecast_control(store, Order("recover"))
        assert outlook.amount == 1 == len(outlook.words.splitlines())
        assert before == sorted((tmp_path / "spool").rglob("*"))
        assert controls.run_control(store, None, Order("recover"), None, clock).answer
        for order, why in (
            (Order("recover", value="dyr"), "expected nothing or anyway"),
            (Order("adopt"), "adopt needs a target: data/"),
        ):
            with pytest.raises(Unsupported, match=why):
                controls.forecast_control(store, order)
        with pytest.raises(Unsupported, match="dyr"):
            store.control("recover", value="dyr")


def test_nothing_is_done_to_another_number_than_was_counted(whole: ZgbConsolePlace) -> None:
    """A control that would change more, fewer or no tasks than its plan counted is refused."""
    whole.fail_all()
    with closing(whole.open()) as store:
        for amount, why in ((1, "would change 2 now, not 1"), (3, "would change 2 now, not 3")):
            with pytest.raises(Unsupported, match=why):
                controls.run_control(store, whole.journal, Order(RETRY, amount=amount), US, clock)
        assert not whole.journal.operations()
        controls.run_control(store, whole.journal, Order(RETRY, amount=2), US, clock)
        with pytest.raises(Unsupported, match="would change nothing"):
            controls.run_control(store, whole.journal, Order(RETRY, amount=0), US, clock)


class Lanes(MemoryStore):
    """A store with a rate for each of its queues; one of them refuses."""

    def __init__(self) -> None:
        super().__init__(MemoryTasks())
        self.set_rates({"fast": "50", "slow": "5"})

    def set_rates(self, rates: dict[str, str]) -> None:
        """Show these rates."""
        self.rates = rates
        slow = ControlTarget("slow", rates["slow"], bounds=(1, 10))
        old = ControlTarget("old", refusal="its queue is drained")
        targets = ControlTarget("fast", rates["fast"]), slow, old
        rate = Control("rate", "a queue", "tasks", bounds=(1, 100), targets=targets)
        self.controls = {"rate": rate}

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Set the rate of one queue."""
        self.set_rates({**self.rates, target: value})
        return "set"


def test_each_target_has_its_own_value_bounds_and_refusal(journal: Journal) -> None:
    """The journal has the former value of the target, which sets it back."""
    store = Lanes()
    for order, why in (
        (Order("rate", "", "9"), "rate needs a target: a queue"),
        (Order("rate", "new", "9"), "no target 'new', expected one of fast, slow, old"),
        (Order("rate", "slow", "20"), "from 1 to 10"),
        (Order("rate", "fast", "200"), "from 1 to 100"),
        (Order("rate", "old", "9"), "its queue is drained"),
        (Order("rate", "slow", "9", before="50"), "rate slow has changed: it is 5 now"),
    ):
        with pytest.raises(Unsupported, match=why):
            controls.run_control(store, journal, order, US, clock)
    assert not journal.operations()
    controls.run_control(store, journal, Order("rate", "slow", "9", before="5"), US, clock)
    assert store.rates == {"fast": "50", "slow": "9"}
    (done,) = journal.operations()
    text = "run the control to set it back: rate slow was 5 before"
    assert controls.undo_refusal(done.intent.values) == text
    rows = controls.control_rows(store.controls)
    values = {row.label: row.control.now for row in rows}
    assert values == {"rate fast": "50", "rate slow": "9", "rate old": ""}
    assert [controls.is_reversible(row.control) for row in rows] == [True, True, False]


def test_the_command_line_lists_each_target() -> None:
    """One line for each target with its value; the JSON has them as objects."""
    controls = Lanes().controls
    page = control_lines.page_lines(WholeQueueFigures(), controls, 80)
    lines = ["".join(text for text, _ in line).split()[:3] for line in page]
    assert lines[1:4] == [["rate", "fast", "50"], ["rate", "slow", "5"], ["rate", "old", "-"]]
    (control,) = [control_lines.control_values(name, each) for name, each in controls.items()]
    assert control["targets"] == [
        {"name": "fast", "now": "50", "refusal": "", "bounds": None},
        {"name": "slow", "now": "5", "refusal": "", "bounds": (1, 10)},
        {"name": "old", "now": "", "refusal": "its queue is drained", "bounds": None},
    ]


def test_a_switch_is_offered_the_other_way() -> None:
    """What is proposed first is the value that it has not; one without values gets none."""
    switch = Control("s", value="1 or 0", now="1", choices=(("1", "on"), ("0", "off")))
    assert controls.suggested_value(switch) == "0"
    assert controls.suggested_value(switch._replace(now="0")) == "1"
    assert controls.suggested_value(Control("press")) == ""
    assert [controls.describe_value(switch, value) for value in "07"] == ["0 (off)", "7"]
    limit = Control("l", value="jobs", now="0", bounds=(0, 9), no_limit="0")
    assert [controls.describe_value(limit, value) for value in "07"] == ["0 (no limit)", "7"]


def test_what_cannot_be_done_or_written_down_changes_nothing(whole: ZgbConsolePlace) -> None:
    """A locked database, or a journal that takes no intent; the undo names the value before."""
    impatient = ZgbDatabase(whole.path, patience=0.05, durable=False)
    order = Order(PAUSE, value="0")
    with closing(sqlite3.connect(whole.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(ZgbStore(impatient)) as store, pytest.raises(Unavailable, match="locked"):
            controls.run_control(store, whole.journal, order, US, clock)
    (operation,) = whole.journal.operations()
    assert controls.has_control_failed(operation)
    blocked = Journal(f"{whole.path}/journal", clock=clock)
    with closing(whole.open()) as store:
        with pytest.raises(Unavailable, match="cannot be written"):
            controls.run_control(store, blocked, order, US, clock)
        assert whole.setting(PAUSE) == "1"
        done = controls.run_control(store, None, order, US, clock)
        assert (done, whole.setting(PAUSE)) == (controls.ControlResult("paused: jobs wait"), "0")
        controls.run_control(store, whole.journal, Order(RATE, value="9"), US, clock)
        failed = controls.has_control_failed
        operation = next(one for one in whole.journal.operations() if not failed(one))
        with pytest.raises(Unavailable, match="set it back: mailMaxPerHour was 60 before"):
            undo.plan_undo(store, whole.journal, operation, NOW, 7.0)
