"""The transports' screen and its plain twin: a folder is changed, and what is shown follows."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

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
from tests.tui.mailrooms import Mailroom
from tests.tui.spools import Clock, a_console, disk_place, make_spool, some_tasks, until
from tests.tui.test_cli import Run, spooldeck
from tui import keys, present
from tui.app import Console
from tui.present import Line
from tui.screens.face import Target
from tui.screens.failures import FailuresScreen
from tui.screens.log import LogScreen
from tui.screens.transports import TransportsScreen
from tui.views import beside
from tui.views import transports as view
from tui.widgets.lines import Lines, LongText
from tui.widgets.log_lines import LogLines
from tui.widgets.picker import Picker

__all__ = ["spooldeck"]

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

    def console(self, *, desk: bool = False, **fields: object) -> Console:
        """The console on it; with `desk` it knows by which ways mail goes there."""
        place = self.place._replace(mail=self.room.desk()) if desk else self.place
        return a_console(place, clock=self.clock, **fields)


@pytest.fixture
def mail(tmp_path: Path) -> Mail:
    """Postfix sends; curl fails."""
    made = Mail(tmp_path)
    made.say(attempt(300), sent(300), attempt(20), sent(20))
    made.say(attempt(200, "curl"), given_up(199, "connect_timeout mx7.example.net 25", "curl"))
    return made


def text_of(lines: list[Line] | tuple[Line, ...]) -> str:
    """Lines as one text."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


async def opened(pilot: Pilot[None]) -> TransportsScreen:
    """The transports' screen, once it has something to show."""
    console = pilot.app
    assert isinstance(console, Console)
    await until(pilot, lambda: console.lives[0].looked)
    console.goto(Target(keys.TRANSPORTS))
    await until(pilot, lambda: isinstance(console.screen, TransportsScreen))
    screen = console.screen
    assert isinstance(screen, TransportsScreen)
    await until(pilot, lambda: screen.query(LongText) and screen.query_one(LongText).lines)
    return screen


def rows(screen: TransportsScreen) -> str:
    """The rows that can be chosen."""
    return text_of([row.line for row in screen.query_one(Picker).rows])


def below(screen: TransportsScreen) -> str:
    """What is said of the one under the cursor."""
    return text_of(screen.query_one(LongText).lines)


async def test_each_transport_is_a_row_and_the_one_under_the_cursor_is_told(mail: Mail) -> None:
    """Right after the start the windows are there, from the log; the cursor decides of whom."""
    mail.count({"postfix": (120, 118, 2), "sendmail": (0, 0, 0)})
    async with mail.console().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)

        assert [row.key for row in screen.query_one(Picker).rows] == ["curl", "postfix", "sendmail"]
        assert "curl: failing, 100% failed in 10m" in below(screen)
        assert "      1 100%  ################## connect_timeout <host> #" in below(screen)

        await pilot.press("j")
        await until(pilot, lambda: "postfix: ok" in below(screen))
        assert " 10m         2       2       0     0%    0.2  mail.log" in below(screen)
        assert " all       120     118       2" in below(screen)
        assert "last sent    09:39:40Z (just now)" in below(screen)

        assert screen.query_one("#word", Lines).lines == (
            present.cut(((" 3 transports, 1 failing: curl", "bad"),), 80),
        )


async def test_the_screen_changes_when_a_file_does(mail: Mail) -> None:
    """A mail that is sent heals; counters that begin again and a log that rotates lose nothing."""
    async with mail.console().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert "! curl           failing        1      0      1  100%" in rows(screen)

        mail.log.rename(mail.log.with_suffix(".log.1"))
        mail.say(*(attempt(0, "curl") + sent(0, "curl") for _ in range(2)))
        await until(
            pilot, lambda: "  curl           ok             3      2      1   33%" in rows(screen)
        )

        mail.say(attempt(0, "msmtp"))
        await until(pilot, lambda: "msmtp" in rows(screen))

        mail.count({"exim": (9, 9, 0)}, ago=1)
        await until(pilot, lambda: "exim" in rows(screen))
        mail.count({"exim": (1, 0, 1)})
        await until(pilot, lambda: "exim           idle           0" in rows(screen))
        await pilot.press("G")
        await until(pilot, lambda: " all         1       0       1" in below(screen))


