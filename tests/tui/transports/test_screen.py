"""The transports' screen and its command; S suspends a transport, M sends a test mail by it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.logs.log_line import LogLine
from engine.logs.task_events import NO_TRANSPORT
from engine.mail.send.suspensions import Suspensions
from engine.monitor.transport_health import (
    SHARE_MINUTES,
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    ErrorCluster,
    MailBacklog,
    MailHealth,
    MailRoutes,
    Source,
    TransportHealth,
    TransportSuspension,
    TransportUse,
    mark_explained,
)
from tests.console_operator import ConsoleOperator, an_operator, clock_of, words
from tests.console_places import Clock, a_task, disk_place, make_spool
from tests.engine.monitor.test_transport_health import attempt, given_up, missed, prom, sent
from tests.mail_transports import SAYS, PlaceTransports
from tests.nftban_queues import Run
from tests.tables import each
from tests.tui.workers_with_lock import wired
from tui.confirm.action_screen import ActionScreen
from tui.log.screen import LogScreen
from tui.log.widgets import LogLines
from tui.overview import side_panes
from tui.overview.screen import OverviewScreen
from tui.screens.dialogs import AskScreen
from tui.screens.target import Target
from tui.session.background_command import address_error
from tui.text import keys
from tui.text.lines import width_of
from tui.text.task_row import time_fields
from tui.transports import actions as suspend_view
from tui.transports import board, detail_lines
from tui.transports import transport_lines as view
from tui.transports.board import TransportBoard
from tui.transports.screen import FailuresScreen, TransportsScreen
from tui.widgets.line_widgets import Lines, LongText

NOW = 1_795_167_600.0
RED = "\x1b[31mred"


class Mail:
    """A spool that sends mail; `routes` says whether it is known by which transports."""

    def __init__(self, root: Path, *, routes: bool = True) -> None:
        make_spool(root, [a_task(number, kind="mail_send") for number in range(3)])
        self.root, self.routes, self.clock = root, routes, Clock(NOW)
        self.log, self.prom = root / "log" / "mail.log", root / "metrics" / "mail.prom"
        self.prom.unlink()
        self.room = PlaceTransports(root, self.clock)

    def failing(self) -> Mail:
        """The same after postfix has sent, and curl has failed."""
        self.say(attempt(300), sent(300), attempt(20), sent(20))
        lost = attempt(200, "curl") + given_up(199, "connect_timeout mx7.example.net 25", "curl")
        self.say(*[lost] * 5)
        return self

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
        fields = {"ts": ts, "transport": transport, "recipient": "admin@\u2026"}
        with self.room.records.open("a") as file:
            file.write(json.dumps({**fields, "result": result, "reason": reason}) + "\n")

    async def suspend(self, name: str, ago: float, why: str) -> None:
        """Suspend a transport as ben."""
        await asyncio.to_thread(self.room.suspensions.suspend, name, NOW - ago, "ben", why)

    @asynccontextmanager
    async def screen(
        self, *keys_pressed: str, on: str = "", program: str = SAYS, **fields: Any
    ) -> AsyncIterator[ConsoleOperator]:
        """The transports' screen, with the cursor `on` one of them; then keys are pressed."""
        place = disk_place(self.root, "here", self.clock)
        place = place._replace(logs=(*place.logs, str(self.log)), command=("spooldeck",))
        if self.routes:
            place = place._replace(mail=self.room.place_mail(program))
        async with an_operator(place, clock=self.clock, **fields) as operator:
            await operator.until(lambda: operator.console.sessions[0].has_readings)
            operator.console.navigator.goto(Target(keys.TRANSPORTS))
            screen = await operator.opens(TransportsScreen)
            await operator.until(lambda: screen.query(LongText) and below(operator).strip())
            if on:
                await operator.until(lambda: on in operator.rows)
                operator.picker.select_key(on)
            await operator.press(*keys_pressed)
            yield operator


@pytest.fixture
def mail(tmp_path: Path) -> Mail:
    """Postfix sends; curl fails."""
    return Mail(tmp_path).failing()


@pytest.fixture
def unrouted(tmp_path: Path) -> Mail:
    """The same, and it is not known by which transports mail goes."""
    return Mail(tmp_path, routes=False).failing()


def below(operator: ConsoleOperator) -> str:
    """The detail of the one under the cursor, in one text or in panes."""
    panes = operator.console.screen.query_one("#body").query(Lines)
    return "\n".join(words(pane.lines) for pane in panes if pane.display)


async def details(operator: ConsoleOperator, text: str) -> None:
    """Wait until the detail has this text."""
    await operator.until(lambda: text in below(operator))


