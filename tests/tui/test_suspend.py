"""S and M on the transports' screen: suspend a transport, resume it, send a test mail by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.transports import Routes, Stopped
from tests.tui.desks import Desk, a_desk, clock_of, words
from tests.tui.mailrooms import SAYS, Mailroom
from tests.tui.spools import NOW, Clock, a_task, disk_place, make_spool
from tui import keys
from tui.place import Place
from tui.screens.ask import AskScreen
from tui.screens.face import Target
from tui.screens.overview import OverviewScreen
from tui.screens.suspend import SuspendScreen
from tui.screens.transports import TransportsScreen
from tui.screens.trial import TrialScreen
from tui.trial import wrong_address
from tui.views import suspending as view

FAILS = "import sys; print('\x1b[31mconnect_refused'); sys.exit(1)"
HANGS = "import time; print('connecting', flush=True); time.sleep(60)"


@pytest.fixture
def room(tmp_path: Path) -> Mailroom:
    """Three mails wait; postfix and curl are installed, and postfix comes first."""
    make_spool(tmp_path, [a_task(number, kind="mail_send") for number in range(3)])
    return Mailroom(tmp_path, Clock())


def place_of(room: Mailroom, says: str = SAYS) -> Place:
    """The place; `says` is the program that stands for the command that sends a test mail."""
    place = disk_place(room.records.parent, "here", room.clock)
    return place._replace(mail=room.desk(says), command=("spooldeck", "--root", "/q"))


async def on_postfix(desk: Desk) -> TransportsScreen:
    """The transports, with the cursor on postfix."""
    desk.console.goto(Target(keys.TRANSPORTS))
    board = await desk.opens(TransportsScreen)
    await desk.until(lambda: "curl" in desk.rows and "postfix" in desk.rows)
    desk.picker.put_on("postfix")
    return board


async def suspending_postfix(desk: Desk) -> SuspendScreen:
    """The plan for postfix, once it says what becomes of mail."""
    await on_postfix(desk)
    screen = await desk.opens(SuspendScreen, "S")
    await desk.sees("y to ", "that send mail are pending")
    return screen


async def test_it_is_suspended_with_a_reason_and_resumed(room: Mailroom) -> None:
    """The plan says who takes over; then the row says since when, by whom and why; S resumes."""
    async with a_desk(place_of(room), clock=room.clock) as desk:
        await suspending_postfix(desk)
        await desk.sees("Mail goes by curl meanwhile", "3 tasks that send mail are pending")
        await desk.sees("spooldeck --root /q mail suspend postfix", "y to suspend postfix")
        await desk.press("tab", *"relay", "space", *"moves", "enter")
        await desk.sees("mail suspend postfix 'relay moves'")
        await desk.opens(TransportsScreen, "y")

        assert room.noted == ["suspended postfix: relay moves"]
        await desk.sees("postfix is suspended: mail goes by curl", "S resume")
        assert "postfix        -      suspended" in desk.rows
        await desk.sees("suspended by ana since 09:42:08Z (just now): relay moves")

        await desk.opens(SuspendScreen, "S")
        await desk.sees("Mail goes by it again", "by ana since", "y to resume postfix")
        await desk.press("y")
        await desk.sees("postfix is resumed: mail goes by postfix", "S suspend")
        assert await asyncio.to_thread(room.suspensions.read) == {}


async def test_without_another_mail_waits(room: Mailroom) -> None:
    """Where none takes over, the plan says what becomes of mail, and the overview that it waits."""
    room.here = ("postfix",)
    async with a_desk(place_of(room), clock=room.clock) as desk:
        desk.console.goto(Target(keys.TRANSPORTS))
        await desk.opens(TransportsScreen)
        await desk.until(lambda: "postfix" in desk.rows)
        desk.picker.put_on("postfix")
        await desk.opens(SuspendScreen, "S")
        await desk.sees("There is no other that can be used, so mail waits", "y to suspend")
        await desk.press("y")
        await desk.sees("postfix is suspended: mail waits")
        clock_of(desk).now += 7200

        desk.console.goto(Target(keys.OVERVIEW))
        await desk.opens(OverviewScreen)
        said = "postfix suspended by ana for 2h00m, mail waits"
        await desk.until(lambda: said in [alert.words for alert in desk.console.here.alerts])


async def test_of_two_that_suspend_it_the_first_wins(room: Mailroom) -> None:
    """Suspended by another process since the last look: its reason stays, and that is said."""
    async with a_desk(place_of(room), clock=room.clock) as desk:
        screen = await suspending_postfix(desk)
        await asyncio.to_thread(room.suspensions.suspend, "postfix", NOW, "ben", "mine")
        screen.action_yes()  # before the next look at the files

        await desk.sees("not done: postfix was suspended meanwhile")
        left = await asyncio.to_thread(room.suspensions.read)
        assert left["postfix"].why == "mine"


async def test_an_unknown_transport_cannot_be_suspended(room: Mailroom) -> None:
    """A transport that only metrics know is none that could be kept from being used."""
    async with a_desk(place_of(room), clock=room.clock) as desk:
        await on_postfix(desk)
        metrics = room.records.parent / "metrics" / "mail.prom"
        metrics.write_text('nftban_mail_send_attempts_total{transport="carrier-pigeon"} 1\n')
        await desk.until(lambda: "carrier-pigeon" in desk.rows)
        desk.picker.put_on("carrier-pigeon")
        await desk.until(lambda: "not one of ours" in desk.page)
        await desk.press("S")

        await desk.sees("carrier-pigeon: not one of ours")


@pytest.mark.parametrize(
    ("delivers", "said", "unsaid", "result"),
    [
        (True, "mail waits: its tasks stay", "spooldeck sends", "postfix is suspended: mail waits"),
        (
            False,
            "mail_send tasks run the configured program, which picks its transport itself",
            "mail waits",
            "postfix is suspended: mail that spooldeck sends waits",
        ),
    ],
)
def test_the_plan_promises_only_what_spooldeck_decides(
    delivers: bool, said: str, unsaid: str, result: str
) -> None:
    """Of tasks that a configured program sends, it says that they are that program's; one task is
    counted in the singular.
    """
    stopped = {"postfix": Stopped("postfix", NOW, "ana")}
    before, after = Routes(("postfix",), "postfix"), Routes(("postfix",), stopped=stopped)

    plan = " ".join(words(view.plan("postfix", before, after, delivers, 1, NOW, 100)).split())

    assert said in plan
    assert unsaid not in plan
    assert "1 task that sends mail is pending now" in plan
    assert view.result("postfix", after, delivers) == result


# ---- test mails


async def test_a_test_mail_shows_what_its_command_says(room: Mailroom) -> None:
    """It goes to the configured recipient, by the transport under the cursor and no other; with
    that transport suspended as well, and only once.
    """
    await asyncio.to_thread(room.suspensions.suspend, "postfix", NOW, "ben", "")
    async with a_desk(place_of(room), clock=room.clock) as desk:
        await on_postfix(desk)
        await desk.opens(TrialScreen, "M")
        await desk.sees(
            "One mail to admin@example.com: by postfix, and by no other.",
            "postfix is suspended: this mail goes by it all the same",
            "mail test --transport postfix admin@example.com",
        )
        await desk.press("y")
        await desk.sees("asking --transport postfix admin@example.com")
        await desk.sees("postfix has taken it; whether it arrives is for its reader")
        await desk.press("y")
        await desk.sees("this one was sent: Esc, then M makes another")


async def test_another_address_is_named(room: Mailroom) -> None:
    """Without a configured recipient it is asked for; what is no address is not taken. An exit
    code decides how it ended, and what the command said is inert.
    """
    room.recipient = ""
    async with a_desk(place_of(room, FAILS), clock=room.clock) as desk:
        await on_postfix(desk)
        await desk.opens(AskScreen, "M")
        await desk.press(*"eva", "enter")
        assert isinstance(desk.console.screen, AskScreen)
        await desk.opens(TrialScreen, "@", *"x.example", "enter")
        await desk.sees("One mail to eva@x.example")
        await desk.press("y")

        await desk.sees(
            "not sent by postfix: its command ended with 1", "\ufffd[31mconnect_refused"
        )
        await desk.press("escape")
        await desk.sees("test mail: not sent by postfix")


async def test_the_console_does_not_wait_for_a_test_mail(room: Mailroom) -> None:
    """While it runs the screen can be left, and M shows how it goes; no second one is begun."""
    async with a_desk(place_of(room, HANGS), clock=room.clock) as desk:
        await on_postfix(desk)
        await desk.opens(TrialScreen, "M")
        await desk.press("y")
        await desk.sees("connecting", "it is being sent")

        await desk.opens(TransportsScreen, "escape")
        await desk.opens(TrialScreen, "j", "M")
        await desk.sees("connecting", "test mail by postfix")
        await desk.press("y")
        await desk.sees("a test mail is being sent: wait")


@pytest.mark.parametrize("here", [("postfix", "curl"), ("curl",)])
async def test_a_transport_that_is_not_used_can_be_tried(
    room: Mailroom, here: tuple[str, ...]
) -> None:
    """The configuration forces curl: postfix is only not chosen, or it is not installed either."""
    room.forced, room.here = "curl", here
    async with a_desk(place_of(room), clock=room.clock) as desk:
        await on_postfix(desk)
        await desk.opens(TrialScreen, "M")

        await desk.sees("postfix is not used, curl is forced", "goes by it all the same")
        absent = "It will hardly go: no postfix is installed" in desk.page
        assert absent is ("postfix" not in here)


def test_only_one_address_is_taken() -> None:
    """Neither an option nor two addresses become words of a command."""
    wrong = ["", "  ", "-oX/tmp/x@example.com", "a b@example.com", "admin", "a@example.com\x1b"]

    assert all(map(wrong_address, wrong))
    assert not any(map(wrong_address, ["admin@example.com", "root@mx1"]))
