"""Follows the mail log and the mail metrics of one place, and counts what each transport does."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from engine.logs.log_tail import LogLine
from engine.logs.recent_lines import Recent
from engine.logs.task_events import EventKind, event
from engine.monitor.metrics_check import Reading
from engine.monitor.prometheus import Samples
from engine.monitor.throughput import roughly
from engine.monitor.transport_health import (
    FOLLOWED,
    HOUR,
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    Failure,
    Fault,
    HealthReport,
    Sending,
    Source,
    TransportHealth,
    totals,
)
from engine.text.error_pattern import fold, mark

FAULTS = 32
"""Sorts of errors kept for each; what goes beyond is counted together."""

OTHERS = "(other errors)"

LAST = 20
"""Errors of each that are kept one by one."""

_BIN = 5.0
"""Seconds that are counted together."""

_SAMPLE = 10.0
"""Seconds between two totals that are kept."""

_NAME, _ERROR, _LINE = 64, 200, 400
"""Characters of a transport's name, of an error, and of its log line that are kept."""

NO_RECORDS: Mapping[str, Sequence[Failure]] = MappingProxyType({})
"""What is told of failures where there are no delivery records."""

LAST_SUCCESS = "nftban_mail_last_success_timestamp"

HOUR_SECONDS = WINDOWS[HOUR][1]


class MailEvents(NamedTuple):
    """What a line of the mail log says of a transport."""

    transport: str
    """"" where the line does not name it."""
    tally: DeliveryCounts
    error: str = ""


def heard(line: LogLine) -> MailEvents | None:
    """An attempt, a failed one, or the end of a mail; None for any other line."""
    told = event(line)
    if told is None or not told.transport:
        return None
    name = "" if told.transport == "?" else told.transport[:_NAME]
    if told.what is EventKind.STARTED:
        return MailEvents(name, DeliveryCounts(attempts=1))
    if told.what is EventKind.SUCCEEDED:
        return MailEvents(name, DeliveryCounts(success=1))
    if told.what not in (EventKind.FAILED, EventKind.BURIED):
        return None
    # Only the end of a mail says by which transport; a failed attempt may be followed by another.
    return MailEvents(name, DeliveryCounts(failures=1 if name else 0), told.error[:_ERROR])