def keys_of(operator: ConsoleOperator) -> list[str]:
    """The transports in the order of their rows."""
    return [str(row.key) for row in operator.picker.rows]


# ---- the screen


async def test_each_transport_is_a_row_with_a_detail(unrouted: Mail) -> None:
    """The log gives its windows at the start; the cursor decides which, and stays; PgDn scrolls."""
    unrouted.count({"postfix": (120, 118, 2), "sendmail": (0, 0, 0)})
    async with unrouted.screen() as operator:
        assert keys_of(operator) == ["curl", "postfix", "sendmail"]
        assert "state       failing, 100% of 5 attempts failed in 10m" in below(operator)
        assert "100%  connect_timeout <host> #" in below(operator)
        assert "failing: curl" in operator.text
        assert "next  Enter shows its errors; S" not in operator.line("word")  # no routes, no plan

        await operator.press("j")
        await details(operator, "state       ok")
        assert " 10m       2      2    0      0    0%    -    -   0.4  mail.log" in below(operator)
        assert " all     120    118    ?      ?" in below(operator)
        assert "last sent   09:39:40Z (20s ago)" in below(operator)

        unrouted.say(attempt(0, "alpha"), given_up(0, "550 no", "alpha"))
        await operator.until(lambda: "alpha" in operator.rows)
        assert keys_of(operator) == ["curl", "alpha", "postfix", "sendmail"]
        assert operator.picker.key == "postfix"

        unrouted.say(*(attempt(5) + given_up(5, f"{c * 9} is down") for c in "abcdefghij"))
        await operator.until(lambda: "PgDn" in operator.text)
        await operator.press("pagedown", "pagedown")
        await operator.until(lambda: "PgDn" not in operator.text)
        assert operator.console.screen.query_one(LongText).below == 0
        assert operator.picker.key == "postfix"


async def test_the_screen_changes_when_a_file_does(unrouted: Mail) -> None:
    """A mail that is sent heals; counters that begin again and a log that rotates lose nothing. The
    cursor goes with its transport when the rows are sorted again."""
    async with unrouted.screen(on="curl") as operator:
        assert " ! curl       FAILING          5     0  100%" in operator.rows
        unrouted.log.rename(unrouted.log.with_suffix(".log.1"))
        unrouted.say(*(attempt(0, "curl") + sent(0, "curl") for _ in range(6)), attempt(0, "msmtp"))
        healed = "  curl       OK              11     6   45%"
        await operator.until(lambda: healed in operator.rows and "msmtp" in operator.rows)
        assert (keys_of(operator)[0] != "curl", operator.picker.key) == (True, "curl")

        unrouted.count({"exim": (9, 9, 0)}, ago=1)
        await operator.until(lambda: "exim" in operator.rows)
        unrouted.count({"exim": (1, 0, 1)})
        await operator.until(lambda: "exim       idle             0" in operator.rows)
        await operator.press("G")
        await details(operator, " all       1      0    ?      ?")


async def test_each_says_whether_it_is_used_and_why_not(mail: Mail) -> None:
    """A suspended one keeps its figures, with who and why; the unknown is not guessed."""
    await mail.suspend("postfix", 7200, f"relay {RED} moves")
    async with mail.screen(size=(80, 40)) as operator:
        await operator.until(lambda: "SUSPENDED" in operator.rows)
        listed = {row.split()[0]: row for row in operator.rows.replace("!", " ").splitlines()}
        assert [*listed] == ["curl", "postfix", "sendmail", "exim", "msmtp", "mailx"]
        assert listed["curl"].split()[1:3] == ["FAILING", "now"]
        assert listed["postfix"].split()[1:5] == ["SUSPENDED", "2", "2", "0%"]
        assert listed["sendmail"].split()[1:3] == ["idle", "0"]
        assert "transport: curl; failing: curl" in operator.text
        assert "in use" in below(operator)
        for text in (
            "07:40:00Z (2h00m ago) by ben\n   reason      relay \ufffd[31mred moves",
            "not used: no sendmail is installed",
        ):
            await operator.press("j")
            await details(operator, text)
        await details(operator, "mail spool  empty")
        mail.room.heap = MailBacklog(3000, 7200)
        await details(operator, "mail spool  3,000 mails, oldest 2h00m")
        mail.room.fails = "spool: Permission denied"
        await details(operator, "mail spool  ? spool: Permission denied")
        await operator.sees("unknown: spool: Permission")
        assert "FAILING" in operator.rows
        await operator.press("S")
        await operator.until(lambda: "transport unknown" in operator.line("word"))


