"""The picture on the terminal: frozen by an operator, resting between repaints, with a cursor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.console_places import a_task, make_spool, put_file, some_tasks
from tests.pseudo_terminals import Terminal, console
from tui.terminal.picture import LIVE_SEEN_SECONDS, WAKE_SECONDS, Picture

REST = 30.0


def test_a_frozen_picture_lets_no_frame_pass() -> None:
    """The sign that it is frozen passes; then none, until it is released. A key from before the
    present picture was seen is one of the frozen one."""
    picture = Picture()
    picture.freeze()
    assert picture.passes(1.0)
    picture.close()
    assert not picture.passes(2.0) and picture.is_missed and not picture.is_due(99.0)
    picture.release()
    assert picture.is_unseen(3.0) and picture.passes(3.1)
    picture.sent(3.1)
    assert picture.is_unseen(3.2) and not picture.is_unseen(3.2 + LIVE_SEEN_SECONDS)
    assert picture.passes(4.0) and not picture.is_missed
    picture.freeze()
    picture.release()
    picture.close()  # the key that released it was faster
    assert picture.passes(5.0)
    picture.sent(5.0)
    picture.release()  # it was not frozen: the terminal is resumed
    assert not picture.is_unseen(9.0)


def test_a_resting_picture_changes_now_and_then() -> None:
    """After a key, frames pass for two seconds; then what was missed is shown once in its time."""
    picture = Picture(REST)
    picture.wake(0.0)
    assert picture.passes(1.0) and not picture.is_due(1.0)
    assert not picture.passes(WAKE_SECONDS) and picture.is_missed
    due = [now for now in range(2, 100) if picture.is_due(now)]
    assert due == [32, 62, 92]
    picture.let_pass()
    assert picture.passes(93.0)
    picture.sent(93.0)
    assert not picture.passes(94.0)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A queue on an ordinary day."""
    make_spool(tmp_path, some_tasks())
    return tmp_path


def wait(terminal: Terminal, times: int) -> int:
    """Bytes that are sent while so many plans could be read, one after the other."""
    before = len(terminal.said)
    for _ in range(times):
        terminal.reads()
    return len(terminal.said) - before


@pytest.mark.parametrize(
    ("key", "title"), [("2", "2 pending 4"), ("7", "log"), ("8", "operations")]
)
def test_a_frozen_screen_stays_as_it_is(spool: Path, key: str, title: str) -> None:
    """Nothing is sent while it is frozen; the next key only shows the present picture, and says
    so: it was meant for the old one. Then keys act again."""
    with console(str(spool)) as terminal:
        terminal.shows("QUEUE", "PEND")
        terminal.send(key)
        terminal.shows(title)
        terminal.send("p")
        terminal.shows("FROZEN since")
        wait(terminal, 1)
        put_file(spool, a_task(1400, due=0.0))
        assert wait(terminal, 6) == 0
        terminal.send("1")
        terminal.shows("live again: press 1 again", title)
        assert "FROZEN" not in terminal.screen.text
        wait(terminal, 1)
        terminal.send("1")
        terminal.shows("QUEUE", "41")


def test_the_screen_changes_once_in_the_refresh(spool: Path) -> None:
    """Without a key nothing is sent for a new line; with the answer to a key comes what is new.
    A new alert is shown in any case."""
    with console("--refresh", "5m", "--open", "log", str(spool)) as terminal:
        terminal.shows("refresh 300s", "Queue processor completed")

        def grows_unseen() -> bool:
            """Whether nothing is sent for a new line; an alert that comes just then is shown."""
            with (spool / "log" / "queue.log").open("a") as log:
                log.write("[2026-11-20 09:42:08] [INFO] one more line\n")
            return wait(terminal, 5) == 0

        assert any(grows_unseen() for _ in range(20))
        terminal.send("k")
        terminal.shows("one more line")
        terminal.send("2")
        terminal.opens()
        metrics = spool / "metrics" / "queue.prom"
        metrics.write_text(metrics.read_text().replace("pending 40", "pending 39"))
        terminal.shows("differs: pending 39, counted 40")


def test_the_terminal_cursor_is_at_the_row(spool: Path) -> None:
    """With `cursor: true` it is visible and goes with the row under the cursor."""
    (spool / "spooldeck.yaml").write_text("cursor: true\n")
    words = ("--config", str(spool / "spooldeck.yaml"), "--open", "queue", str(spool))
    with console(*words) as terminal:
        terminal.opens()

        def is_at_row() -> bool:
            row, _ = terminal.screen.cursor
            return terminal.screen.lines[row].lstrip("│").startswith("▶")

        terminal.until(is_at_row)
        before, _ = terminal.screen.cursor
        terminal.send("jj")
        terminal.until(lambda: terminal.screen.cursor[0] == before + 2 and is_at_row())
        assert terminal.said.rfind(b"\x1b[?25h") > terminal.said.rfind(b"\x1b[?25l")
