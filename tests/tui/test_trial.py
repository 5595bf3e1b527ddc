"""M on the transports' screen: a test mail by one of them, sent by a command of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.mailrooms import SAYS, Mailroom
from tests.tui.spools import Clock, a_console, disk_place, make_spool, until
from tests.tui.test_suspend import page, sees
from tests.tui.test_transports import opened, rows
from tui.app import Console
from tui.screens.ask import AskScreen
from tui.screens.transports import TransportsScreen
from tui.screens.trial import TrialScreen
from tui.trial import wrong_address

FAILS = "import sys; print('\x1b[31mconnect_refused'); sys.exit(1)"
HANGS = "import time; print('connecting', flush=True); time.sleep(60)"


def a_place_that(
    root: Path, says: str, recipient: str = "admin@example.com", **fields: object
) -> Console:
    """A console, armed, on a place whose test mails are sent by this program."""
    make_spool(root, [])
    clock = Clock()
    room = Mailroom(root, clock)
    room.recipient = recipient
    place = disk_place(root, "here", clock)._replace(mail=room.desk(says))
    return a_console(place, clock=clock, **{"start_armed": True, **fields})


async def at_trial(pilot: Pilot[None]) -> None:
    """The plan for a test mail by postfix."""
    board = await opened(pilot)
    await until(pilot, lambda: "curl" in rows(board))
    board.query_one("#rows").put_on("postfix")  # type: ignore[attr-defined]
    await pilot.press("M")
    await until(pilot, lambda: not isinstance(pilot.app.screen, TransportsScreen))


async def test_its_lines_are_shown_and_how_it_ended(tmp_path: Path) -> None:
    """It goes to whom the configuration names, by the transport under the cursor and no other."""
    async with a_place_that(tmp_path, SAYS).run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)
        await sees(pilot, "One mail to admin@example.com: by postfix, and by no other.")
        await sees(pilot, "mail test --transport postfix admin@example.com", "y to send it")

        await pilot.press("y")

        await sees(pilot, "asking --transport postfix admin@example.com")
        await sees(pilot, "postfix has taken it; whether it arrives is for its reader")
        await pilot.press("y")
        await sees(pilot, "this one was sent: Esc, then M makes another")


async def test_another_address_is_named(tmp_path: Path) -> None:
    """Where nobody is configured it is asked for at once; what is no address is not taken."""
    async with a_place_that(tmp_path, SAYS, "").run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)
        await until(pilot, lambda: isinstance(pilot.app.screen, AskScreen))
        await pilot.press(*"eva", "enter")
        assert isinstance(pilot.app.screen, AskScreen)

        await pilot.press("@", *"x.example", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TrialScreen))
        await pilot.press("y")

        await sees(pilot, "asking --transport postfix eva@x.example")


async def test_a_failure_is_told_with_its_last_words(tmp_path: Path) -> None:
    """Its exit code decides, and what it said is inert."""
    async with a_place_that(tmp_path, FAILS).run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)
        await pilot.press("y")

        await sees(
            pilot, "not sent by postfix: its command ended with 1", "\ufffd[31mconnect_refused"
        )
        await pilot.press("escape")
        await sees(pilot, "test mail: not sent by postfix")


async def test_the_console_does_not_wait_for_it(tmp_path: Path) -> None:
    """While it runs the screen can be left, and M shows how it goes; no second one is begun."""
    console = a_place_that(tmp_path, HANGS)
    async with console.run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)
        await pilot.press("y")
        await sees(pilot, "connecting", "it is being sent")

        await pilot.press("escape")
        assert isinstance(pilot.app.screen, TransportsScreen)
        await pilot.press("j", "M")
        await until(pilot, lambda: isinstance(pilot.app.screen, TrialScreen))
        await sees(pilot, "connecting", "test mail by postfix")
        await pilot.press("y")
        await sees(pilot, "a test mail is being sent: wait")


async def test_observe_sends_nothing(tmp_path: Path) -> None:
    """It needs ARMED: a mail cannot be had back."""
    async with a_place_that(tmp_path, SAYS, start_armed=False).run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)
        await pilot.press("y")

        await sees(pilot, "OBSERVE: press ! first")
        assert "asking" not in page(pilot)


async def test_a_suspended_one_can_be_tried(tmp_path: Path) -> None:
    """That is how one finds out whether it may be resumed; the plan says so."""
    console = a_place_that(tmp_path, SAYS)
    desk = console.lives[0].place.mail
    assert desk is not None
    await asyncio.to_thread(desk.suspend, "postfix", "")
    async with console.run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)

        await sees(pilot, "postfix is suspended: this mail goes by it all the same")


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        *(("admin@example.com", False), ("root@mx1", False), ("", True), ("  ", True)),
        *(("-oX/tmp/x@example.com", True), ("a b@example.com", True), ("admin", True)),
        ("a@example.com\x1b", True),
    ],
)
def test_what_is_no_address_is_refused(text: str, is_wrong: bool) -> None:
    """Neither an option nor two addresses come to be words of a command."""
    assert bool(wrong_address(text)) is is_wrong


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (("postfix", "curl"), "this mail goes by it all the same. It is sent"),
        (("curl",), "all the same. It will hardly go: no postfix is installed"),
    ],
)
async def test_one_that_is_not_used_for_another_is_tried_all_the_same(
    tmp_path: Path, here: tuple[str, ...], said: str
) -> None:
    """The configuration forces curl: postfix is only not chosen, or it is not there either."""
    make_spool(tmp_path, [])
    clock = Clock()
    room = Mailroom(tmp_path, clock, here)
    room.forced = "curl"
    place = disk_place(tmp_path, "here", clock)._replace(mail=room.desk())
    async with a_console(place, clock=clock, start_armed=True).run_test(size=(80, 24)) as pilot:
        await at_trial(pilot)

        await sees(pilot, "postfix is not used, curl is forced", said.replace("It is sent", ""))
        assert ("hardly" in page(pilot)) == ("hardly" in said)