async def test_a_large_screen_shows_all_parts_of_a_transport(mail: Mail) -> None:
    """State, errors with tasks, graph with a mark and a range by z, and lines of the log."""
    mail.say(attempt(60, "curl"), given_up(59, "421 later", "curl").replace("inline", "x-7687a66e"))
    await mail.suspend("curl", 1200, "relay moves")
    async with mail.screen(size=(120, 40), on="curl") as operator:
        await operator.sees("suspended 09:20:00Z │", ", last 1h")
        assert operator.line("about").startswith("   since       09:20:00Z (20m ago) by ben")
        assert "- [SUSPENDED] -++- curl over time" in operator.text
        assert "421 later" in operator.line("latest") and "7687a66e" in operator.line("latest")
        assert "last_error=421 later" in operator.line("mentions")
        await operator.press("z")
        await operator.sees(", last 10m", "per minute")
        await operator.press("z")
        await operator.sees(", last 1h")
        await operator.press("tab", "pagedown")
        assert operator.picker.key != "curl"  # the page key moves the cursor: panes do not scroll


@each(("ago", "mark_line"), [
    (1800, f"{'':16}suspended 09:10:00Z │"),
    (3540, f"{'':7}│ suspended 08:41:00Z"),
    (7200, f"{'':6}suspended 07:40:00Z"),
])  # fmt: skip
def test_the_mark_of_a_suspension_is_at_its_time(ago: float, mark_line: str) -> None:
    """The words are where there is room; there is no mark before the range of the graph."""
    counts = (DeliveryCounts(5, 5, 0),) * 60
    transport = a_way(*[DeliveryCounts(2, 2, 0)] * 3)._replace(minutes=counts)
    routes = MailRoutes(("curl",), "", {}, {"curl": TransportSuspension("curl", NOW - ago, "ana")})
    cells = board.Shown(transport, MailHealth(), routes, limit=0.5, now=NOW, log=(), minutes=60)
    assert words(board.graph_lines(cells, 66, 8)).splitlines()[-1] == mark_line


def test_the_errors_of_a_transport_come_before_its_counts() -> None:
    """At 80 columns they were below the screen; BAD has a line that says what it counts."""
    counts = DeliveryCounts(35, 12, 23, refused=23)
    fault = ErrorCluster("F-1", "550 user unknown", 23, NOW - 90, last=NOW - 9, example="550")
    sick = a_way(*[counts] * 3)._replace(faults=(fault,), last_refused=NOW - 9, totals=counts)
    text = words(detail_lines.detail_lines(sick, MailHealth(), 0.5, NOW, 80)).splitlines()
    at = [next(n for n, line in enumerate(text) if word in line) for word in ("550 user", "OVER")]
    assert at == sorted(at)
    bad = "   BAD         23 bad addresses in 10m, last 09:39:51Z, not counted in FAILED"
    assert any(line.startswith(bad) for line in text)


@each(("log", "title", "shown"), [
    ((), "Log of curl", "no recent log lines of it"),
    ((LogLine(NOW, "INFO", "by curl", ""),), "Log of curl", "by curl"),
    ((LogLine(NOW, "INFO", "idle", ""),), "Log of spool: no line of curl", "idle"),
])  # fmt: skip
def test_a_log_that_does_not_mention_a_transport_is_shown(
    log: tuple[LogLine, ...], title: str, shown: str
) -> None:
    """The lines of the place are there instead of blank ones, and the title says so."""
    transport = a_way(*[DeliveryCounts(2, 2, 0)] * 3)
    inputs = board.Shown(
        transport, MailHealth(), None, limit=0.5, now=NOW, log=log, minutes=60, place="spool"
    )
    panel = board.panels(inputs, 200, 50)["mentions"]
    assert panel.frame.name == title and shown in words([*panel.lines])


NOT_USED = [
    ("", (), "no transport is available", "not used: no curl is installed"),
    ("none", (), "mail disabled (mail.method none)", "disabled (mail.method none)"),
    ("exim", (), "no mail sent: exim is forced but unusable", "disabled: exim is forced"),
    ("", ("postfix", "curl"), "transport: postfix", "not used: postfix comes first"),
    ("", ("curl", "mailx"), "transport: curl", "in use"),
]


async def test_the_figures_and_use_of_a_transport_are_explained(mail: Mail) -> None:
    """FAILED and FAIL% agree, 5 of 13 that ended; the details say how many addresses were bad. No
    transport that could be used, or one that is forced: both are said, not guessed."""
    mail.say(*[attempt(80, "curl") + given_up(79, "550 5.1.1 user unknown", "curl")] * 8)
    async with mail.screen(on="curl", size=(120, 40)) as operator:
        await operator.sees("BAD 8 bad addresses in 10m, last 09:38:41Z, not counted in FAILED")
        await operator.sees("10m 13 0 8 5 38%")
        (row,) = [line for line in operator.text.splitlines() if " curl " in line and "%" in line]
        assert " 5 38% " in f"{' '.join(row.split())} "
        for mail.room.forced, mail.room.installed, message, why in NOT_USED:
            await details(operator, why)
            await operator.sees(message)


