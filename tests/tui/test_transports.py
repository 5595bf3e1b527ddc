"""The transports' screen and its plain twin: a folder is changed, and what is shown follows."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.events import NOBODY
from engine.mail.suspended import Suspensions
from engine.transports import (
    Heap,
    Routes,
    Sending,
    Stopped,
    Tally,
    Transport,
    Window,
    settled,
)
from tests.engine.test_transports import attempt, given_up, missed, prom, sent
from tests.tui.desks import Desk, a_desk, words
from tests.tui.mailrooms import Mailroom
from tests.tui.queues import Run
from tests.tui.spools import Clock, disk_place, make_spool, some_tasks
from tui import keys
from tui.screens.face import Target
from tui.screens.failures import FailuresScreen
from tui.screens.log import LogScreen
from tui.screens.transports import TransportsScreen
from tui.views import beside
from tui.views import transports as view
from tui.widgets.lines import LongText
from tui.widgets.log_lines import LogLines

NOW = 1_795_167_600.0
RED = "\x1b[31mred"


class Mail:
    """A spool that sends mail."""

    def __init__(self, root: Path) -> None:
        make_spool(root, some_tasks(4, 0, 0))
        self.log, self.prom = root / "log" / "mail.log", root / "metrics" / "mail.prom"
        self.prom.unlink()
        self.clock = Clock(NOW)
        place = disk_place(root, clock=self.clock)
        self.room = Mailroom(root, self.clock)
        self.place = place._replace(logs=(*place.logs, str(self.log)))

    def say(self, *lines: str) -> None:
        """Add lines to the log."""
        with self.log.open("a") as log:
            log.writelines(lines)

    def count(self, figures: dict[str, tuple[int, int, int]], ago: float = 0) -> None:
        """Put other metrics in place of those before."""
        new = self.prom.with_suffix(".tmp")
        new.write_text(prom(figures))
        os.utime(new, (NOW - ago, NOW - ago))
        new.rename(self.prom)

    def record(self, ago: float, transport: str, reason: str, result: str = "failed") -> None:
        """Add a delivery record."""
        ts = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW - ago))
        said = {"ts": ts, "transport": transport, "recipient": "admin@\u2026"}
        with self.room.records.open("a") as file:
            file.write(json.dumps({**said, "result": result, "reason": reason}) + "\n")

    @asynccontextmanager
    async def screen(
        self, size: tuple[int, int] = (80, 24), *, routes: bool = True
    ) -> AsyncIterator[Desk]:
        """The transports' screen; with `routes` it is known by which transports mail goes."""
        place = self.place._replace(mail=self.room.desk()) if routes else self.place
        async with a_desk(place, size=size, clock=self.clock) as desk:
            await desk.until(lambda: desk.console.lives[0].looked)
            desk.console.goto(Target(keys.TRANSPORTS))
            screen = await desk.opens(TransportsScreen)
            await desk.until(lambda: screen.query(LongText) and screen.query_one(LongText).lines)
            yield desk


@pytest.fixture
def mail(tmp_path: Path) -> Mail:
    """Postfix sends; curl fails."""
    made = Mail(tmp_path)
    made.say(attempt(300), sent(300), attempt(20), sent(20))
    made.say(attempt(200, "curl"), given_up(199, "connect_timeout mx7.example.net 25", "curl"))
    return made


def below(desk: Desk) -> str:
    """What is said of the one under the cursor."""
    return words(desk.console.screen.query_one(LongText).lines)


