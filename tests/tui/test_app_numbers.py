"""No number of a place that does not answer, or not all of whose tasks are counted, is plain: it
has `?`, `+` or its age in its row, or in the title of its part, on every screen."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from engine.destinations.destination import Destination
from engine.formats.base.memory import MemoryStore
from engine.locks.token_buckets import BucketState
from engine.model import Missing, Problem, State, Task
from engine.monitor.transport_health import MailBacklog
from engine.operations import plans
from engine.operations.journal import Intent, Journal, Operation
from engine.places.place import Place, PlaceDestinations, WholeQueueFigures
from engine.store import Control
from engine.system.host import HostFigures
from tests.console_operator import ConsoleOperator, an_operator, clock_of
from tests.console_places import NOW, Clock, a_memory, a_place, a_stuck_lock, a_task
from tests.journaled_places import BEN, kept
from tests.mail_transports import PlaceTransports
from tests.tui.drawn_screens import settled
from tui.overview.screen import OverviewScreen
from tui.session import history, place_session
from tui.text import keys

COUNTS = {State.PENDING: 611, State.HELD: 277, State.DEAD: 433}
TOKENS, SPOOLED, RATE, PLANNED, PROBES, SIMILAR = 347, 739, 571, 823, 659, 432
FACTS = {*COUNTS.values(), TOKENS, SIMILAR, SPOOLED, RATE, PLANNED, PROBES}
"""Numbers of the place, each of which is on screen for one thing only."""

MARKED = re.compile(r"(?<!\w)\?|\d\+|\bold\b|counted \w+ ago|\d of [\d,]+ tasks +\d+%")
"""What makes a number in the same row, or a number in the part below this title, no plain one."""

NOTHING = re.compile("no damaged|nothing to control")
"""Said of a place that has none, which is unknown while it does not answer."""

ZERO = re.compile(r"(?<!^    )(?<![\w.:,/@-])0(?![\w.:,/%])(?! +\|)")
"""A zero, but not that of an axis."""


class Answers:
    """Whether a place answers; each call on it waits until it does."""

    def __init__(self) -> None:
        self.calls, self.scan = threading.Event(), threading.Event()
        self.resume()

    def resume(self) -> None:
        """Let all calls return."""
        self.calls.set()
        self.scan.set()

    def __call__(self, value: object) -> Callable[[], Any]:
        """A call that returns this."""

        def call() -> object:
            self.calls.wait()
            return value

        return call


class AskedJournal(Journal):
    """A journal on a file system that may hang."""

    answers: Answers

    def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """As it is, once the file system answers."""
        self.answers.calls.wait()
        return super().operations(since)


class AskedStore(MemoryStore):
    """A store on a server that may hang: from the start, or during a full scan."""

    controls = {"rate": Control("set the rate")}
    answers: Answers

    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """All tasks, as far as it answers."""
        for number, task in enumerate(super().scan(touched)):
            if touched is None and number == 450:
                self.answers.scan.wait()
            self.answers.calls.wait()
            yield task


@pytest.fixture
def answers() -> Iterator[Answers]:
    """Whether the place answers; at the end it does, so that threads end."""
    answers = AskedStore.answers = AskedJournal.answers = Answers()
    yield answers
    answers.resume()


def hung(root: Path, answers: Answers, clock: Clock) -> Place:
    """A place with all facts that screens show."""
    states = [state for state, amount in COUNTS.items() for _ in range(amount)]
    tasks = [
        a_task(n, state, id=f"t{n}", kind=state, error="550 no" if state is State.DEAD else "")
        for n, state in enumerate(states)
    ]
    memory, mail = a_memory(tasks), PlaceTransports(root, clock).place_mail()
    rows, peers = (("sends at most", f"{RATE} an hour"),), [Destination("https://a.example")]
    peers = [peers[0]._replace(healthy=False, reason="REFUSED", probes=PROBES, since=NOW - 9)]
    return a_place(
        memory,
        name="/srv/hung",
        open=lambda: answers(AskedStore(memory))(),
        lock=answers(a_stuck_lock()),
        queue_figures=answers(WholeQueueFigures(rows, queues=(("a", COUNTS), ("b", COUNTS)))),
        tokens=answers([BucketState("mail", TOKENS, 500, None)]),
        mail=mail._replace(backlog=answers(MailBacklog(SPOOLED, 60.0))),
        host=answers(HostFigures(1, 15_200_000_000, 40_000_000_000, 0.8, 4)),
        destinations=PlaceDestinations(answers(peers), lambda *_: "", lambda: None),
        journal=AskedJournal(str(root / "journal"), str(root), clock),
    )


off = asyncio.to_thread

SCREENS: dict[str, tuple[str, ...]] = {
    "overview": ("", "611"),
    "frozen": ("p", "FROZEN"),
    "queue": ("2", "2 pending 611"),
    "dlq": ("4", "4 dead 433"),
    "problems": ("2", "2 pending 611", "h", "no problems"),
    "task": ("2", "t0 ", "enter", "created"),
    "clusters": ("4", "t1000 ", "c", "F-"),
    "groups": ("4", "t1000 ", "b", "newest first"),
    "plan": ("4", "t1000 ", "*", "all 433", "R", "REPLAY 433"),
    "lock": ("U", "STUCK"),
    "locks": ("5", "STUCK"),
    "transports": ("6", "659", "j", "used now"),
    "destinations": ("6", "659"),
    "workers": ("3", "hung"),
    "log": ("7", "Log"),
    "operations": ("8", "RUNNING"),
    "record": ("8", "RUNNING", "enter", "823 planned"),
    "controls": ("C", "571"),
    "search": ("/ pending enter", "611"),
    "running": ("4", "t1000 ", "R", "type 433", "433", "waiting"),  # all are marked
}
"""The keys from the overview to a screen, and after each what is seen then."""

LEAVES = {"frozen": "p 1", "plan": "escape 1"}
"""The keys from a screen to the overview, if not 1."""

OWN = {
    "frozen": FACTS - {SIMILAR},
    "plan": {433},
    "running": {433},
    "record": {823},
    "operations": {823},
}
"""Numbers of what an operator did: they stay true."""


@asynccontextmanager
async def a_console(place: Place, size: tuple[int, int] = (80, 24), **more: Any) -> Any:
    """An operator at the overview of this place and another one, with a running operation of ben's
    on the first."""
    hold = plans.freeze_plan("hold", [a_task(number) for number in range(PLANNED)], NOW)
    with closing(await off(kept(place).begin, Intent("hold", BEN), hold)):
        well, first = a_place(a_memory([a_task(1)]), name="/srv/well"), keys.OVERVIEW
        async with an_operator(place, well, first=first, size=size, **more) as operator:
            yield operator


def names_the_place(operator: ConsoleOperator) -> object:
    """True if the top line says that the place does not answer, or that it is of a past time."""
    return re.search(r"\? (hung|no answer)|FROZEN", operator.text.partition("\n")[0])


def plain_numbers(operator: ConsoleOperator, number: re.Pattern[str]) -> list[str]:
    """The painted rows with such a number that is not marked, but those of the other place."""
    title, rows = "", []
    for row in operator.text.splitlines():
        if re.search(r"\bwell\b", row):
            continue
        is_title = re.match(r"[-|+]?- \S", row) and "newest first" not in row
        title = row if is_title else title
        if number.search(row) and not (MARKED.search(row) or MARKED.search(title)):
            rows.append(row)
    return rows


def untrue_rows(operator: ConsoleOperator, number: re.Pattern[str]) -> list[str]:
    """The painted rows with such a number that is not marked, or that say that there is nothing."""
    nothing = [row for row in operator.text.splitlines() if NOTHING.search(row)]
    return plain_numbers(operator, number) + nothing


async def is_marked(operator: ConsoleOperator, name: str, number: re.Pattern[str]) -> None:
    """Wait half a minute of the place's silence, until the screen of that name says only what is
    still true."""
    clock_of(operator).now += 30
    await operator.until(
        lambda: names_the_place(operator) and not untrue_rows(operator, number),
        describe=lambda: name,
    )


def one_of(numbers: Collection[int]) -> re.Pattern[str]:
    """Finds any of these numbers."""
    return re.compile(rf"(?<![\w:.])({'|'.join(map(str, numbers))})(?![\w:.]\d)")


@pytest.mark.parametrize(
    ("size", "screens"), [((80, 24), SCREENS), ((120, 40), ["overview"]), ((200, 60), ["overview"])]
)
async def test_a_number_is_marked_once_its_place_hangs(
    tmp_path: Path,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    screens: Collection[str],
) -> None:
    """An open screen names the place that hangs in its top line, and none of its numbers is
    plain; a frozen one has its time."""
    monkeypatch.setattr(place_session, "HANG_SECONDS", 0.2)
    place = await off(hung, tmp_path, answers, Clock())
    async with a_console(place, size) as operator:
        session = operator.console.sessions[0]
        monkeypatch.setattr(history, "monotonic", clock_of(operator))
        await session.history.refresh()
        for name in screens:
            facts = one_of(FACTS - OWN.get(name, set()))
            await operator.until(lambda: session.history.age is None and session.readings.tokens)
            for pressed, text in zip(*[iter(SCREENS[name])] * 2, strict=True):
                await operator.step(pressed, text)
            answers.calls.clear()
            await is_marked(operator, name, facts)
            answers.resume()
            await operator.until(lambda: not session.find_silence())
            await operator.step(LEAVES.get(name, "1"))
            await operator.opens(OverviewScreen)


OPENED_LATE = (
    "queue",
    "task",
    "workers",
    "locks",
    "log",
    "operations",
    "record",
    "controls",
    "search",
)
"""Screens that open though the place does not answer."""


async def test_a_screen_opened_while_its_place_hangs_has_no_plain_number(
    tmp_path: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is marked, though nothing of the new screen's own has been read."""
    monkeypatch.setattr(place_session, "HANG_SECONDS", 0.2)
    place = await off(hung, tmp_path, answers, Clock())
    async with a_console(place) as operator:
        session = operator.console.sessions[0]
        monkeypatch.setattr(history, "monotonic", clock_of(operator))
        await session.history.refresh()
        for name in OPENED_LATE:
            facts = one_of(FACTS - OWN.get(name, set()))
            await operator.until(lambda: session.history.age is None and session.readings.tokens)
            *steps, (last, _) = zip(*[iter(SCREENS[name])] * 2, strict=True)
            for pressed, text in steps:
                await operator.step(pressed, text)
            answers.calls.clear()
            before = operator.console.screen
            await operator.step(last)
            await operator.until(lambda: operator.console.screen is not before)  # noqa: B023
            await is_marked(operator, name, facts)
            answers.resume()
            await operator.until(lambda: not session.find_silence())
            await operator.step("1")
            await operator.opens(OverviewScreen)