async def test_the_last_errors_lead_to_their_lines_in_the_log(mail: Mail) -> None:
    """The log has their words, the delivery records those of the server; each is listed once. Enter
    opens the log with the cursor on the line of that very error, also where others were written in
    the same second; Esc leads back. An error that comes is the first row; the cursor stays."""
    server = "550 5.1.1 <x> user \u202e unknown " + "and more " * 15
    mail.log.write_text("".join(sent(3000 - n) for n in range(600)))
    mail.say(attempt(199, "curl"), sent(199), given_up(199, "421 too busy", "postfix"), sent(199))
    mail.say(given_up(199, "connect_timeout mx7", "curl"), sent(199), sent(95))
    mail.say(attempt(90, "curl"), missed(88, "connect_refused"), attempt(80, "curl"))
    mail.say(missed(70, "rejected_550"), given_up(70, "rejected_550", "curl"), sent(5))
    mail.record(70, "curl", f"rejected_550: {server}")
    mail.record(70, "curl", "after_1_retries", "spooled")
    mail.record(9000, "curl", "421 4.7.0 try later")

    def line_under_cursor(log: LogScreen) -> str:
        entry = log.query_one(LogLines).page.selected_entry
        return "" if entry is None else entry.line.text

    async with mail.screen(size=(100, 50)) as operator:
        await details(operator, "Latest errors")
        assert "09:38:50Z  rejected_550" in below(operator)
        failures = await operator.opens(FailuresScreen, "enter")
        await operator.until(lambda: len(operator.picker.rows) == 4)
        listed = [line.split()[1] for line in operator.rows.splitlines()]
        assert listed == ["rejected_550", "connect_refused", "connect_timeout", "421"]
        text = " ".join(below(operator).split())
        assert text.count("and more") == 15
        assert text.isprintable()

        await operator.press("j", "j")
        log = await operator.opens(LogScreen, "enter")
        await operator.until(lambda: "last_error=connect_timeout mx7" in line_under_cursor(log))
        await operator.press("escape")
        await operator.until(lambda: operator.console.screen is failures)
        key = operator.picker.key
        assert operator.picker.rows[2].key == key
        mail.say(given_up(4, "421 4", "curl"))
        await operator.until(lambda: "421 4" in operator.rows.splitlines()[0])
        assert (operator.picker.key, operator.picker.rows[3].key) == (key, key)


async def test_without_mail_it_says_why(tmp_path: Path) -> None:
    """Where there is neither metrics nor log, that is what is shown, not zeros. Transports without
    figures have a `?` each; the reason is in the frame and the details."""
    async with Mail(tmp_path / "none", routes=False).screen() as operator:
        for text in ("mail.prom   none yet", "no transport in mail.prom", "mail.log    none yet"):
            await details(operator, text)
    async with Mail(tmp_path / "routes").screen(on="curl") as operator:
        await operator.sees("no mail logged yet: no mail.log, no mail.prom")
        assert "; no mail logged yet" in operator.text.splitlines()[1]
        assert [line.split()[1:] for line in operator.rows.splitlines()].count(["?"]) == 5
        assert "No such file" not in operator.page


async def test_hostile_rows_and_detail_both_have_space(unrouted: Mail) -> None:
    """With many transports of hostile names rows and detail share each size, inert."""
    names = [f"{RED}{number}" for number in range(80)]
    unrouted.say(*(attempt(5, name) + given_up(5, RED * 40, name) for name in names))
    async with unrouted.screen(size=(200, 60)) as operator:
        await operator.until(lambda: len(operator.picker.rows) > 20)
        for size in ((200, 60), (120, 40), (80, 24), (60, 15), (40, 12)):
            await operator.pilot.resize_terminal(*size)
            await operator.until(
                lambda: operator.picker.outer_size.width == operator.console.size.width
            )
            text = operator.console.screen.query_one(TransportBoard if size[0] >= 120 else LongText)
            least = size[1] // 4  # the heights follow the width in a layout of their own
            await operator.until(lambda: text.size.height >= least)  # noqa: B023
            assert operator.picker.size.height >= 2
            panes = [words(pane.lines) for pane in operator.console.screen.query(Lines)]
            assert "".join([*panes, operator.rows]).replace("\n", "").isprintable()


# ---- its lines


