"""Transports of mail: windows and faults from the mail log and metrics, rotated and spoilt."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from engine.logs.log_line import parse_log_line
from engine.logs.task_events import NO_TRANSPORT
from engine.monitor import prometheus
from engine.monitor.mail_monitor import (
    MAX_ERROR_PATTERNS,
    MAX_FAILURES,
    TransportMonitor,
    parse_mail_event,
)
from engine.monitor.metrics_check import MetricsReading
from engine.monitor.transport_health import (
    MAX_TRANSPORTS,
    OTHER_SETTINGS,
    SHARE_MINUTES,
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    Health,
    MailHealth,
    MailRoutes,
    Source,
    TransportHealth,
    TransportSuspension,
    believe_log,
    find_mail_log,
    mark_explained,
)
from tests.tables import each

NOW = 1_795_167_600.0


def line(ago: float, level: str, text: str) -> str:
    """A line of the mail log, so many seconds before NOW."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW - ago))
    return f"[{stamp}] [{level}] {text}\n"


def attempt(ago: float, transport: str = "postfix", number: int = 1) -> str:
    """One attempt begins."""
    what = f"task_id=inline attempt={number} transport={transport} to=admin@..."
    return line(ago, "INFO", f"MAIL_SEND_ATTEMPT {what}")


def missed(ago: float, error: str, number: int = 1) -> str:
    """It failed, and another may follow; the line does not say of which transport."""
    return line(ago, "WARN", f"MAIL_SEND_ATTEMPT failed attempt={number}/3 error={error}")


def sent(ago: float, transport: str = "postfix") -> str:
    """A mail was sent."""
    what = f"task_id=inline status=success transport={transport} attempt=1"
    return line(ago, "INFO", f"MAIL_SEND_RESULT {what}")


def given_up(ago: float, error: str, transport: str = "postfix") -> str:
    """A mail was given up on."""
    what = f"task_id=inline status=failed transport={transport} retries=3 last_error={error}"
    return line(ago, "ERROR", f"MAIL_SEND_RESULT {what}")


def prom(figures: Mapping[str, tuple[int, int, int]], last_success: int = 0) -> str:
    """A mail metrics file with these attempts, successes and failures."""
    text = ""
    for at, name in enumerate(("attempts", "success", "failures")):
        metric = f"nftban_mail_send_{name}_total"
        text += f"# TYPE {metric} counter\n"
        text += "".join(f'{metric}{{transport="{t}"}} {n[at]}\n' for t, n in figures.items())
    return text + f"nftban_mail_last_success_timestamp {last_success}\n"


class MailFiles:
    """A folder with both files, and what is made of them."""

    def __init__(self, folder: Path) -> None:
        self.log, self.prom = folder / "mail.log", folder / "mail.prom"
        self.transports = TransportMonitor(str(self.log))

    def write_metrics(self, ago: float, text: str) -> None:
        """Put another metrics file in place of the one before, as its writer does."""
        new = self.prom.with_suffix(".tmp")
        new.write_text(text)
        os.utime(new, (NOW - ago, NOW - ago))
        new.rename(self.prom)

    def say(self, *lines: str) -> None:
        """Add lines to the log."""
        with self.log.open("a") as log:
            log.writelines(lines)

    def rotate(self, ago: float) -> None:
        """Rotate a log away that cannot be read, written so many seconds before NOW."""
        old = self.log.with_suffix(".log.1")
        old.mkdir()  # no file
        os.utime(old, (NOW - ago, NOW - ago))

    def look(self, ago: float = 0) -> MailHealth:
        """What is known so many seconds before NOW."""
        mail: MetricsReading = (
            prometheus.read_metrics(str(self.prom)) if self.prom.exists() else "not there"
        )
        return self.transports.poll(mail, NOW - ago)

    def each(self, ago: float = 0) -> dict[str, TransportHealth]:
        """The transports by their names."""
        return {transport.name: transport for transport in self.look(ago).transports}

    def one(self, ago: float = 0) -> TransportHealth:
        """The only transport there is."""
        (transport,) = self.look(ago).transports
        return transport