async def test_each_transport_is_a_row_with_a_detail(mail: Mail) -> None:
    """Right after the start the windows are there, from the log; the cursor decides of which one,
    and stays with it when rows come above or below.
    """
    mail.count({"postfix": (120, 118, 2), "sendmail": (0, 0, 0)})
    async with mail.screen(routes=False) as desk:
        assert [row.key for row in desk.picker.rows] == ["curl", "postfix", "sendmail"]
        assert "curl: failing, 100% failed in 10m" in below(desk)
        assert "      1 100%  ################## connect_timeout <host> #" in below(desk)
        assert desk.line("word").strip() == "3 transports, 1 failing: curl"

        await desk.press("j")
        await desk.until(lambda: "postfix: ok" in below(desk))
        assert " 10m         2       2       0     0%    0.2  mail.log" in below(desk)
        assert " all       120     118       2" in below(desk)
        assert "last sent    09:39:40Z (just now)" in below(desk)

        mail.say(attempt(0, "alpha"), given_up(0, "550 no", "alpha"))
        await desk.until(lambda: "alpha" in desk.rows)
        assert [row.key for row in desk.picker.rows] == ["curl", "alpha", "postfix", "sendmail"]
        assert desk.picker.key == "postfix"


async def test_the_screen_changes_when_a_file_does(mail: Mail) -> None:
    """A mail that is sent heals; counters that begin again and a log that rotates lose nothing."""
    async with mail.screen(routes=False) as desk:
        assert "! curl           failing        1      0      1  100%" in desk.rows

        mail.log.rename(mail.log.with_suffix(".log.1"))
        mail.say(*(attempt(0, "curl") + sent(0, "curl") for _ in range(2)), attempt(0, "msmtp"))
        await desk.until(
            lambda: "  curl           ok             3      2      1   33%" in desk.rows
        )
        await desk.until(lambda: "msmtp" in desk.rows)

        mail.count({"exim": (9, 9, 0)}, ago=1)
        await desk.until(lambda: "exim" in desk.rows)
        mail.count({"exim": (1, 0, 1)})
        await desk.until(lambda: "exim           idle           0" in desk.rows)
        await desk.press("G")
        await desk.until(lambda: " all         1       0       1" in below(desk))


async def test_what_is_below_is_reached_by_pages(mail: Mail) -> None:
    """A detail that is longer than its pane is said to be, and PgDn shows the rest of it."""
    mail.say(*(attempt(5) + given_up(5, f"{c * 9} is down") for c in "abcdefghij"))
    async with mail.screen(routes=False) as desk:
        await desk.until(lambda: "PgDn" in desk.line("word"))
        before = desk.picker.key

        await desk.press("pagedown", "pagedown")
        await desk.until(lambda: "PgDn" not in desk.line("word"))
        assert desk.console.screen.query_one(LongText).below == 0
        assert desk.picker.key == before


async def test_each_says_whether_it_is_used_and_why_not(mail: Mail) -> None:
    """Transports never used have a row, too; a suspended one keeps its figures, and its detail says
    by whom, and why. The spool has so many mails, or why that is not known.
    """
    halted = ("postfix", NOW - 7200, "ben", f"relay {RED} moves")
    await asyncio.to_thread(mail.room.suspensions.suspend, *halted)
    async with mail.screen((80, 40)) as desk:
        await desk.until(lambda: "suspended" in desk.rows)
        listed = {row.split()[0]: row for row in desk.rows.replace("!", " ").splitlines()}
        assert [*listed] == ["curl", "postfix", "sendmail", "exim", "msmtp", "mailx"]
        assert listed["curl"].split()[1:3] == ["now", "failing"]
        assert listed["postfix"].split()[1:6] == ["-", "suspended", "2", "2", "0"]
        assert listed["sendmail"].split()[1:4] == ["absent", "idle", "0"]
        assert "mail goes by curl; 6 transports, 1 failing: curl" in desk.line("word")
        assert "mail goes by it now" in below(desk)
        await desk.press("j")
        said = "suspended by ben since 07:40:00Z (2h00m ago): relay \ufffd[31mred moves"
        await desk.until(lambda: said in below(desk))
        await desk.press("j")
        await desk.until(lambda: "not used: no sendmail is installed" in below(desk))

        await desk.until(lambda: "mail spool empty" in below(desk))
        mail.room.heap = Heap(3000, 7200)
        await desk.until(lambda: "mail spool 3,000 mails, the oldest for 2h00m" in below(desk))
        mail.room.fails = "spool: Permission denied"
        await desk.until(lambda: "mail spool ? spool: Permission denied" in below(desk))