def a_way(*tallies: DeliveryCounts | None, name: str = "curl") -> TransportHealth:
    """A transport with that tally in each window; None is not known."""
    why = "mail.log: Permission denied; mail.prom: only 20s of data"
    known = [
        CountWindow(word, seconds, tally, reason="" if tally else why)
        for (word, seconds), tally in zip(WINDOWS, tallies, strict=True)
    ]
    return TransportHealth(name, None, tuple(known))


def test_an_unknown_figure_has_its_reason_and_no_number_is_cut() -> None:
    """It is `?` and why, not zero; at no width does a part of a number mean the number."""
    lines = detail_lines.window_lines(a_way(None, None, DeliveryCounts(1204, 1200, 4)), 80)
    assert words(lines).splitlines()[1:] == [
        "   1m    ?  mail.log: Permission denied; mail.prom: only 20s of data",
        "   10m   ?  mail.log: Permission denied; mail.prom: only 20s of data",
        "   1h    1,204  1,200    0      4    0%    -    -  20.1",
    ]
    counted = a_way(None, None, DeliveryCounts(9, 7, 2))._replace(totals=DeliveryCounts(30, 20, 10))
    assert words(detail_lines.window_lines(counted, 80)).splitlines()[-2:] == [
        "   all      30     20    ?      ?     ?    -    -     -  mail.prom",
        "   all: BAD + FAILED 10, one count in mail.prom",
    ]
    wide = a_way(*[DeliveryCounts(31_753, 31_753, 31_753)] * 3)
    rows = [row_of(wide, width) for width in range(20, 161, 7)]
    assert [row.count("31,753") for row in rows] == [row.count("31,") for row in rows]


@each(("source", "failures", "bad"), [
    (Source.LOG, 5, "0"),
    (Source.METRICS, 5, "?"),
    (Source.METRICS, 0, "0"),
])  # fmt: skip
def test_metrics_do_not_know_which_addresses_were_bad(
    source: Source, failures: int, bad: str
) -> None:
    """Their count of failed attempts has both: with some, the bad addresses are unknown."""
    window = CountWindow("10m", 600.0, DeliveryCounts(10, 5, failures), source=source)
    assert view.count_run(window, "refused", 4)[0] == bad


def test_no_count_of_all_is_less_than_that_of_an_hour() -> None:
    """Metrics that are written after the log have a reason instead of a number."""
    way = a_way(*[DeliveryCounts(18, 18, 0)] * 3)._replace(totals=DeliveryCounts(17, 17, 0))
    logged = way._replace(windows=tuple(w._replace(source=Source.LOG) for w in way.windows))
    shown = words(detail_lines.window_lines(logged, 80)).splitlines()[-1]
    assert shown == "   all   ?  mail.prom has fewer than mail.log in 1m"
    same = logged._replace(totals=DeliveryCounts(18, 18, 0))
    assert " all      18     18    0" in words(detail_lines.window_lines(same, 80))


def row_of(transport: TransportHealth, width: int, routes: MailRoutes | None = None) -> str:
    """The row of a transport in the table."""
    _, ((_, line),) = view.transport_rows(MailHealth((transport,)), 0.5, NOW, width, routes)
    return words([line])


@pytest.mark.parametrize("width", [60, 80, 117, 157])
def test_names_of_transports_are_whole(width: int) -> None:
    """A use that all have is in the details: it takes no room from a name."""
    counts = [DeliveryCounts(9, 7, 1)] * 3
    sending = MailHealth((a_way(*counts, name="sendmail"), a_way(*counts, name="postfix")))
    routes = MailRoutes(("sendmail", "postfix"), "sendmail", by_handler=True)
    for use in (routes, routes._replace(by_handler=False)):
        head, rows = view.transport_rows(sending, 0.5, NOW, width, use)
        assert "TRANSPORT " in words([head]) and width_of(head) == width
        assert all(f" {name} " in words([line]) for name, line in rows)
        assert ("USE" in words([head])) == (width > 100 and not use.by_handler)


def test_mail_that_found_no_transport_is_no_transport() -> None:
    """It has a row and is not counted; mail to bad addresses is no failure on the overview."""
    none = a_way(None, DeliveryCounts(0, 0, 1), DeliveryCounts(0, 0, 3), name=NO_TRANSPORT)
    none = none._replace(settled=True)
    row = "none      attempts without a transport: 1 in 10m, 3 in 1h"
    assert row_of(none, 120).strip() == row
    curl = a_way(*[DeliveryCounts(50, 14, 33, refused=33)] * 3)
    summary = words([view.summary_line(MailHealth(transports=(curl, none)), 0.5)])
    assert summary.strip() == "none failing"
    for width, counts in ((80, ["50", "14", "33", "0%"]), (120, ["50", "14", "33", "0", "0%"])):
        assert row_of(curl, width).split()[2 : 2 + len(counts)] == counts
    panel = side_panes.transport_lines(MailHealth((curl,)), 0.5, 60, 4, has_mail=True)
    assert "OK  0/50 failed" in words(panel)


