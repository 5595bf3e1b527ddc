"""A place whose file system never answers: it is seen, and delays no other place and no exit."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from engine.live.call_thread import DaemonExecutor
from engine.model import LockEvidence
from engine.monitor.alerts import AlertKind
from engine.store import Unavailable
from tests.console_operator import an_operator
from tests.console_places import free, make_spool, some_tasks
from tests.engine.monitor.test_alerts import write_task
from tests.tables import each
from tests.tui.session.hanging_mount import can_mount, hanging_mount
from tui.cli.setup import places as opening
from tui.overview.screen import OverviewScreen
from tui.queue.screen import QueueScreen
from tui.session import place_session
from tui.text import keys

NO_FUSE = pytest.mark.skipif(not can_mount(), reason="no FUSE, or no right to mount")
IS_REAL = [False, pytest.param(True, marks=NO_FUSE)]
"""Whether a call of ours waits, or each one in a real file system."""


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """Set when the file system answers; at the end it does, so that threads end."""
    event = threading.Event()
    yield event
    event.set()


def spools(root: Path, *names: str) -> tuple[Setup, list[str]]:
    """Spools without tasks, and what opens the last of them."""
    paths = [str(root / name) for name in names]
    for path in paths:
        make_spool(Path(path), [])
    return setup_for(queue_config.load_config(None, {}), paths[-1], os.environ), paths


@pytest.mark.parametrize("is_real", IS_REAL)
async def test_a_place_that_hangs_is_seen_and_delays_nothing(
    tmp_path: Path, answers: threading.Event, monkeypatch: pytest.MonkeyPatch, is_real: bool
) -> None:
    """While a read hangs, or each call on the folder of a place waits in the kernel, that place has
    no numbers but the reason with the seconds, in its row, as an alert and in the totals; tasks of
    another place come and its screen opens. Once it answers, the numbers are back."""
    monkeypatch.setattr(place_session, "HANG_SECONDS", 0.2)
    setup, names = await asyncio.to_thread(spools, tmp_path, "hung", "well")
    await asyncio.to_thread(make_spool, tmp_path / "hung", some_tasks())
    hung, well = await asyncio.to_thread(opening.make_places, setup, names)
    answers.set()

    def lock() -> LockEvidence:
        answers.wait()
        return free()

    places, stack = (hung._replace(lock=lock), well), ExitStack()
    async with an_operator(*places, first=keys.OVERVIEW, size=(120, 40)) as operator:
        await operator.opens(OverviewScreen)
        await operator.until(lambda: "dead 12 " in operator.line("top-line"))
        live = operator.console.sessions[0]
        if is_real:
            await asyncio.to_thread(stack.enter_context, hanging_mount(tmp_path / "hung"))
        else:
            answers.clear()
        try:
            await operator.sees("no answer for ")
            await asyncio.to_thread(write_task, tmp_path / "well", "dlq", 1)
            await operator.until(lambda: "dead 1+ " in operator.line("top-line"))
            await operator.until(lambda: AlertKind.UNREADABLE in [a.kind for a in live.alerts])
            assert live.inspector.latest.unavailable
            await operator.opens(QueueScreen, "2")
            await operator.opens(OverviewScreen, "escape")
        finally:
            answers.set()
            await asyncio.to_thread(stack.close)
        await operator.until(lambda: "dead 13 " in operator.line("top-line"))
        assert not live.inspector.latest.unavailable


@pytest.mark.parametrize("is_real", IS_REAL)
def test_a_hung_place_delays_no_other_at_the_start(
    tmp_path: Path, answers: threading.Event, monkeypatch: pytest.MonkeyPatch, is_real: bool
) -> None:
    """Places that answer are opened; the one that does not, or whose folder is on a file system
    that hangs, is shown with the reason."""
    setup, names = spools(tmp_path, "hung", "well")

    def slow(config: queue_config.Config, place: str, *more: Any) -> Setup:
        if place == names[0]:
            answers.wait()
        return setup_for(config, place, *more)

    if not is_real:
        monkeypatch.setattr("tui.cli.setup.places.setup_for", slow)
    monkeypatch.setattr(opening, "OPEN_SECONDS", 0.5)
    with hanging_mount(tmp_path / "hung") if is_real else nullcontext():
        hung, healthy = opening.make_places(setup, names)
        with pytest.raises(Unavailable, match="no answer when opened"):
            hung.open()
        healthy.open().close()


def test_a_place_that_opens_gives_the_next_one_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow places are waited for as long as one after the other answers."""
    setup, names = spools(tmp_path, "first", "second", "third")
    waits = [threading.Event() for _ in names]
    waits[0].set()

    def in_turn(config: queue_config.Config, place: str, *more: Any) -> Setup:
        waits[names.index(place)].wait()
        return setup_for(config, place, *more)

    def wait_for_next(opening: set[Future[object]], seconds: float, when: str) -> object:
        done, rest = wait(opening, 60, when)
        next_one = len(names) - len(rest)
        for event in waits[next_one : next_one + 1]:
            event.set()
        return done, rest

    monkeypatch.setattr("tui.cli.setup.places.setup_for", in_turn)
    monkeypatch.setattr("concurrent.futures.wait", wait_for_next)
    for place in opening.make_places(setup, names):
        place.open().close()


def test_a_hung_call_delays_no_other_and_not_the_end(answers: threading.Event) -> None:
    """Calls off the event loop have a thread each; the loop ends while one of them hangs."""

    async def work() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonExecutor())
        hanging = [asyncio.create_task(asyncio.to_thread(answers.wait)) for _ in range(99)]
        found = await asyncio.to_thread(lambda: "answer")
        return [found, *("done" for task in hanging if task.done())]

    assert asyncio.run(work()) == ["answer"]
    assert not answers.is_set()


def test_a_place_that_has_gone_is_not_to_be_made_again(tmp_path: Path) -> None:
    """Before the first opening the missing folder names the command that makes it; once it was
    open, the reason asks for its volume."""
    setup, (name,) = spools(tmp_path, "spool")
    place, spool, elsewhere = opening.make_place(setup, name), Path(name), tmp_path / "elsewhere"
    spool.rename(elsewhere)
    with pytest.raises(Unavailable, match=r"spooldeck init .* makes it"):
        place.open()
    elsewhere.rename(spool)
    place.open().close()
    spool.rename(tmp_path / "spool.x")
    with pytest.raises(Unavailable, match=r"did you mean \S+spool\.x\? it was there before: "):
        place.open()
    (tmp_path / "spool.x").rename(spool)
    shutil.rmtree(spool / "queue")
    with pytest.raises(Unavailable) as gone:
        place.open()
    assert str(gone.value).endswith("; it was there before: is its volume mounted?")
    assert "spooldeck init" not in str(gone.value)


@each(
    ("files", "words"), [(["maildrop"], r"\(the folder has other files\)"), ([], "spooldeck init")]
)
def test_no_queue_is_offered_to_be_made_in_a_folder_of_another_program(
    tmp_path: Path, files: list[str], words: str
) -> None:
    """The command that makes a queue is named for an empty folder, not for one with files."""
    for name in files:
        (tmp_path / name).mkdir()
    setup = setup_for(queue_config.load_config(None, {}), str(tmp_path), os.environ)
    with pytest.raises(Unavailable, match=words):
        opening.make_place(setup, str(tmp_path)).open()