async def test_unreadable_suspensions_are_not_guessed(mail: Mail) -> None:
    """A list of suspensions that cannot be read suspends nothing by guess: it is `?`, and why."""
    mail.room.fails = "suspended: Permission denied"
    async with mail.screen() as desk:
        await desk.until(lambda: "not known: suspended: Permission" in desk.line("word"))
        assert " ?      failing" in desk.rows
        await desk.press("S")
        await desk.until(lambda: "by what mail goes is not known" in desk.line("word"))


@pytest.mark.parametrize(
    ("forced", "here", "said", "why"),
    [
        ("", (), "no mail is sent: no transport is set up", "not used: no curl is installed"),
        ("none", (), "no mail is sent: the method is none", "the configuration sends no mail"),
        ("exim", (), "no mail is sent: exim is forced and cannot be", "not used: exim is forced"),
        ("", ("curl", "mailx"), "mail goes by curl;", "mail goes by it now"),
        ("", ("postfix", "curl"), "mail goes by postfix;", "not used now: postfix comes first"),
    ],
)
async def test_it_is_said_why_mail_goes_by_none(
    mail: Mail, forced: str, here: tuple[str, ...], said: str, why: str
) -> None:
    """No transport that could be used, or one that is forced: both are said, not guessed."""
    mail.room.forced, mail.room.here = forced, here
    async with mail.screen((120, 40)) as desk:
        await desk.until(lambda: why in below(desk))
        assert said in desk.line("word")


async def test_the_last_errors_lead_to_their_lines_in_the_log(mail: Mail) -> None:
    """The log has their words, the delivery records those of the server; each is listed once. Enter
    opens the log with the cursor on the line of that very error, also where others were written in
    the same second; Esc leads back.
    """
    server = "550 5.1.1 <x> user \u202e unknown " + "and more " * 15
    mail.log.write_text("".join(sent(3000 - n) for n in range(600)))
    mail.say(attempt(199, "curl"), sent(199), given_up(199, "421 too busy", "postfix"), sent(199))
    mail.say(given_up(199, "connect_timeout mx7", "curl"), sent(199), sent(95))
    mail.say(attempt(90, "curl"), missed(88, "connect_refused"), attempt(80, "curl"))
    mail.say(missed(70, "rejected_550"), given_up(70, "rejected_550", "curl"), sent(5))
    mail.record(70, "curl", f"rejected_550: {server}")
    mail.record(70, "curl", "after_1_retries", "spooled")
    mail.record(9000, "curl", "421 4.7.0 try later")
    async with mail.screen((100, 50)) as desk:
        await desk.until(lambda: "its last errors one by one" in below(desk))
        assert "09:38:50Z  rejected_550" in below(desk)
        failures = await desk.opens(FailuresScreen, "enter")
        await desk.until(lambda: len(desk.picker.rows) == 4)
        listed = [words([row.line]).split()[1] for row in desk.picker.rows]
        assert listed == ["rejected_550", "connect_refused", "connect_timeout", "421"]
        told = " ".join(below(desk).split())
        assert told.count("and more") == 15
        assert told.isprintable()

        await desk.press("j", "j")
        log = await desk.opens(LogScreen, "enter")
        await desk.until(lambda: "last_error=connect_timeout mx7" in cursor_of(log))
        await desk.press("escape")
        await desk.until(lambda: desk.console.screen is failures)