@each(("minutes", "sent", "since"), [
    ([0, *[0] * SHARE_MINUTES, *[5] * 7], 10, "since       09:38:00Z (2m ago)"),
    ([5] * 60, 10, f"since       {detail_lines.NO_START}"),
    ([], 10, f"since       {detail_lines.NO_START}"),  # of the metrics; no log
    ([0, *[0] * SHARE_MINUTES, *[5] * 7], 0, f"since       {detail_lines.NO_SUCCESS}"),
])  # fmt: skip
def test_the_details_say_since_when_a_transport_fails(
    minutes: list[int], sent: int, since: str
) -> None:
    """Below its state; `?` with the reason if the start is not known, or no success before."""
    failing = a_way(*[DeliveryCounts(10 + sent, sent, 10)] * 3)
    failing = failing._replace(minutes=tuple(DeliveryCounts(5, 5 - n, n) for n in minutes))
    assert since in words(detail_lines.about_lines(failing, 0.5, NOW, 80, None)).splitlines()[1]
    assert "since" not in words(detail_lines.about_lines(failing, 1.1, NOW, 80, None))


def test_suspended_wins_over_failing_and_the_figures_stay() -> None:
    """In the table, on the overview and in the detail; so it is seen whether it still sends."""
    stopped = {"curl": TransportSuspension("curl", NOW, "ana", "the relay moves")}
    routes = MailRoutes(("curl",), "", {}, stopped=stopped)
    seen = MailHealth((a_way(*[DeliveryCounts(20, 1, 19)] * 3),))
    (curl,) = mark_explained(seen, routes).transports
    table = row_of(curl, 80, routes).split()
    assert table[:6] == ["curl", "SUSPENDED", "20", "1", "95%", "-"]
    panel = side_panes.transport_lines(MailHealth((curl,)), 0.5, 60, 4, has_mail=True)
    assert "curl  SUSPENDED  19/20 failed" in words(panel)
    lines = detail_lines.detail_lines(curl, MailHealth(), 0.5, now=NOW, width=100, routes=routes)
    assert "failing, 95% of 20 attempts failed in 10m" in words(lines)
    assert "stays off until resumed; mail that spooldeck sends waits" in words(lines)
    assert "none failing" in words([view.summary_line(MailHealth((curl,)), 0.5)])


# ---- suspend and resume