async def test_the_cursor_stays_with_its_transport(mail: Mail) -> None:
    """Rows that come above or below move nobody's cursor."""
    async with mail.console().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("j")
        await until(pilot, lambda: screen.query_one(Picker).key == "postfix")

        mail.say(attempt(0, "alpha"), given_up(0, "550 no", "alpha"))
        await until(pilot, lambda: "alpha" in rows(screen))

        assert [row.key for row in screen.query_one(Picker).rows] == ["curl", "alpha", "postfix"]
        assert screen.query_one(Picker).key == "postfix"


async def test_what_is_below_is_reached_by_pages(mail: Mail) -> None:
    """A detail that is longer than its pane is said to be, and PgDn shows the rest of it."""
    mail.say(*(attempt(5) + given_up(5, f"{c * 9} is down") for c in "abcdefghij"))
    async with mail.console().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        word, text = screen.query_one("#word", Lines), screen.query_one(LongText)
        await until(pilot, lambda: "PgDn" in text_of(word.lines))
        before = screen.query_one(Picker).key

        await pilot.press("pagedown", "pagedown")
        await until(pilot, lambda: "PgDn" not in text_of(word.lines))

        assert text.below == 0
        assert screen.query_one(Picker).key == before


async def test_each_says_whether_it_is_used_and_why_not(mail: Mail) -> None:
    """Transports never used have a row, too; a suspended one keeps its figures, and its detail says
    by whom, and why.
    """
    halted = ("postfix", NOW - 7200, "ben", f"relay {RED} moves")
    await asyncio.to_thread(mail.room.suspensions.suspend, *halted)
    async with mail.console(desk=True).run_test(size=(80, 40)) as pilot:
        screen = await opened(pilot)
        word = screen.query_one("#word", Lines)
        await until(pilot, lambda: "suspended" in rows(screen))

        listed = {row.split()[0]: row for row in rows(screen).replace("!", " ").splitlines()}
        assert [*listed] == ["curl", "postfix", "sendmail", "exim", "msmtp", "mailx"]
        assert listed["curl"].split()[1:3] == ["now", "failing"]
        assert listed["postfix"].split()[1:6] == ["-", "suspended", "2", "2", "0"]
        assert listed["sendmail"].split()[1:4] == ["absent", "idle", "0"]
        assert "mail goes by curl; 6 transports, 1 failing: curl" in text_of(word.lines)
        assert "mail goes by it now" in below(screen)
        await pilot.press("j")
        said = "suspended by ben since 07:40:00Z (2h00m ago): relay \ufffd[31mred moves"
        await until(pilot, lambda: said in below(screen))
        await pilot.press("j")
        await until(pilot, lambda: "not used: no sendmail is installed" in below(screen))


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
    """No transport that could be used, or one that is forced: both are told, not guessed."""
    mail.room.forced, mail.room.here = forced, here
    async with mail.console(desk=True).run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)

        await until(pilot, lambda: why in below(screen))
        assert said in text_of(screen.query_one("#word", Lines).lines)


async def test_what_lies_in_the_spool_is_told(mail: Mail) -> None:
    """How many mails, and for how long the oldest; or why that is not known."""
    async with mail.console(desk=True).run_test(size=(80, 40)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "mail spool empty" in below(screen))

        mail.room.heap = Heap(3000, 7200)
        await until(pilot, lambda: "mail spool 3,000 mails, the oldest for 2h00m" in below(screen))

        mail.room.fails = "spool: Permission denied"
        await until(pilot, lambda: "mail spool ? spool: Permission denied" in below(screen))


async def test_what_is_not_known_of_the_ways_is_told(mail: Mail) -> None:
    """A list of suspensions that cannot be read suspends nothing by guess: it is `?`, and why."""
    mail.room.fails = "suspended: Permission denied"
    async with mail.console(desk=True, start_armed=True).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        word = screen.query_one("#word", Lines)

        await until(pilot, lambda: "not known: suspended: Permission" in text_of(word.lines))
        assert " ?      failing" in rows(screen)
        await pilot.press("S")
        await until(pilot, lambda: "by what mail goes is not known" in text_of(word.lines))