async def test_without_mail_it_says_why(tmp_path: Path) -> None:
    """Where there is neither metrics nor log, that is what is shown, not zeros."""
    async with Mail(tmp_path).screen(routes=False) as desk:
        await desk.until(lambda: "mail.prom  ?" in below(desk))

        assert "no transport is named in mail.prom" in below(desk)
        assert "mail.log   ? No such file or directory" in below(desk)


async def test_hostile_rows_and_detail_both_have_room(mail: Mail) -> None:
    """With many transports of hostile names rows and detail share each size, inert."""
    mail.say(*(attempt(5, f"{RED}{n}") + given_up(5, RED * 40, f"{RED}{n}") for n in range(80)))
    async with mail.screen((200, 60), routes=False) as desk:
        await desk.until(lambda: len(desk.picker.rows) > 20)
        for size in ((200, 60), (120, 40), (80, 24), (60, 15), (40, 12)):
            await desk.pilot.resize_terminal(*size)
            text = desk.console.screen.query_one(LongText)
            lines = [*text.lines, *(row.line for row in desk.picker.rows)]
            await desk.until(lambda: desk.picker.size.width == desk.console.size.width)
            assert desk.picker.size.height >= 2
            assert text.size.height >= size[1] // 4
            assert words(lines).replace("\n", "").isprintable()


def cursor_of(log: LogScreen) -> str:
    """The line under the cursor of the log."""
    here = log.query_one(LogLines).here
    return "" if here is None else here.line.text


def a_way(*tallies: Tally | None) -> Transport:
    """A transport that did so in each window."""
    shapes = (("1m", 60.0), ("10m", 600.0), ("1h", 3600.0))
    why = "mail.log: Permission denied; mail.prom: 20s is known only"
    known = [
        Window(name, seconds, tally, reason="" if tally else why)
        for (name, seconds), tally in zip(shapes, tallies, strict=True)
    ]
    return Transport("curl", None, tuple(known))


def test_what_is_not_known_has_its_reason() -> None:
    """Where no source tells, there is a question mark and why, not a zero."""
    lines = view.windows(a_way(None, None, Tally(1204, 1200, 4)), 80)

    assert words(lines).splitlines()[1:] == [
        " 1m    ?  mail.log: Permission denied; mail.prom: 20s is known only",
        " 10m   ?  mail.log: Permission denied; mail.prom: 20s is known only",
        " 1h      1,204   1,200       4     0%   20.1",
    ]


def test_mail_that_found_no_transport_is_no_transport() -> None:
    """It has a row, which says what it is, but no figures of a transport, and is not counted."""
    nobody = a_way(None, Tally(0, 0, 1), Tally(0, 0, 3))._replace(name=NOBODY, settled=True)
    curl = a_way(*[Tally(2, 2, 0)] * 3)

    row = words([view.row(nobody, 0.5, NOW, 120)])

    assert row.strip() == "none           mail that found no transport: 1 in 10m, 3 in 1h"
    said = words([view.said(Sending(transports=(curl, nobody)), 0.5)])
    assert said.strip() == "1 transport, none failing"


def test_suspended_wins_over_failing_and_the_figures_stay() -> None:
    """In the table, on the overview and in the detail; so it is seen whether it still sends."""
    stopped = {"curl": Stopped("curl", NOW, "ana", "the relay moves")}
    routes = Routes(("curl",), "", {}, stopped, "", "")
    found = Sending((a_way(*[Tally(20, 1, 19)] * 3)._replace(name="curl"),))

    (curl,) = settled(found, routes).transports

    table = words([view.row(curl, 0.5, NOW, 80, routes)]).split()
    assert table[:6] == ["curl", "-", "suspended", "20", "1", "19"]
    panel = beside.transports(Sending((curl,)), 0.5, NOW, 60, 4)
    assert "curl          suspended     20     19" in words(panel)
    first = words(view.detail(curl, 0.5, NOW, 100, routes)).splitlines()[0]
    assert "curl: suspended, 95% failed in 10m" in first
    assert "none failing" in words([view.said(Sending((curl,)), 0.5)])