class _Bins:
    """What was counted in the last hour, five seconds by five."""

    def __init__(self) -> None:
        self._bins: dict[int, DeliveryCounts] = {}

    def add(self, when: float, tally: DeliveryCounts) -> None:
        at = int(when // _BIN)
        self._bins[at] = _sum(self._bins.get(at, DeliveryCounts()), tally)
        if len(self._bins) > 2 * HOUR_SECONDS / _BIN:
            oldest = max(self._bins) - HOUR_SECONDS / _BIN
            self._bins = {bin: had for bin, had in self._bins.items() if bin >= oldest}

    def since(self, start: float) -> DeliveryCounts:
        first = start / _BIN - 0.5  # a bin counts where more than half of it does
        inside = [tally for at, tally in self._bins.items() if at > first]
        return DeliveryCounts(*map(sum, zip(*inside, strict=True))) if inside else DeliveryCounts()

    def attempts_by_minute(self) -> dict[int, int]:
        minutes: dict[int, int] = {}
        for at, tally in self._bins.items():
            minute = int(at * _BIN // 60)
            minutes[minute] = minutes.get(minute, 0) + tally.attempts
        return minutes


def _sum(one: DeliveryCounts, other: DeliveryCounts) -> DeliveryCounts:
    return DeliveryCounts(
        one.attempts + other.attempts, one.success + other.success, one.failures + other.failures
    )


class _ErrorKinds:
    """Errors that are alike: how many in each minute."""

    def __init__(self, when: float) -> None:
        self.minutes: dict[int, int] = {}
        self.first = self.last = when
        self.example = ""

    def add(self, when: float, error: str) -> None:
        minute = int(when // 60)
        self.minutes[minute] = self.minutes.get(minute, 0) + 1
        self.last, self.example = max(self.last, when), error
        if len(self.minutes) > 120:
            newest = max(self.minutes)
            self.minutes = {m: n for m, n in self.minutes.items() if m >= newest - 60}

    def count(self, now: float) -> int:
        return sum(n for minute, n in self.minutes.items() if minute > now // 60 - 60)


class _TransportLog:
    """All that is known of one transport."""

    def __init__(self) -> None:
        self.bins = _Bins()
        self.kin: dict[str, _ErrorKinds] = {}
        self.failures: deque[Failure] = deque(maxlen=LAST)
        self.spoken = False
        """Whether the log has named it."""
        self.tried = 0
        """Failed attempts at the mail in hand that the log spoke of."""
        self.last_success: float | None = None
        self.last_failure: float | None = None
        self.totals: DeliveryCounts | None = None
        """As the file had them last."""

    def hear(self, said: MailEvents, when: float, line: str) -> None:
        self.spoken = True
        self.bins.add(when, said.tally)
        if said.tally.success:
            self.last_success = max(when, self.last_success or when)
        if said.error:
            self.last_failure = max(when, self.last_failure or when)
        # The end of a mail repeats the error of its last attempt, which was counted with that.
        if said.error and not (said.tally.failures and self.tried):
            self._blame(said.error, when, line)
        self.tried = self.tried + 1 if said.error and not said.tally.failures else 0

    def _blame(self, error: str, when: float, line: str) -> None:
        pattern = fold(error)
        if pattern not in self.kin and len(self.kin) >= FAULTS:
            pattern = OTHERS
        self.kin.setdefault(pattern, _ErrorKinds(when)).add(when, error)
        self.failures.append(Failure(when, error, line=line[:_LINE]))

    def faults(self, now: float) -> tuple[Fault, ...]:
        self.kin = {p: kin for p, kin in self.kin.items() if kin.count(now)}
        found = [
            Fault(mark(p), p, kin.count(now), kin.first, kin.last, kin.example)
            for p, kin in self.kin.items()
        ]
        return tuple(sorted(found, key=lambda fault: (-fault.times, fault.pattern)))


class Totals(NamedTuple):
    """The counters at one moment, as if they had never gone back to zero."""

    when: float
    sums: dict[str, DeliveryCounts]


class Transports:
    """What is known of the transports of one place; everything here blocks, or may."""

    def __init__(self, log: str) -> None:
        """`log` is the path of the mail log; "" where there is none."""
        self._log = Recent(log) if log else None
        self._last_line: float | None = None
        self._current = ""
        """The transport of the attempt that the log spoke of last."""
        self._ways: dict[str, _TransportLog] = {}
        self._others = 0
        self._history: list[Totals] = []
        self._mail: Reading = None
        self._turn: object = None
        self._records: Mapping[str, Sequence[Failure]] = NO_RECORDS
        self._latest = Sending()

    def close(self) -> None:
        """Let go of the log."""
        if self._log is not None:
            self._log.close()

    def look(
        self,
        mail: Reading,
        now: float,
        names: Collection[str] = (),
        records: Mapping[str, Sequence[Failure]] = NO_RECORDS,
    ) -> Sending:
        """How they do now, with the mail metrics as they were read just now.

        `names` are those that there may be, whether anything tells of them or not; `records` are
        failures that another file tells of, by transport, the latest first.
        """
        log = self._log
        for name in names:
            self._way(name)
        lines = log.poll(now) if log is not None else []
        # Windows move by whole bins: between two of them only news can change anything.
        turn = int(now // _BIN), log and (log.problem, log.behind), len(self._ways), records
        if lines or mail != self._mail or turn != self._turn:
            self._turn, self._records = turn, records
            self._note(mail, now)
            self._hear(lines, now)
            self._latest = Sending(
                tuple(self._told_of(name, way, now) for name, way in self._ways.items()),
                self._others,
                tuple(self._sources(now)),
            )
        return self._latest

    # The metrics

    def _note(self, mail: Reading, now: float) -> None:
        before, self._mail = self._mail, mail
        if not isinstance(mail, Samples) or mail is before:
            return
        found = totals(mail)
        # Those that were tried come first: there is room for so many.
        wanted = sorted(found, key=lambda name: not any(found[name]))[:FOLLOWED]
        known = {*wanted, *self._ways}
        sums = dict(self._history[-1].sums) if self._history else {}
        for name in filter(known.__contains__, found):
            way = self._way(name)
            if way is None:
                continue
            more = _increase(way.totals, found[name], fresh=bool(self._history))
            way.totals = found[name]
            if more.success:
                way.last_success = max(way.last_success or 0.0, min(mail.modified, now))
            if more.failures:
                way.last_failure = max(way.last_failure or 0.0, min(mail.modified, now))
            sums[name] = _sum(sums.get(name, DeliveryCounts()), more)
        self._others = len(found) - sum(name in self._ways for name in found)
        self._attribute_last_success(mail)
        self._remember(Totals(mail.modified, sums), now)

    def _attribute_last_success(self, mail: Samples) -> None:
        """The file says once for all when a mail was sent; with one transport that is its own."""
        senders = [way for way in self._ways.values() if way.totals and way.totals.success]
        when = mail.get(LAST_SUCCESS)
        if len(senders) == 1 and when and 0 < when < 1e11:
            (sender,) = senders
            sender.last_success = max(when, sender.last_success or when)

    def _remember(self, latest: Totals, now: float) -> None:
        history = self._history
        if history and latest.when < history[-1].when:
            history.clear()  # written by a clock that was set back
        if len(history) > 1 and latest.when - history[-2].when < _SAMPLE:
            history.pop()
        history.append(latest)
        first = bisect_right(history, now - HOUR_SECONDS, key=itemgetter(0))
        del history[: max(0, first - 1)]

    def _by_metrics(self, name: str, window: CountWindow, now: float) -> CountWindow:
        source = Source.METRICS
        if not isinstance(self._mail, Samples):
            reason = self._mail or "this place has none"
            return window._replace(reason=f"{source}: {reason}")
        latest = self._history[-1]
        at = bisect_right(self._history, latest.when - window.seconds, key=itemgetter(0)) - 1
        silent = now - latest.when
        if name not in latest.sums:
            return window._replace(reason=f"{source}: it is not named there")
        if silent > window.seconds:
            return window._replace(reason=f"{source}: not written for {roughly(silent)}")
        if at < 0:
            watched = latest.when - self._history[0].when
            return window._replace(reason=f"{source}: {roughly(watched)} is known only")
        before = self._history[at]
        apart = latest.when - before.when
        if apart > 1.5 * window.seconds:
            return window._replace(
                reason=f"{source}: {roughly(apart)} from one writing to the next"
            )
        was, is_now = before.sums.get(name, DeliveryCounts()), latest.sums[name]
        grown = DeliveryCounts(*(b - a for a, b in zip(was, is_now, strict=True)))
        return window._replace(tally=grown, source=source)

    # The log

    def _hear(self, lines: Sequence[LogLine], now: float) -> None:
        for line in lines:
            said = heard(line)
            if line.when is not None:
                self._last_line = min(line.when, now)
            if said is None or self._last_line is None or self._last_line < now - HOUR_SECONDS:
                continue  # what is older than any window would only be held for nothing
            self._current = said.transport or self._current
            way = self._way(self._current) if self._current else None
            if way is not None:
                way.hear(said, self._last_line, line.text)

    def _by_log(self, way: _TransportLog, window: CountWindow, now: float) -> CountWindow:
        source, log = Source.LOG, self._log
        if log is None:
            return window._replace(reason=f"{source}: this place has none")
        if log.problem:
            return window._replace(reason=f"{source}: {log.problem}")
        if log.behind or log.since is None:
            return window._replace(reason=f"{source}: still being read")
        if log.since > now - window.seconds:
            known = roughly(now - log.since) if log.since <= now else "nothing of it"
            return window._replace(reason=f"{source}: {known} is known only")
        return window._replace(tally=way.bins.since(now - window.seconds), source=source)

    # Both

    def _way(self, name: str) -> _TransportLog | None:
        """What is known of a transport; None for one too many."""
        if name not in self._ways and len(self._ways) >= FOLLOWED:
            return None
        return self._ways.setdefault(name, _TransportLog())

    def _told_of(self, name: str, way: _TransportLog, now: float) -> TransportHealth:
        windows = tuple(self._window(name, way, CountWindow(*shape), now) for shape in WINDOWS)
        faults, spark = way.faults(now), tuple(self._spark(way, now)) if way.spoken else ()
        ends = way.last_success, way.last_failure
        failures = together(tuple(reversed(way.failures)), self._records.get(name, ()))
        return TransportHealth(name, way.totals, windows, faults, *ends, spark, failures)

    def _window(
        self, name: str, way: _TransportLog, window: CountWindow, now: float
    ) -> CountWindow:
        """By the log where that speaks of this transport, else by the metrics."""
        log, metrics = self._by_log(way, window, now), self._by_metrics(name, window, now)
        if log.tally is not None and (way.spoken or not (metrics.tally and any(metrics.tally))):
            return log
        if metrics.tally is not None:
            return metrics
        return window._replace(reason=f"{log.reason}; {metrics.reason}")

    def _spark(self, way: _TransportLog, now: float) -> Iterator[float | None]:
        log, here = self._log, int(now // 60)
        since = float("inf") if log is None or log.since is None else log.since
        attempts = way.bins.attempts_by_minute()
        for minute in range(here - 9, here + 1):
            known = since < 60.0 * (minute + 1)
            yield float(attempts.get(minute, 0)) if known else None

    def _sources(self, now: float) -> Iterator[HealthReport]:
        log, mail = self._log, self._mail
        if log is not None:
            known = None if log.behind else log.since
            yield HealthReport(Source.LOG, self._last_line, known, log.problem)
        if isinstance(mail, Samples):
            yield HealthReport(Source.METRICS, mail.modified, self._history[0].when)
        elif mail is not None:
            yield HealthReport(Source.METRICS, None, None, mail)


def together(logged: Sequence[Failure], recorded: Sequence[Failure]) -> tuple[Failure, ...]:
    """What the log and the delivery records say of failures, each once, the latest first.

    Both tell of the end of a mail: the log by one word, the records with the transport's own words
    where its writer has put them there.
    """
    left = list(recorded)
    found: list[Failure] = []
    for failure in logged:
        twin = next((each for each in left if _is_same(failure, each)), None)
        if twin is not None:
            left.remove(twin)
            failure = failure._replace(text=twin.text)
        found.append(failure)
    rows = sorted((*found, *left), key=lambda each: each.when or 0.0, reverse=True)
    return tuple(rows[:LAST])


_APART = 2.0
"""Seconds between the two lines on one failure; each tells whole ones."""


def _is_same(one: Failure, other: Failure) -> bool:
    if one.when is None or other.when is None or abs(one.when - other.when) > _APART:
        return False
    # Other writers put more than one word into the log; the first one is the same.
    return one.word.partition(" ")[0] == other.word.partition(" ")[0]


def _increase(before: DeliveryCounts | None, now: DeliveryCounts, fresh: bool) -> DeliveryCounts:
    """By how much counters went up; one that went back began again at 0 meanwhile.

    What a first file says is from before anybody watched, but a transport that a later file names
    first (`fresh`) was 0 until then.
    """
    if before is None:
        return now if fresh else DeliveryCounts()
    pairs = list(zip(before, now, strict=True))
    if any(count < was for was, count in pairs):
        return now  # all of them began again, also those that have overtaken themselves
    return DeliveryCounts(*(count - was for was, count in pairs))