@pytest.fixture
def mail_files(tmp_path: Path) -> Iterator[MailFiles]:
    """An empty folder."""
    made = MailFiles(tmp_path)
    yield made
    made.transports.close()


ONE = DeliveryCounts(1, 1, 0)


def tallies(transport: TransportHealth) -> tuple[DeliveryCounts | None, ...]:
    """What is known of a minute, ten and an hour."""
    return tuple(window.tally for window in transport.windows)


def test_right_after_the_start_the_windows_are_known_from_the_log(mail_files: MailFiles) -> None:
    """The last hour of the log is read backwards from its end; what is older counts nowhere."""
    mail_files.say(attempt(7200), sent(7200))
    mail_files.say(attempt(1800), given_up(1799, "send_failed_rc_1"))
    mail_files.say(attempt(300), sent(300), attempt(30), sent(29))
    transport = mail_files.one()
    assert tallies(transport) == (ONE, DeliveryCounts(2, 2, 0), DeliveryCounts(3, 2, 1))
    assert {window.source for window in transport.windows} == {Source.LOG}
    assert transport.windows[2].share == pytest.approx(1 / 3)
    assert transport.windows[0].rate == pytest.approx(1 / 60)
    assert (transport.last_success, transport.last_failure) == (NOW - 29, NOW - 1799)
    assert transport.totals is None


def test_the_rates_of_a_young_log_are_over_its_age(mail_files: MailFiles) -> None:
    """Ten minutes and an hour of a log that began seven minutes ago have seven minutes."""
    mail_files.say(attempt(420), sent(420), *(attempt(200), sent(199)) * 6)
    minute, ten, hour = mail_files.one().windows
    assert ten.rate == hour.rate == pytest.approx(7 / 420)
    assert (minute.known_seconds, ten.known_seconds) == (None, 420)


def test_a_rotated_log_is_known_from_then_on(mail_files: MailFiles) -> None:
    """Of a rotated file that cannot be read nothing is guessed; the known time is said."""
    mail_files.say(attempt(100), sent(100))
    mail_files.rotate(800)
    transport = mail_files.one()
    assert tallies(transport) == (DeliveryCounts(), ONE, None)
    assert transport.windows[2].reason == "mail.log: only 13m of data; mail.prom: not there"
    assert transport.windows[2].share is None


def test_a_log_that_rotates_loses_nothing(mail_files: MailFiles) -> None:
    """The hour begins in the rotated file; renamed or emptied, lines before and after count."""
    old = mail_files.log.with_suffix(".log.1")
    old.write_text(attempt(1900))
    mail_files.say(attempt(500), sent(500))
    assert tallies(mail_files.one(400))[1:] == (ONE, DeliveryCounts(2, 1, 0))
    mail_files.say(attempt(390), sent(390))
    mail_files.log.rename(old)
    mail_files.say(attempt(380), sent(380))
    assert tallies(mail_files.one(300))[1] == DeliveryCounts(3, 3, 0)
    mail_files.log.write_text(attempt(290))
    assert tallies(mail_files.one(200))[1] == DeliveryCounts(4, 3, 0)


def test_a_log_that_comes_later_is_known_from_the_first_scan_on(mail_files: MailFiles) -> None:
    """Without a log there is nothing to say but why; once it is there, every line of it counts."""
    health = mail_files.look(700)
    assert (health.transports, health.sources[0].problem) == ((), "No such file or directory")
    os.mkfifo(mail_files.log)
    assert "expected a regular file" in mail_files.look(700).sources[0].problem
    mail_files.log.unlink()
    assert mail_files.look(700).sources[0].problem
    mail_files.say(attempt(60, "curl"), sent(60, "curl"))
    transport = mail_files.one()
    assert tallies(transport) == (ONE, ONE, None)
    assert "only 11m of data" in transport.windows[2].reason