async def test_it_is_suspended_with_a_reason_and_resumed(
    mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan, row and result say who takes over; one that only metrics know cannot be suspended.
    Where none takes over, the plan says what becomes of mail, and the overview that it waits. Of
    two operators the first wins: its reason stays, and that is said."""
    suspend, suspensions = mail.room.suspend, mail.room.suspensions

    def suspend_second(name: str, why: str) -> str:
        if mail.room.noted:
            suspensions.suspend(name, NOW, "ben", "mine")
        return suspend(name, why)

    monkeypatch.setattr(mail.room, "suspend", suspend_second)
    async with mail.screen("S", on="postfix") as operator:
        await operator.sees("mail uses curl, the next", "3 tasks that send mail are pending")
        await operator.sees("spooldeck mail suspend postfix", "y to suspend postfix")
        await operator.press("tab", *"relay", "space", *"moves", "enter")
        await operator.sees("mail suspend postfix 'relay moves'")
        await operator.opens(TransportsScreen, "y")
        assert mail.room.noted == ["suspended postfix: relay moves"]
        await operator.sees("postfix is suspended: mail uses curl", "S resume")
        assert "postfix    SUSPENDED" in operator.rows
        await operator.sees("09:40:00Z (0s ago) by ana", "relay moves")

        await operator.opens(ActionScreen, "S")
        await operator.sees("mail uses it again", "by ana since", "y to resume postfix")
        await operator.press("y")
        await operator.sees("postfix is resumed: mail uses postfix", "S suspend")
        assert await asyncio.to_thread(suspensions.read) == {}

        mail.count({"pigeon": (1, 0, 0)})
        await operator.until(lambda: "pigeon" in operator.rows)
        operator.picker.select_key("pigeon")
        await operator.sees("not configured")
        await operator.step("S", "pigeon: not configured")

        operator.picker.select_key("postfix")
        mail.room.installed = ("postfix",)
        (live,) = operator.console.sessions
        await operator.until(lambda: "curl" in getattr(live.readings.routes, "why_not", ""))
        await operator.step("S", "no other usable transport, so mail waits", "y to suspend postfix")
        await operator.step("y", "not done: another operator suspended postfix first")
        assert (await asyncio.to_thread(suspensions.read))["postfix"].why == "mine"
        clock_of(operator).now += 7200
        navigator = operator.console.navigator
        navigator.goto(Target(keys.OVERVIEW))
        await operator.opens(OverviewScreen)
        text = "postfix suspended by ben for 2h00m, mail waits: mine"
        await operator.until(lambda: text in [alert.text for alert in navigator.session.alerts])


PROGRAM = "mail_send tasks run that program, which selects its own transport"


@each(("delivers", "message", "unsaid", "waits"), [
    (True, "mail waits: its tasks stay", "no effect", "mail waits"),
    (False, PROGRAM, "mail waits", "mail that spooldeck sends waits"),
])  # fmt: skip
def test_the_plan_promises_no_more(delivers: bool, message: str, unsaid: str, waits: str) -> None:
    """That tasks of a configured program go on comes first; one task is in the singular."""
    before = MailRoutes(("postfix",), "postfix")
    stopped = {"postfix": TransportSuspension("postfix", NOW, "ana")}
    after = MailRoutes(("postfix",), stopped=stopped)
    facts = {"delivers": delivers, "waiting": 1, "now": NOW, "width": 100}
    plan = " ".join(words(suspend_view.plan_lines("postfix", before, after, **facts)).split())  # type: ignore[arg-type]
    assert plan.startswith("tasks no effect, unless the configured program runs") is not delivers
    assert ("postfix for mail that spooldeck sends: stays off" in plan) is not delivers
    assert message in plan and unsaid not in plan
    assert "1 task that sends mail is pending now" in plan
    result = suspend_view.describe_result("postfix", after, delivers)
    assert result == f"postfix is suspended: {waits}"


# ---- test mails

FAILS = "import sys; print('\x1b[31mconnect_refused'); sys.exit(1)"
HANGS = "import time; print('connecting', flush=True); time.sleep(60)"


async def test_a_test_mail_shows_what_its_command_says(mail: Mail) -> None:
    """By the transport under the cursor and no other, though it is suspended, and only once."""
    await mail.suspend("postfix", 0, "")
    async with mail.screen("M", on="postfix") as operator:
        await operator.sees(
            "Test mail via postfix only. Recipient: admin@example.com",
            "postfix is suspended: this mail uses it anyway",
            "mail test --transport postfix admin@example.com",
        )
        await operator.press("y")
        await operator.sees(
            "asking --transport postfix admin@example.com",
            "accepted by postfix; delivery not confirmed",
            "next Esc back; M there sends another",
        )
        await operator.press("y")
        await operator.sees("already sent: Esc, then M for another")


async def test_another_address_is_named(mail: Mail) -> None:
    """It is asked for and kept; the exit code decides, and what the command said is inert."""
    mail.room.recipient = ""
    async with mail.screen("M", on="postfix", program=FAILS) as operator:
        await operator.opens(AskScreen, *"eva", "enter")
        await operator.opens(ActionScreen, "@", *"x.example", "enter")
        await operator.sees("Recipient: eva@x.example")
        await operator.press("y")
        text = "not sent by postfix: the command ended with exit code 1"
        await operator.sees(text, "\ufffd[31mconnect_refused")
        await operator.press("escape")
        await operator.sees("test mail: not sent by postfix")
        await operator.opens(ActionScreen, "M")
        await operator.sees("Recipient: eva@x.example")


async def test_the_console_does_not_wait_for_a_test_mail(mail: Mail) -> None:
    """While it runs the screen can be left, and M shows how it goes; no second one is begun."""
    async with mail.screen("M", on="postfix", program=HANGS) as operator:
        await operator.opens(ActionScreen)
        await operator.press("y")
        await operator.sees("connecting", "sending ...")
        await operator.opens(TransportsScreen, "escape")
        await operator.opens(ActionScreen, "j", "M")
        await operator.sees("TEST MAIL postfix", "sending, ", "connecting")
        await operator.press("y")
        await operator.sees("a test mail is running: wait")


async def test_an_unused_transport_can_be_tried(mail: Mail) -> None:
    """The configuration forces curl: postfix is only not chosen, or it is not installed either."""
    mail.room.forced = "curl"
    async with mail.screen("M", on="postfix") as operator:
        await operator.opens(ActionScreen)
        await operator.sees("postfix is disabled, curl is forced", "uses it anyway")
        assert "Likely to fail" not in operator.page
        await operator.opens(TransportsScreen, "escape")
        mail.room.installed = ("curl",)
        (live,) = operator.console.sessions
        await operator.until(lambda: "postfix" in getattr(live.readings.routes, "why_not", ""))
        await operator.opens(ActionScreen, "M")
        await operator.sees("postfix is disabled, curl is forced", "uses it anyway")
        await operator.sees("Likely to fail: no postfix is installed")


def test_only_one_address_is_taken() -> None:
    """Neither an option nor two addresses become words of a command."""
    wrong = ["", "  ", "-oX/tmp/x@example.com", "a b@example.com", "admin", "a@example.com\x1b"]
    assert all(map(address_error, wrong))
    assert not any(map(address_error, ["admin@example.com", "root@mx1"]))


# ---- the command


def test_the_command_prints_the_same(tmp_path: Path, spooldeck: Run) -> None:
    """`spooldeck transports` prints the screen's lines, safely, and ends with 1 where one fails."""
    mail = Mail(tmp_path / "spool")
    shift = NOW - time.time()
    mail.say(*[attempt(shift + 50, RED) + given_up(shift + 49, "554 refused", RED)] * 5)
    mail.count({RED: (7, 5, 2)})
    plain, as_json = (spooldeck("transports", str(mail.root), *words) for words in ([], ["--json"]))

    assert (plain.returncode, as_json.returncode) == (1, 1), plain.stderr
    assert "state       failing, 100% of 5 attempts failed in 10m" in plain.stdout
    assert "\x1b" not in plain.stdout + as_json.stdout
    rows = {row["transport"]: row for row in json.loads(as_json.stdout)["transports"]}
    transport = rows.pop(RED)
    assert {row["used"] for row in rows.values()} == {"barred"}
    assert (transport["state"], transport["used"]) == ("failing", "-")
    assert transport["totals"] == {"attempts": 7, "success": 5, "failures": 2, "refused": 0}
    assert transport["windows"]["1h"]["failed_share"] == 1.0
    assert transport["errors"][0]["pattern"] == "554 refused"


def test_the_command_says_by_which_transport_mail_goes(tmp_path: Path, spooldeck: Run) -> None:
    """In words and in JSON: nothing here is forced but `none`, and postfix is suspended. Nothing
    fails: 0; and what is not known is null, with its reason. Where the suspensions cannot be read
    that is the first line, and the exit code is 1.
    """
    mail = Mail(tmp_path / "spool")
    mail.count({"postfix": (7, 7, 0)})
    suspended = mail.root / "queue" / ".spooldeck" / "suspended"
    suspended.parent.mkdir()
    Suspensions(str(suspended)).suspend("postfix", NOW - 60, "ben", RED)
    plain, ended = (spooldeck("transports", str(mail.root), *words) for words in ([], ["--json"]))

    assert (plain.returncode, ended.returncode) == (0, 0), plain.stderr
    assert "suspended by ben since" in plain.stdout
    assert ": \ufffd[31mred" in plain.stdout and "\x1b" not in plain.stdout
    answer = json.loads(ended.stdout)
    rows = {row["transport"]: row for row in answer["transports"]}
    postfix, exim = rows["postfix"], rows["exim"]
    assert (answer["selected"], postfix["used"], exim["used"]) == ("", "suspended", "barred")
    by = {"who": "ben", "why": RED}
    assert postfix["suspended"] == {**time_fields("since", NOW - 60), **by}
    assert exim["suspended"] is None
    assert "mail.log: No such file or directory" in postfix["windows"]["10m"]["unknown"]

    for since in ("9" * 400, "NaN", "1e300"):
        suspended.write_text(f'{{"postfix": {{"since": {since}, "who": "ben", "why": ""}}}}')
        plain = spooldeck("transports", str(mail.root))
        assert plain.returncode == 1
        assert plain.stdout.startswith("   transport unknown:")


def test_where_a_handler_sends_no_transport_is_disabled() -> None:
    """What mail.method excludes or forces says nothing about mail that a handler sends."""
    stop = {"sendmail": TransportSuspension("sendmail", NOW, "ana")}
    routes = MailRoutes(("sendmail", "curl"), "", {}, stop, "sendmail", by_handler=True)
    assert routes.use("curl") is TransportUse.HANDLER
    assert routes.use("sendmail") is TransportUse.SUSPENDED
    assert not routes.is_waiting
    assert routes._replace(by_handler=False).is_waiting
    assert view.describe_route(routes) == ("mail tasks are sent by a handler", "ok")


@each(("handlers", "by_handler"), [
    ("{}\n", False), ("handlers: {mail_send: {command: [/bin/true]}}\n", True),
])  # fmt: skip
def test_a_handler_of_mail_is_in_routes(tmp_path: Path, handlers: str, by_handler: bool) -> None:
    """A handler with a command for `mail_send` sends the mail tasks of a spool."""
    make_spool(tmp_path, [])
    place = wired(tmp_path, handlers)
    assert place.mail is not None and place.mail.routes({}).by_handler is by_handler