def test_no_number_is_cut() -> None:
    """At no width does a part of a number stand for the number."""
    tally = Tally(31_753, 31_753, 31_753)
    for width in range(20, 161, 7):
        row = words([view.row(a_way(tally, tally, tally), 0.5, NOW, width)])

        assert row.count("31,753") == row.count("31,")


def test_the_plain_twin_prints_the_same(tmp_path: Path, spooldeck: Run) -> None:
    """`spooldeck transports` prints the screen's lines, safely, and ends with 1 where one fails."""
    mail = Mail(tmp_path / "spool")
    shift = NOW - time.time()
    mail.say(attempt(shift + 50, RED), given_up(shift + 49, "550 5.1.1 user unknown", RED))
    mail.count({RED: (7, 5, 2)})

    plain = spooldeck("transports", str(tmp_path / "spool"))
    told = spooldeck("transports", str(tmp_path / "spool"), "--json")

    assert (plain.returncode, told.returncode) == (1, 1), plain.stderr
    assert "\ufffd[31mred: failing, 100% failed in 10m" in plain.stdout
    assert "\x1b" not in plain.stdout + told.stdout
    ways = json.loads(told.stdout)["transports"]
    way = next(way for way in ways if way["transport"] == RED)
    assert {other["used"] for other in ways if other != way} == {"barred"}
    assert (way["transport"], way["state"], way["used"]) == (RED, "failing", "-")
    assert way["totals"] == {"attempts": 7, "success": 5, "failures": 2}
    assert way["windows"]["1h"]["failed_share"] == 1.0
    assert way["errors"][0]["pattern"] == "550 5.1.1 user unknown"


def test_the_plain_twin_says_by_which_transport_mail_goes(tmp_path: Path, spooldeck: Run) -> None:
    """In words and in JSON: nothing here is forced but `none`, and postfix is suspended. Nothing
    fails: 0; and what is not known is null, with its reason.
    """
    mail = Mail(tmp_path / "spool")
    mail.count({"postfix": (7, 7, 0)})
    desk = tmp_path / "spool" / "queue" / ".spooldeck"
    desk.mkdir()
    Suspensions(str(desk / "suspended")).suspend("postfix", NOW - 60, "ben", RED)

    plain = spooldeck("transports", str(tmp_path / "spool"))
    ended = spooldeck("transports", str(tmp_path / "spool"), "--json")

    assert (plain.returncode, ended.returncode) == (0, 0), plain.stderr
    assert "suspended by ben since" in plain.stdout
    assert "): \ufffd[31mred" in plain.stdout
    assert "\x1b" not in plain.stdout
    told = json.loads(ended.stdout)
    ways = {way["transport"]: way for way in told["transports"]}
    assert told["selected"] == ""
    assert ways["postfix"]["used"] == "suspended"
    assert ways["postfix"]["suspended"] == {"since": NOW - 60, "who": "ben", "why": RED}
    assert (ways["exim"]["used"], ways["exim"]["suspended"]) == ("barred", None)
    unknown = ways["postfix"]["windows"]["10m"]["unknown"]
    assert "mail.log: No such file or directory" in unknown


def test_the_plain_twin_begins_with_unreadable_suspensions(tmp_path: Path, spooldeck: Run) -> None:
    """The first line says that nothing is known of what is suspended; the exit code is 1."""
    Mail(tmp_path / "spool")
    desk = tmp_path / "spool" / "queue" / ".spooldeck"
    desk.mkdir()
    for since in ("9" * 400, "NaN", "1e300"):
        entry = f'{{"postfix": {{"since": {since}, "who": "ben", "why": ""}}}}'
        (desk / "suspended").write_text(entry)

        plain = spooldeck("transports", str(tmp_path / "spool"))

        assert plain.returncode == 1
        assert plain.stdout.startswith(" by what mail goes is not known:")
