"""What every test of the console rests on: nothing blocks its loop, and keys have acted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from blockbuster import blockbuster_ctx
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.events import Event
from textual.pilot import Pilot

from tests.console_places import acted
from tests.nftban_queues import root, spooldeck
from tui.terminal.safe_app import SafeApp

__all__ = ["root", "spooldeck"]

READING = 3600.0
"""Seconds from a paint to the next key of a pilot."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What is known only beside the screens' tests."""
    parser.addoption("--draw", action="store_true", help="draw again (tests/tui/golden)")


@pytest.fixture(autouse=True)
def nothing_blocks() -> Iterator[None]:
    """Code of ours that waits for a disk, a socket or a lock on the event loop fails the test."""
    with blockbuster_ctx(scanned_modules=["tui", "engine"]) as calls:
        for call in calls.functions.values():
            # Outside of tests a console is made before there is a loop.
            call.can_block_in("tui/app.py", "__init__")
        yield


async def give_way(*_: float) -> None:
    """Let the other tasks of the event loop run a few steps."""
    for _step in range(5):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def keys_have_acted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressing a key, or a pause, waits until each pressed key has acted.

    The library waits instead until the process uses no CPU: 20 ms at least, and too short on a busy
    machine."""
    for module in ("app", "pilot"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", give_way)
    pause = Pilot.pause

    async def press_it(pilot: Pilot[None], *keys: str) -> None:
        await pilot.app._press_keys(keys)
        await acted(pilot)

    async def pause_for(pilot: Pilot[None], delay: float | None = None) -> None:
        if delay is not None:
            await pause(pilot, delay)
            return
        await acted(pilot)
        pilot.app.screen._on_timer_update()

    monkeypatch.setattr(Pilot, "press", press_it)
    monkeypatch.setattr(Pilot, "pause", pause_for)


@pytest.fixture(autouse=True, scope="session")
def style_sheets_are_parsed_once() -> Iterator[None]:
    """Consoles of one theme share its parsed rules: they took a fifth of the start of each."""
    parse = Stylesheet._parse_rules
    parsed: dict[tuple[Any, ...], list[RuleSet]] = {}

    def parse_once(sheet: Stylesheet, css: str, **source: Any) -> list[RuleSet]:
        key = (css, *source.values(), *sheet._variables.items())
        if key not in parsed:
            parsed[key] = parse(sheet, css, **source)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture(autouse=True)
def keys_come_after_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot's key arrives long after the screen that it answers was painted."""
    act = SafeApp._act

    async def act_later(app: SafeApp, event: Event) -> None:
        event.time += READING
        await act(app, event)

    monkeypatch.setattr(SafeApp, "_act", act_later)
