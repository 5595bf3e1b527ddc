"""S on the transports' screen: nothing is sent by one of them any more, and by it again."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.transports import Routes, Stopped
from tests.tui.mailrooms import Mailroom
from tests.tui.spools import NOW, Clock, a_console, a_task, disk_place, make_spool, until
from tests.tui.test_transports import below, opened, rows, text_of
from tui import keys
from tui.app import Console
from tui.screens.face import Target
from tui.screens.overview import OverviewScreen
from tui.screens.suspend import SuspendScreen
from tui.screens.transports import TransportsScreen
from tui.views import suspending as view
from tui.widgets.lines import Lines, LongText

MAILS = 3


class Post:
    """A spool with three mails that wait, and its console."""

    def __init__(self, root: Path) -> None:
        make_spool(root, [a_task(number, kind="mail_send") for number in range(MAILS)])
        self.clock = Clock()
        self.room = Mailroom(root, self.clock)
        self.root = root

    def console(self, **fields: object) -> Console:
        """Armed, unless told otherwise."""
        place = disk_place(self.root, "here", self.clock)
        place = place._replace(mail=self.room.desk(), command=("spooldeck", "--root", "/q"))
        return a_console(place, clock=self.clock, **{"start_armed": True, **fields})

    async def halt(self, name: str, why: str) -> None:
        """Somebody else suspends one."""
        await asyncio.to_thread(self.room.suspensions.suspend, name, NOW, "ben", why)

    @property
    def suspended(self) -> dict[str, str]:
        """What is suspended in truth, and why."""
        with ThreadPoolExecutor(1) as pool:  # reading a file blocks, which an event loop may not
            read = pool.submit(self.room.suspensions.read).result()
        return {name: found.why for name, found in read.items()}


@pytest.fixture
def post(tmp_path: Path) -> Post:
    """Postfix and curl are there; postfix comes first."""
    return Post(tmp_path)


def page(pilot: Pilot[None]) -> str:
    """All that the screen on top shows, without the breaks of lines."""
    lines = [line for pane in pilot.app.screen.query(Lines) for line in pane.lines]
    return " ".join(text_of(lines).split())


async def sees(pilot: Pilot[None], *words: str) -> None:
    """Wait until all of this is shown."""
    await until(pilot, lambda: all(word in page(pilot) for word in words), lambda: page(pilot))


async def planned(pilot: Pilot[None], name: str = "postfix") -> SuspendScreen:
    """The plan for a transport, as soon as it says what becomes of mail."""
    board = await opened(pilot)
    await until(pilot, lambda: name in rows(board))
    picker = board.query_one("#rows")
    picker.put_on(name)  # type: ignore[attr-defined]
    await pilot.press("S")
    await until(pilot, lambda: isinstance(pilot.app.screen, SuspendScreen))
    screen = pilot.app.screen
    assert isinstance(screen, SuspendScreen)
    await until(pilot, lambda: screen._after is not None and screen._waiting is not None)
    return screen


async def test_it_is_suspended_with_a_reason_and_resumed(post: Post) -> None:
    """The plan says who takes over; then the row says since when, by whom and why; S takes back."""
    async with post.console().run_test(size=(80, 24)) as pilot:
        await planned(pilot)
        await sees(pilot, "Mail goes by curl meanwhile", "3 tasks that send mail are pending")
        await sees(pilot, "spooldeck --root /q mail suspend postfix", "y to suspend postfix")

        await pilot.press("tab", *"relay", "space", *"moves", "enter")
        await sees(pilot, "mail suspend postfix 'relay moves'")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(pilot.app.screen, TransportsScreen))

        board = pilot.app.screen
        assert isinstance(board, TransportsScreen)
        assert post.suspended == {"postfix": "relay moves"}
        assert post.room.noted == ["suspended postfix: relay moves"]
        await sees(pilot, "postfix is suspended: mail goes by curl", "S resume")
        assert "postfix        -      suspended" in rows(board)
        await sees(pilot, "suspended by ana since 09:42:08Z (just now): relay moves")

        await planned(pilot)
        await sees(pilot, "Mail goes by it again", "by ana since", "y to resume postfix")
        await pilot.press("y")
        await sees(pilot, "postfix is resumed: mail goes by postfix", "S suspend")
        assert post.suspended == {}


async def test_without_another_mail_waits(post: Post) -> None:
    """Where none takes over, the plan says what becomes of mail, and the overview that it waits."""
    post.room.here = ("postfix",)
    async with post.console().run_test(size=(80, 24)) as pilot:
        await planned(pilot)
        await sees(pilot, "There is no other that can be used, so mail waits")
        await pilot.press("y")
        await sees(pilot, "postfix is suspended: mail waits")
        post.clock.now += 7200

        assert isinstance(pilot.app, Console)
        pilot.app.goto(Target(keys.OVERVIEW))
        await until(pilot, lambda: isinstance(pilot.app.screen, OverviewScreen))
        said = "postfix suspended by ana for 2h00m, mail waits"
        live = pilot.app.here
        await until(pilot, lambda: said in [alert.words for alert in live.alerts])


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
    """Of tasks that a configured program sends, it says that they are that program's."""
    stopped = {"postfix": Stopped("postfix", NOW, "ana")}
    before, after = Routes(("postfix",), "postfix"), Routes(("postfix",), stopped=stopped)

    lines = text_of(view.plan("postfix", before, after, delivers, None, NOW, 100))

    words = " ".join(lines.split())
    assert said in words
    assert unsaid not in words
    assert view.result("postfix", after, delivers) == result