def test_counters_that_are_watched_say_what_happened_since(mail_files: MailFiles) -> None:
    """Metrics are totals: a window is known once they were watched for so long."""
    mail_files.write_metrics(660, prom({"curl": (100, 90, 10)}))
    assert mail_files.one(660).totals == DeliveryCounts(100, 90, 10)
    assert tallies(mail_files.one(660)) == (None, None, None)
    mail_files.write_metrics(600, prom({"curl": (106, 94, 12)}))
    mail_files.one(600)
    mail_files.write_metrics(0, prom({"curl": (110, 94, 16)}))
    transport = mail_files.one()
    assert tallies(transport) == (None, DeliveryCounts(4, 0, 4), None)
    assert transport.windows[1].source is Source.METRICS
    assert transport.windows[0].reason.endswith("mail.prom: written only every 10m")
    assert transport.windows[2].reason.endswith("mail.prom: only 11m of data")
    assert (transport.last_failure, transport.last_success) == (NOW, NOW - 600)


def test_counters_that_go_back_to_zero_are_counted_on(mail_files: MailFiles) -> None:
    """New counts are added to those before; NaN and infinite totals count as 0."""
    for ago, figures in ((60, (100, 90, 10)), (40, (108, 96, 12)), (20, (3, 2, 1)), (0, (5, 3, 2))):
        mail_files.write_metrics(ago, prom({"curl": figures}))
        transport = mail_files.one(ago)
    assert tallies(transport)[0] == DeliveryCounts(8 + 5, 6 + 3, 2 + 2)
    assert transport.totals == DeliveryCounts(5, 3, 2)
    text = prom({"curl": (7, 5, 2)})
    mail_files.write_metrics(-1, text.replace(" 7\n", " NaN\n").replace(" 5\n", " +Inf\n"))
    assert mail_files.one(-1).totals == DeliveryCounts(0, 0, 2)


def test_old_metrics_say_nothing_of_now(mail_files: MailFiles) -> None:
    """A window that ended before the file was written is not known, and it says so."""
    for ago in (1300, 700, 0):
        if ago:
            mail_files.write_metrics(ago, prom({"curl": (ago, 0, 0)}))
        transport = mail_files.one(ago)
    assert tallies(transport) == (None, None, None)
    assert "mail.prom: not written for 11m" in transport.windows[1].reason
    assert transport.health(0.5) is Health.UNKNOWN


def test_metrics_count_where_the_log_is_silent(mail_files: MailFiles) -> None:
    """A transport that the log never names has its counters, and the last success if alone."""
    mail_files.write_metrics(620, prom({"curl": (4, 0, 4), "postfix": (9, 9, 0)}, int(NOW) - 1500))
    last = {name: transport.last_success for name, transport in mail_files.each(610).items()}
    assert last == {"curl": None, "postfix": NOW - 1500}
    mail_files.write_metrics(610, prom({"curl": (10, 10, 0), "postfix": (11, 11, 0)}))
    mail_files.look(610)
    mail_files.say(attempt(100), sent(100))
    mail_files.write_metrics(5, prom({"curl": (14, 10, 4), "postfix": (19, 19, 0)}))
    windows = {name: transport.windows[1] for name, transport in mail_files.each().items()}
    assert {name: (window.tally, window.source) for name, window in windows.items()} == {
        "curl": (DeliveryCounts(4, 0, 4), Source.METRICS),
        "postfix": (ONE, Source.LOG),
    }


@pytest.mark.parametrize("is_logged_before", [True, False])
def test_a_bad_address_is_not_the_last_failure(
    mail_files: MailFiles, is_logged_before: bool
) -> None:
    """Neither the log nor a counter that has both makes a bad address a failure."""
    lines = attempt(40), given_up(39, "550 5.1.1 user unknown")
    mail_files.say(*lines[: 2 * is_logged_before])
    mail_files.write_metrics(38, prom({"postfix": (1, 0, 0)}))
    mail_files.look(30)
    mail_files.say(*lines[2 * is_logged_before :])
    mail_files.write_metrics(20, prom({"postfix": (1, 0, 1)}))
    transport = mail_files.one()
    assert (transport.last_failure, transport.last_refused) == (None, NOW - 39)