TASK_SCREENS = ("", "2", "2 h", "2 b", "4", "4 c", "4 b", "5", "6", "3", "8", "C", "U")
WALKS = [((80, 24), TASK_SCREENS), ((120, 40), ("", "2", "2 b", "5", "3")), ((200, 60), ("", "2"))]
"""Sizes of the screen, and the keys that lead to the screens that are seen."""


@pytest.mark.parametrize(("size", "walk"), WALKS)
async def test_a_place_that_never_answered_has_no_numbers(
    tmp_path: Path,
    answers: Answers,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    walk: tuple[str, ...],
) -> None:
    """Nothing is known of a place that hangs from the start: no screen shows a 0."""
    monkeypatch.setattr(place_session, "FIRST_HANG_SECONDS", 0.2)
    answers.calls.clear()
    place = await off(hung, tmp_path, answers, Clock())
    async with a_console(place, size, early=True) as operator:
        for pressed in walk:
            await operator.step(f"1 {pressed}")
            await operator.until(lambda: names_the_place(operator))
            await settled(operator.console, operator.pilot)
            assert not untrue_rows(operator, ZERO), operator.text
        answers.resume()


@pytest.mark.parametrize(("size", "walk"), WALKS)
async def test_what_a_scan_has_counted_so_far_has_a_sign(
    tmp_path: Path, answers: Answers, size: tuple[int, int], walk: tuple[str, ...]
) -> None:
    """While the first scan runs, no screen shows the number of tasks as if it were of all."""
    answers.scan.clear()
    place = await off(hung, tmp_path, answers, Clock())
    async with a_console(place, size, early=True) as operator:
        latest = operator.console.sessions[0].inspector
        await operator.until(lambda: latest.latest.indexed >= 400 and latest.latest.counts)
        number = one_of(set(latest.latest.counts.values()) - {0})
        for pressed in walk:
            await operator.step(f"1 {pressed}")
            await settled(operator.console, operator.pilot)
            assert not plain_numbers(operator, number), operator.text
        answers.resume()