async def test_the_last_errors_are_told_one_by_one(mail: Mail) -> None:
    """The log has their words, the delivery records those of the server; each is told once."""
    words = "550 5.1.1 <x> user \u202e unknown " + "and more " * 15
    mail.say(attempt(90, "curl"), missed(88, "connect_refused"), attempt(80, "curl"))
    mail.say(missed(70, "rejected_550"), given_up(70, "rejected_550", "curl"))
    mail.record(70, "curl", f"rejected_550: {words}")
    mail.record(70, "curl", "after_1_retries", "spooled")
    mail.record(9000, "curl", "421 4.7.0 try later")
    async with mail.console(desk=True).run_test(size=(100, 50)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "its last errors one by one" in below(screen))
        assert "09:38:50Z  rejected_550" in below(screen)

        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, FailuresScreen))
        failures = pilot.app.screen
        await until(pilot, lambda: len(failures.query_one(Picker).rows) == 4)

        listed = [row.line for row in failures.query_one(Picker).rows]
        assert [text_of([line]).split()[1] for line in listed] == [
            *("rejected_550", "connect_refused", "connect_timeout", "421"),
        ]
        told = " ".join(text_of(failures.query_one(LongText).lines).split())
        assert told.count("and more") == 15
        assert told.isprintable()


async def test_enter_leads_from_an_error_to_the_log_at_that_moment(mail: Mail) -> None:
    """The cursor is on the line of that very error, also where others were written in the same
    second; the error is on screen, and Esc leads back.
    """
    lines = [sent(3000 - n) for n in range(600)]
    mail.log.write_text("".join(lines))
    mail.say(attempt(199, "curl"), sent(199), given_up(199, "421 too busy", "postfix"), sent(199))
    mail.say(given_up(199, "connect_timeout mx7", "curl"), sent(199), sent(5))
    async with mail.console(desk=True).run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("g", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, FailuresScreen))
        failures = pilot.app.screen
        await until(pilot, lambda: failures.query_one(Picker).rows)

        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, LogScreen))
        log = pilot.app.screen
        assert isinstance(log, LogScreen)
        await until(pilot, lambda: "last_error=connect_timeout mx7" in cursor_of(log))

        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is failures)


async def test_without_mail_it_says_why(tmp_path: Path) -> None:
    """Where there is neither metrics nor log, that is what is shown, not zeros."""
    mail = Mail(tmp_path)
    async with mail.console().run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "mail.prom  ?" in below(screen))

        assert "no transport is named in mail.prom" in below(screen)
        assert "mail.log   ? No such file or directory" in below(screen)


@pytest.mark.parametrize("size", [(40, 12), (60, 15), (80, 24), (120, 40), (200, 60)])
async def test_it_fits_every_screen(mail: Mail, size: tuple[int, int]) -> None:
    """Whatever the size, no line is longer than the screen, and rows and detail both have room."""
    mail.say(*(attempt(5, f"{RED}{n}") + given_up(5, RED * 40, f"{RED}{n}") for n in range(80)))
    async with mail.console().run_test(size=size) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: len(screen.query_one(Picker).rows) > 20)
        await pilot.pause()

        assert screen.query_one(Picker).size.height >= 2
        assert screen.query_one(LongText).size.height >= size[1] // 4
        lines = [
            *screen.query_one(LongText).lines,
            *(r.line for r in screen.query_one(Picker).rows),
        ]
        assert max(map(present.width_of, lines)) <= size[0]
        assert text_of(lines).replace("\n", "").isprintable()


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

    assert text_of(lines).splitlines()[1:] == [
        " 1m    ?  mail.log: Permission denied; mail.prom: 20s is known only",
        " 10m   ?  mail.log: Permission denied; mail.prom: 20s is known only",
        " 1h      1,204   1,200       4     0%   20.1",
    ]


def test_mail_that_found_no_transport_is_no_transport() -> None:
    """It has a row, which says what it is, but no figures of a transport, and is not counted."""
    nobody = a_way(None, Tally(0, 0, 1), Tally(0, 0, 3))._replace(name=NOBODY, settled=True)
    curl = a_way(*[Tally(2, 2, 0)] * 3)

    row = text_of([view.row(nobody, 0.5, NOW, 120)])

    assert row.strip() == "none           mail that found no transport: 1 in 10m, 3 in 1h"
    said = text_of([view.said(Sending(transports=(curl, nobody)), 0.5)])
    assert said.strip() == "1 transport, none failing"


