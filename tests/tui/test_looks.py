"""How the console looks, at both sizes: drawn anew and compared with what was agreed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from textual.pilot import Pilot

from tests.tui.screenshots import SHOTS, settled
from tests.tui.spools import (
    a_console,
    a_memory,
    a_place,
    loaded,
    make_spool,
    recover_command,
    some_tasks,
)
from tui import theme as themes
from tui.app import Console

Compare: TypeAlias = Callable[..., bool]

SIZES = ((80, 24), (120, 40))


def a_deck(root: Path, theme: str = "", start_armed: bool = False) -> Console:
    """A queue in memory, with the figures and the log of a spool on disk."""
    tasks = some_tasks()
    make_spool(root, tasks)
    place = a_place(
        a_memory(tasks),
        queue_metrics=str(root / "metrics" / "queue.prom"),
        mail_metrics=str(root / "metrics" / "mail.prom"),
        logs=(str(root / "log" / "queue.log"),),
        recover=recover_command(),
    )
    return a_console(place, theme=theme, start_armed=start_armed)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("shot", [name for name in SHOTS if name not in ("problems", "lock")])
def test_looks(snap_compare: Compare, tmp_path: Path, shot: str, size: tuple[int, int]) -> None:
    """Each screen looks as it did."""
    console = a_deck(tmp_path)

    async def lead(pilot: Pilot[None]) -> None:
        await loaded(pilot)
        await pilot.press(*SHOTS[shot])
        await settled(console, pilot)

    assert snap_compare(console, terminal_size=size, run_before=lead)


@pytest.mark.parametrize("name", themes.names())
def test_themes(snap_compare: Compare, tmp_path: Path, name: str) -> None:
    """Each theme shows cursor, mark, tab, and an armed console apart from the rest."""
    console = a_deck(tmp_path, theme=name, start_armed=True)

    async def lead(pilot: Pilot[None]) -> None:
        await loaded(pilot)
        await pilot.press("4", "space", "j")
        await settled(console, pilot)

    assert snap_compare(console, terminal_size=(80, 24), run_before=lead)