def test_errors_are_reported_by_their_kind(mail_files: MailFiles) -> None:
    """Errors alike but for numbers and hosts are one; the end of a mail repeats none of them."""
    mail_files.say(attempt(100), missed(99, "connect_timeout mx7.example.net 25"))
    mail_files.say(attempt(90, number=2), missed(89, "connect_timeout mx8.example.org 587", 2))
    mail_files.say(given_up(88, "connect_timeout mx8.example.org 587"))
    mail_files.say(attempt(80, "curl"), given_up(79, "550 5.1.1 user unknown", "curl"))
    transports = mail_files.each()
    (timeout,) = transports["postfix"].faults
    assert (timeout.times, timeout.first, timeout.last) == (2, NOW - 99, NOW - 89)
    assert timeout.pattern == "connect_timeout <host> #"
    assert timeout.example == "connect_timeout mx8.example.org 587"
    assert transports["postfix"].windows[2].tally == DeliveryCounts(2, 0, 1)
    assert [fault.pattern for fault in transports["curl"].faults] == ["550 5.1.1 user unknown"]
    later = mail_files.each(-3700)["postfix"]
    assert (later.faults, later.health(0.5)) == ((), Health.IDLE)


@each(("recent", "hour", "health"), [
    (DeliveryCounts(4, 3, 1), DeliveryCounts(9, 0, 9), Health.OK),
    (DeliveryCounts(6, 3, 3), DeliveryCounts(9, 9, 3), Health.FAILING),
    (DeliveryCounts(4, 2, 2), DeliveryCounts(9, 9, 2), Health.FEW),
    (DeliveryCounts(1, 0, 1), DeliveryCounts(9, 2, 5), Health.FAILING),
    (DeliveryCounts(), DeliveryCounts(3, 0, 1), Health.FEW),
    (DeliveryCounts(), DeliveryCounts(9, 0, 9), Health.FAILING),
    (DeliveryCounts(9, 0, 9, 5), None, Health.OK),
    (DeliveryCounts(9, 0, 9, 4), None, Health.FAILING),
    (DeliveryCounts(), DeliveryCounts(3, 1, 0), Health.OK),
    (DeliveryCounts(2, 0, 0), DeliveryCounts(2, 0, 0), Health.IDLE),
    (DeliveryCounts(), None, Health.IDLE),
    (None, None, Health.UNKNOWN),
    (None, DeliveryCounts(), Health.IDLE),
])  # fmt: skip
def test_a_transport_fails_by_its_share(
    recent: DeliveryCounts | None, hour: DeliveryCounts | None, health: Health
) -> None:
    """Of ten minutes, or the hour, in which five mails ended; bad addresses count as done."""
    windows = [CountWindow(*shape, tally) for shape, tally in zip(WINDOWS, (None, recent, hour))]  # noqa: B905
    assert TransportHealth("x", None, tuple(windows)).health(0.5) is health


LOST, SENT, QUIET = [DeliveryCounts(1, 0, 1)], [DeliveryCounts(1, 1)], [DeliveryCounts()]
TEN_SENT, TEN_QUIET = SENT * SHARE_MINUTES, QUIET * SHARE_MINUTES