def test_suspended_wins_over_failing_and_the_figures_stay() -> None:
    """In the table, on the overview and in the detail; so it is seen whether it still sends."""
    stopped = {"curl": Stopped("curl", NOW, "ana", "the relay moves")}
    routes = Routes(("curl",), "", {}, stopped, "", "")
    found = Sending((a_way(*[Tally(20, 1, 19)] * 3)._replace(name="curl"),))

    (curl,) = settled(found, routes).transports

    table = text_of([view.row(curl, 0.5, NOW, 80, routes)]).split()
    assert table[:6] == ["curl", "-", "suspended", "20", "1", "19"]
    panel = beside.transports(Sending((curl,)), 0.5, NOW, 60, 4)
    assert "curl          suspended     20     19" in text_of(panel)
    first = text_of(view.detail(curl, 0.5, NOW, 100, routes)).splitlines()[0]
    assert "curl: suspended, 95% failed in 10m" in first
    assert "none failing" in text_of([view.said(Sending((curl,)), 0.5)])


@pytest.mark.parametrize("width", range(20, 161, 7))
def test_no_number_is_cut(width: int) -> None:
    """At no width does a part of a number stand for the number."""
    tally = Tally(31_753, 31_753, 31_753)
    row = text_of([view.row(a_way(tally, tally, tally), 0.5, NOW, width)])

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


def test_the_plain_twin_says_by_which_way_mail_goes(tmp_path: Path, spooldeck: Run) -> None:
    """In words and in JSON: nothing here is forced but `none`, and postfix is suspended."""
    mail = Mail(tmp_path / "spool")
    mail.count({"postfix": (7, 7, 0)})
    desk = tmp_path / "spool" / "queue" / ".spooldeck"
    desk.mkdir()
    Suspensions(str(desk / "suspended")).suspend("postfix", NOW - 60, "ben", RED)

    plain = spooldeck("transports", str(tmp_path / "spool"))
    told = json.loads(spooldeck("transports", str(tmp_path / "spool"), "--json").stdout)

    assert "suspended by ben since" in plain.stdout
    assert "): \ufffd[31mred" in plain.stdout
    assert "\x1b" not in plain.stdout
    ways = {way["transport"]: way for way in told["transports"]}
    assert told["selected"] == ""
    assert ways["postfix"]["used"] == "suspended"
    assert ways["postfix"]["suspended"] == {"since": NOW - 60, "who": "ben", "why": RED}
    assert (ways["exim"]["used"], ways["exim"]["suspended"]) == ("barred", None)


@pytest.mark.parametrize("since", ["9" * 400, "NaN", "1e300"], ids=["digits", "nan", "huge"])
def test_the_plain_twin_begins_with_unreadable_suspensions(
    tmp_path: Path, spooldeck: Run, since: str
) -> None:
    """The first line says that nothing is known of what is suspended; the exit code is 1."""
    Mail(tmp_path / "spool")
    desk = tmp_path / "spool" / "queue" / ".spooldeck"
    desk.mkdir()
    entry = f'{{"postfix": {{"since": {since}, "who": "ben", "why": ""}}}}'
    (desk / "suspended").write_text(entry)

    plain = spooldeck("transports", str(tmp_path / "spool"))

    assert plain.returncode == 1
    assert plain.stdout.startswith(" by what mail goes is not known:")


def test_the_plain_twin_of_a_healthy_place_ends_well(tmp_path: Path, spooldeck: Run) -> None:
    """Nothing fails: 0; and what is not known is null, with its reason."""
    mail = Mail(tmp_path / "spool")
    mail.count({"postfix": (7, 7, 0)})

    told = spooldeck("transports", str(tmp_path / "spool"), "--json")

    assert told.returncode == 0, told.stderr
    way = next(w for w in json.loads(told.stdout)["transports"] if w["transport"] == "postfix")
    assert "mail.log: No such file or directory" in way["windows"]["10m"]["unknown"]