async def test_observe_shows_the_plan_and_does_nothing(post: Post) -> None:
    """It needs ARMED like everything that writes; `!` arms, and the plan stays."""
    async with post.console(start_armed=False).run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot)
        await sees(pilot, "OBSERVE: this plan cannot be applied")
        await pilot.press("y")
        await sees(pilot, "OBSERVE: press ! first")
        assert post.suspended == {}

        await pilot.press("exclamation_mark")
        await sees(pilot, "y to suspend postfix")
        assert pilot.app.screen is screen


async def test_read_only_refuses_with_the_reason(post: Post) -> None:
    """Neither key is offered, and pressing them says why."""
    console = post.console(read_only=True, start_armed=False)
    async with console.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        assert "suspend" not in page(pilot)

        for key in ("S", "M"):
            await pilot.press("g", key)
            await sees(pilot, "read only: this console was started with --read-only")
            assert isinstance(pilot.app.screen, TransportsScreen)


async def test_a_reason_can_be_required(post: Post) -> None:
    """Where the configuration asks for one, nothing is done without."""
    async with post.console(require_reason=True).run_test(size=(80, 24)) as pilot:
        await planned(pilot)
        await pilot.press("y")
        await sees(pilot, "a reason is asked for here: Tab types it")
        assert post.suspended == {}

        await pilot.press("tab", *"why", "enter", "y")
        await until(pilot, lambda: post.suspended == {"postfix": "why"})


async def test_a_plan_that_does_not_hold_any_more_is_withdrawn(post: Post) -> None:
    """What was seen is what is acted on: when somebody suspends curl meanwhile, nothing is done."""
    async with post.console().run_test(size=(80, 24)) as pilot:
        await planned(pilot)
        await post.halt("curl", "")
        await sees(pilot, "withdrawn: the transports are not what they were")

        await pilot.press("y")

        assert [*post.suspended] == ["curl"]
        await pilot.press("escape")
        await planned(pilot)
        await sees(pilot, "There is no other that can be used")


async def test_two_at_once_one_wins(post: Post) -> None:
    """Suspended by somebody else since the last look: that one's reason stays, and it is said."""
    async with post.console().run_test(size=(80, 24)) as pilot:
        screen = await planned(pilot)
        await post.halt("postfix", "mine")
        screen.action_yes()  # before the next look at the files

        await sees(pilot, "not done: postfix was suspended meanwhile")
        assert post.suspended == {"postfix": "mine"}


async def test_what_is_none_of_ours_cannot_be_suspended(post: Post) -> None:
    """A transport that only metrics know is none that we could keep from being used."""
    async with post.console().run_test(size=(80, 24)) as pilot:
        board = await opened(pilot)
        (post.root / "metrics" / "mail.prom").write_text(
            'nftban_mail_send_attempts_total{transport="carrier-pigeon"} 1\n'
        )
        await until(pilot, lambda: "carrier-pigeon" in rows(board))
        board.query_one("#rows").put_on("carrier-pigeon")  # type: ignore[attr-defined]
        await until(pilot, lambda: "not one of ours" in below(board))

        await pilot.press("S")

        await sees(pilot, "carrier-pigeon: not one of ours")


@pytest.mark.parametrize("size", [(40, 12), (60, 15), (80, 24), (120, 40)])
async def test_the_plan_fits(post: Post, size: tuple[int, int]) -> None:
    """No line of it is longer than the screen."""
    async with post.console().run_test(size=size) as pilot:
        screen = await planned(pilot)
        await pilot.pause()

        widths = [len(text_of([line])) for line in screen.query_one(LongText).lines]
        assert max(widths) <= size[0]
        assert "y to suspend postfix" in text_of(screen.query_one("#word", Lines).lines)


async def test_one_task_is_said_as_one(tmp_path: Path) -> None:
    """What is pending is counted in words that fit its number."""
    post = Post(tmp_path)
    for extra in sorted((tmp_path / "queue" / "pending").iterdir())[1:]:
        extra.unlink()
    async with post.console().run_test(size=(80, 24)) as pilot:
        await planned(pilot)
        await sees(pilot, "1 task that sends mail is pending now")