@each(("minutes", "share", "ago"), [
    ([*TEN_QUIET, *LOST, *SENT, *LOST, *QUIET], 0.5, 3),
    ([*TEN_SENT, *LOST * 5], 0.5, 0),
    ([*TEN_SENT, *LOST * 8], 0.5, 3),
    ([*LOST * 9, *TEN_SENT, *LOST * 8], 0.5, 3),  # it was not failing in between
    ([*TEN_SENT, *LOST * 8, *TEN_QUIET, *QUIET], 0.5, 14),  # by its hour
    ([*TEN_SENT, *LOST * 8, *TEN_SENT, *SENT], 0.5, None),  # below the limit by whole minutes
    ([None, *LOST * 20], 0.5, None),
    ([*LOST * 60], 0.5, None),
    ([None, *LOST], 1.0, 7),  # then it is the last success
])  # fmt: skip
def test_since_when_a_transport_fails(
    minutes: list[DeliveryCounts | None], share: float, ago: int | None
) -> None:
    """Since its share was last below the limit, or nothing was sent, for ten minutes: the time of
    the first failure then. None is named if it may have begun before the hour, or the log."""
    tally = DeliveryCounts(10, round(10 * (1 - share)), round(10 * share))
    window = CountWindow("10m", 600.0, tally)
    now = 60.0 * 1000 + 30
    health = TransportHealth(
        "curl", None, (window, window, window), last_success=now - 450, minutes=tuple(minutes)
    )
    since = health.failing_since(now, 0.5)
    assert (None if since is None else now // 60 - since // 60) == ago
    if since is not None and share < 1:
        times = tuple(since + seconds for seconds in (-9.0, 13.0, 80.0))
        assert health._replace(first_failures=times).failing_since(now, 0.5) == since + 13


def test_the_start_is_that_of_the_first_of_many_failures(mail_files: MailFiles) -> None:
    """Also where more failed since than are kept one by one, and an address was bad before."""
    sent_before = [
        attempt(3600) + sent(3599),
        *(attempt(900 - n) + sent(899 - n) for n in range(5)),
    ]
    mail_files.say(*sent_before, given_up(290, "550 5.1.1 user unknown"))
    lost = [attempt(280 - n) + given_up(279 - n, "421 later") for n in range(2 * MAX_FAILURES)]
    mail_files.say(*lost)
    health = mail_files.one()
    assert health.failing_since(NOW, 0.5) == NOW - 279


def test_a_line_says_what_it_says() -> None:
    """Only lines about attempts and ends of mails are read; an error may hold anything."""
    nowhere = "No mail system available, spooling for later"
    for text, parts in (
        (attempt(0, "curl"), ("curl", DeliveryCounts(1), "")),
        (missed(0, "rc 1 = bad"), ("", DeliveryCounts(), "rc 1 = bad")),
        (sent(0, "curl"), ("curl", DeliveryCounts(0, 1), "")),
        (given_up(0, "rc 1 = bad", "curl"), ("curl", DeliveryCounts(0, 0, 1), "rc 1 = bad")),
        (given_up(0, "550 5.1.1 user unknown", "curl"),
         ("curl", DeliveryCounts(0, 0, 1, 1), "550 5.1.1 user unknown")),
        (line(0, "ERROR", nowhere), ("none", DeliveryCounts(0, 0, 1), nowhere)),
        (line(0, "INFO", "Mail spooled to queue: 20261120T094604Z-mail_send-2f72c807"), None),
        (line(0, "INFO", "Processing task: 20261120T094604Z-mail_send-2f72c807 (x)"), None),
        ("\n", None),
    ):  # fmt: skip
        mail_event = parse_mail_event(parse_log_line(text.encode(), "mail.log"))
        assert (mail_event and mail_event[:3]) == parts
    assert find_mail_log(["/l/queue.log", "/l/mail.log"]) == "/l/mail.log"
    assert find_mail_log(["/l/queue.log"]) == ""


def test_send_times_go_from_an_attempt_to_its_success(mail_files: MailFiles) -> None:
    """Median and 95th percentile of the sent mails, by task; others have none."""
    for number, seconds in enumerate((1, 2, 30)):
        lines = attempt(100 + seconds), sent(100)
        mail_files.say(*(each.replace("inline", f"x-mail_send-{number}") for each in lines))
    mail_files.say(attempt(95), sent(90), attempt(90), given_up(50, "550 no"))
    times = [window.send_times for window in mail_files.one().windows]
    assert times == [None, (2.0, 30.0), (2.0, 30.0)]


def test_the_sparkline_has_the_attempts_of_ten_minutes(mail_files: MailFiles) -> None:
    """A cell is a minute of attempts; before the log is known a cell is None."""
    mail_files.say(attempt(61), attempt(59), attempt(1))
    os.utime(mail_files.log, (NOW, NOW))
    mail_files.rotate(250)
    last = mail_files.one(0.5).minutes[-10:]
    assert [counts and counts.attempts for counts in last] == [*[None] * 5, 0, 0, 0, 1, 2]


def test_ever_more_names_do_no_harm(mail_files: MailFiles) -> None:
    """Files that name ever more transports and errors have the first ones followed, no more."""
    mail_files.say(*(attempt(60, f"t{n}") for n in range(5_000)))
    errors = [f"{chr(97 + n % 26)}{'x' * n}" for n in range(300)]
    mail_files.say(attempt(50, "t1"), *(missed(50, error) for error in errors))
    mail_files.write_metrics(0, prom({f"m{n}": (n, n, 0) for n in range(600)}))
    health = mail_files.look()
    while mail_files.transports._log and mail_files.transports._log.is_behind:
        health = mail_files.look()
    assert (len(health.transports), health.others) == (MAX_TRANSPORTS, 600 - MAX_TRANSPORTS)
    assert max(len(transport.faults) for transport in health.transports) <= MAX_ERROR_PATTERNS + 1
    assert not {"m599", "m0"} <= {transport.name for transport in health.transports}


def test_hostile_lines_are_no_more_than_lines(mail_files: MailFiles) -> None:
    """Control characters, no time, a megabyte in one line, times far off: nothing breaks."""
    red = "\x1b[31mred"
    mail_files.log.write_bytes(
        b"\x1b]0;owned\x07\n\xff\xfe\nMAIL_SEND_ATTEMPT task_id=x attempt=1 transport=early to=x\n"
        + (attempt(-90_000, "future") + attempt(20, red)).encode()
        + given_up(19, "\x1b[2J" + "A" * 1_000_000, red).encode()
        + b"MAIL_SEND_RESULT task_id=x status=success transport=late attempt=1\n"
    )
    mail_files.write_metrics(0, prom({red: (1, 0, 1)}) + "nftban_x NaN\n")
    transports = mail_files.each()
    assert set(transports) == {red, "future", "late"}
    assert len(transports[red].faults[0].example) <= 200
    assert transports["late"].last_success == NOW - 19
    assert (transports["future"].windows[0].tally or DeliveryCounts()).attempts == 1


@each(("routes", "sent", "unknown"), [
    (MailRoutes(("curl",), is_assumed=True), 1, OTHER_SETTINGS),
    (MailRoutes(("curl",), is_assumed=True), 0, ""),
    (MailRoutes(("curl",), "curl", is_assumed=True), 1, ""),
    (MailRoutes(("curl",)), 1, ""),
])  # fmt: skip
def test_without_a_configuration_file_the_log_is_believed(
    routes: MailRoutes, sent: int, unknown: str
) -> None:
    """While mail is sent there is a transport, though none by the settings that are assumed."""
    windows = tuple(CountWindow(*shape, DeliveryCounts(sent, sent, 0)) for shape in WINDOWS)
    believed = believe_log(routes, MailHealth((TransportHealth("curl", None, windows),)))
    assert believed == routes._replace(unknown=unknown)


@each(("routes", "health"), [
    (None, Health.FAILING),
    (MailRoutes(("curl",), unknown="Permission denied"), Health.FAILING),
    (MailRoutes(("curl",), why_not={"curl": "no relay"}), Health.FAILING),
    (MailRoutes(("curl",), stopped={"curl": TransportSuspension("curl", NOW, "ana")}), Health.OVER),
    (MailRoutes(("curl",), "curl"), Health.OVER),
])  # fmt: skip
def test_mail_without_a_transport_is_explained(routes: MailRoutes | None, health: Health) -> None:
    """A suspension explains it, and a transport that is there again ends it."""
    recent = tuple(CountWindow(*shape, DeliveryCounts(5, 0, 5)) for shape in WINDOWS)
    failing = [TransportHealth(name, None, recent) for name in (NO_TRANSPORT, "curl")]
    without_transport, curl = mark_explained(MailHealth(tuple(failing)), routes).transports
    assert without_transport.health(0.5) is health
    stopped = routes is not None and "curl" in routes.stopped
    assert curl.health(0.5) is (Health.SUSPENDED if stopped else Health.FAILING)
