"""Count attempts, successes and errors of each mail transport from mail.log and mail.prom."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from operator import itemgetter
from types import MappingProxyType

from engine.logs.log_line import LogLine
from engine.logs.recent_lines import RecentLines
from engine.logs.task_events import EventKind, parse_event
from engine.monitor.metrics_check import MetricsReading
from engine.monitor.prometheus import NOT_THERE, Samples
from engine.monitor.throughput import seconds_known
from engine.monitor.transport_health import (
    MAX_TRANSPORTS,
    ONE_HOUR,
    WINDOWS,
    CountWindow,
    DeliveryCounts,
    ErrorCluster,
    Failure,
    MailHealth,
    Source,
    SourceReport,
    TransportHealth,
    read_totals,
)
from engine.text.error_pattern import fold_error, pattern_name
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

MAX_ERROR_PATTERNS = 32
"""Error patterns kept for each transport; further ones are counted together."""

OTHER_ERRORS = "(other errors)"

MAX_SENDS = 500
"""Send times kept for each transport."""

MAX_FAILURES = 20
"""Single failures kept for each transport."""

_BIN = 5.0
"""Length of one counting interval in seconds."""

_SAMPLE = 10.0
"""Minimum seconds between two stored counter totals."""

_NAME, _ERROR, _LINE = 64, 200, 400
"""Characters kept of a transport's name, of an error and of its log line."""

NO_RECORDS: Mapping[str, Sequence[Failure]] = MappingProxyType({})
"""No failures: the value if there are no delivery records."""

NO_MAIL_LOGGED = f"no mail logged yet: no {Source.LOG}, no {Source.METRICS}"
"""Why nothing is known of a place whose files were never written."""

LAST_SUCCESS = "nftban_mail_last_success_timestamp"

HOUR_SECONDS = WINDOWS[ONE_HOUR][1]


class MailEvents(NamedTuple):
    """What one line of the mail log reports about a transport."""

    transport: str
    """Name; "" if the line has none."""
    tally: DeliveryCounts
    error: str = ""
    id: str = ""
    """The task of the mail; "" for a mail without a task."""


def parse_mail_event(line: LogLine) -> MailEvents | None:
    """Parse an attempt, a failed attempt or the end of a mail; None for any other line."""
    event = parse_event(line)
    if event is None or not event.transport:
        return None
    name = "" if event.transport == "?" else event.transport[:_NAME]
    if event.what is EventKind.STARTED:
        return MailEvents(name, DeliveryCounts(attempts=1), id=event.id)
    if event.what is EventKind.SUCCEEDED:
        return MailEvents(name, DeliveryCounts(success=1), id=event.id)
    if event.what not in (EventKind.FAILED, EventKind.BURIED):
        return None
    # Only the end of a mail says by which transport; a failed attempt may be followed by another.
    failed = 1 if name else 0
    counts = DeliveryCounts(failures=failed, refused=failed if _is_bad_address(event.error) else 0)
    return MailEvents(name, counts, event.error[:_ERROR], event.id)


_is_bad_address = re.compile(r"(?:^|\D)5\.1\.[0-9]").search


class _Bins:
    """Counts of the last hour, in intervals of five seconds."""

    def __init__(self) -> None:
        self._bins: dict[int, DeliveryCounts] = {}
        self.first_failures: deque[float] = deque(maxlen=120)  # of each minute

    def add(self, when: float, tally: DeliveryCounts) -> None:
        if tally.failed and when // 60 > (self.first_failures or [0.0])[-1] // 60:
            self.first_failures.append(when)
        at = int(when // _BIN)
        self._bins[at] = _sum(self._bins.get(at, DeliveryCounts()), tally)
        if len(self._bins) > 2 * HOUR_SECONDS / _BIN:
            oldest = max(self._bins) - HOUR_SECONDS / _BIN
            self._bins = {bin: had for bin, had in self._bins.items() if bin >= oldest}

    def since(self, start: float) -> DeliveryCounts:
        first = start / _BIN - 0.5  # a bin counts where more than half of it does
        return _sum(DeliveryCounts(), *(n for at, n in self._bins.items() if at > first))

    def by_minute(self) -> dict[int, DeliveryCounts]:
        minutes: dict[int, DeliveryCounts] = defaultdict(DeliveryCounts)
        for at, tally in self._bins.items():
            minutes[int(at * _BIN // 60)] = _sum(minutes[int(at * _BIN // 60)], tally)
        return minutes


def _sum(*counts: DeliveryCounts) -> DeliveryCounts:
    return DeliveryCounts(*map(sum, zip(*counts, strict=True)))


class _ErrorKinds:
    def __init__(self, when: float) -> None:
        self.minutes: Counter[int] = Counter()
        self.span = when, when
        """Times of the first and the last."""
        self.example = ""

    def add(self, when: float, error: str) -> None:
        self.minutes[int(when // 60)] += 1
        self.span, self.example = (self.span[0], max(self.span[1], when)), error
        if len(self.minutes) > 120:
            newest = max(self.minutes)
            self.minutes = Counter({m: n for m, n in self.minutes.items() if m >= newest - 60})

    def count(self, now: float) -> int:
        return sum(n for minute, n in self.minutes.items() if minute > now // 60 - 60)


class _TransportLog:
    def __init__(self) -> None:
        self.bins = _Bins()
        self.kin: dict[str, _ErrorKinds] = {}
        self.failures: deque[Failure] = deque(maxlen=MAX_FAILURES)
        self.spoken = False
        """True if the log has named it."""
        self.begun: dict[str, float] = {}
        """Times of the latest attempts, by task."""
        self.sends: deque[tuple[float, float]] = deque(maxlen=MAX_SENDS)
        """End and duration of the latest successful attempts, in seconds."""
        self.tried = 0
        """Failed attempts at the current mail, from the log."""
        self.last_success: float | None = None
        self.last_failure: float | None = None
        self.last_counted: float | None = None
        """The last failure by the metrics; only the log knows which had a bad address."""
        self.last_refused: float | None = None
        self.totals: DeliveryCounts | None = None
        """Counters at the last reading of the metrics file."""

    def add_events(self, events: MailEvents, when: float, line: str) -> None:
        self.spoken = True
        self.bins.add(when, events.tally)
        self._time(events, when)
        if events.tally.success:
            self.last_success = max(when, self.last_success or when)
        if events.error and _is_bad_address(events.error):
            self.last_refused = max(when, self.last_refused or when)
        elif events.error:
            self.last_failure = max(when, self.last_failure or when)
        # The end of a mail repeats the error of its last attempt, which was counted with that.
        if events.error and not (events.tally.failures and self.tried):
            self._blame(events, when, line)
        self.tried = self.tried + 1 if events.error and not events.tally.failures else 0

    def _time(self, events: MailEvents, when: float) -> None:
        """Note the start of an attempt, or how long a successful one took. A mail without a task
        has no id, so its lines may be mixed with those of another one."""
        if not events.id:
            return
        if events.tally.attempts:
            self.begun[events.id] = when
            if len(self.begun) > MAX_SENDS:
                del self.begun[next(iter(self.begun))]
        elif events.tally.success and (start := self.begun.pop(events.id, None)) is not None:
            self.sends.append((when, max(0.0, when - start)))

    def send_times(self, since: float) -> tuple[float, float] | None:
        """Median and 95th percentile of the send times from a time on; None without one."""
        known = sorted(seconds for when, seconds in self.sends if when >= since)
        return (known[len(known) // 2], known[len(known) * 95 // 100]) if known else None

    def _blame(self, events: MailEvents, when: float, line: str) -> None:
        pattern = fold_error(events.error)
        if pattern not in self.kin and len(self.kin) >= MAX_ERROR_PATTERNS:
            pattern = OTHER_ERRORS
        self.kin.setdefault(pattern, _ErrorKinds(when)).add(when, events.error)
        self.failures.append(Failure(when, events.error, line=line[:_LINE], task=events.id))

    def faults(self, now: float) -> tuple[ErrorCluster, ...]:
        self.kin = {p: kin for p, kin in self.kin.items() if kin.count(now)}
        clusters = (
            ErrorCluster(pattern_name(p), p, kin.count(now), *kin.span, example=kin.example)
            for p, kin in self.kin.items()
        )
        return tuple(sorted(clusters, key=lambda fault: (-fault.times, fault.pattern)))


class CounterSample(NamedTuple):
    """Counters at one moment, corrected for resets to zero."""

    when: float
    sums: dict[str, DeliveryCounts]


class TransportMonitor:
    """Monitor of one place's mail transports; every call may block on file reads."""

    def __init__(self, log: str) -> None:
        """`log` is the path of the mail log; "" if none."""
        self._log = RecentLines(log) if log else None
        self._last_line: float | None = None
        self._current = ""
        """Transport of the latest attempt in the log."""
        self._transports: dict[str, _TransportLog] = {}
        self._others = 0
        self._history: list[CounterSample] = []
        self._mail: MetricsReading = None
        self._turn: object = None
        self._records: Mapping[str, Sequence[Failure]] = NO_RECORDS
        self._latest = MailHealth()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def poll(
        self,
        mail: MetricsReading,
        now: float,
        names: Collection[str] = (),
        records: Mapping[str, Sequence[Failure]] = NO_RECORDS,
    ) -> MailHealth:
        """Read new log lines and return the state of all transports; `mail` is the latest reading
        of the mail metrics. `names` are transports to list even without any data; `records` are
        failures from the delivery records, by transport, the latest first."""
        log = self._log
        for name in names:
            self._find_transport(name)
        lines = log.poll(now) if log is not None else []
        # Windows move by whole bins: within one bin only new data can change anything.
        reading = log and (log.problem, log.is_behind)
        turn = int(now // _BIN), reading, len(self._transports), records
        if lines or mail != self._mail or turn != self._turn:
            self._turn, self._records = turn, records
            self._note(mail, now)
            self._add_lines(lines, now)
            ways = (self._transport_health(*each, now) for each in self._transports.items())
            self._latest = MailHealth(tuple(ways), self._others, tuple(self._sources(now)))
        return self._latest

    # The metrics

    def _note(self, mail: MetricsReading, now: float) -> None:
        before, self._mail = self._mail, mail
        if not isinstance(mail, Samples) or mail is before:
            return
        totals = read_totals(mail)
        # Transports with attempts come first: only `FOLLOWED` are kept.
        followed = sorted(totals, key=lambda name: not any(totals[name]))[:MAX_TRANSPORTS]
        known = {*followed, *self._transports}
        sums = dict(self._history[-1].sums) if self._history else {}
        for name in filter(known.__contains__, totals):
            transport = self._find_transport(name)
            if transport is None:
                continue
            more = _increase(transport.totals, totals[name], fresh=bool(self._history))
            transport.totals = totals[name]
            when = min(mail.modified, now)
            if more.success:
                transport.last_success = max(transport.last_success or 0.0, when)
            transport.last_counted = when if more.failures else transport.last_counted
            sums[name] = _sum(sums.get(name, DeliveryCounts()), more)
        self._others = len(totals) - sum(name in self._transports for name in totals)
        self._attribute_last_success(mail)
        self._remember(CounterSample(mail.modified, sums), now)

    def _attribute_last_success(self, mail: Samples) -> None:
        """Use the file's single last-success time for the transport, if only one transport has
        successes."""
        senders = [t for t in self._transports.values() if t.totals and t.totals.success]
        when = mail.get(LAST_SUCCESS)
        if len(senders) == 1 and when and 0 < when < 1e11:
            (sender,) = senders
            sender.last_success = max(when, sender.last_success or when)

    def _remember(self, latest: CounterSample, now: float) -> None:
        history = self._history
        if history and latest.when < history[-1].when:
            history.clear()  # the writer's clock was set back
        if len(history) > 1 and latest.when - history[-2].when < _SAMPLE:
            history.pop()
        history.append(latest)
        first = bisect_right(history, now - HOUR_SECONDS, key=itemgetter(0))
        del history[: max(0, first - 1)]

    def _by_metrics(self, name: str, window: CountWindow, now: float) -> CountWindow:
        source = Source.METRICS

        def unknown(why: str) -> CountWindow:
            return window._replace(reason=f"{source}: {why}")

        if not isinstance(self._mail, Samples):
            return unknown(self._mail or "no such file")
        latest = self._history[-1]
        at = bisect_right(self._history, latest.when - window.seconds, key=itemgetter(0)) - 1
        silent = now - latest.when
        if name not in latest.sums:
            return unknown("not listed")
        if silent > window.seconds:
            return unknown(f"not written for {format_rough_duration(silent)}")
        if at < 0:
            watched = latest.when - self._history[0].when
            return unknown(f"only {format_rough_duration(watched)} of data")
        before = self._history[at]
        apart = latest.when - before.when
        if apart > 1.5 * window.seconds:
            return unknown(f"written only every {format_rough_duration(apart)}")
        was, is_now = before.sums.get(name, DeliveryCounts()), latest.sums[name]
        grown = DeliveryCounts(*(b - a for a, b in zip(was, is_now, strict=True)))
        refused = 0  # no counter has them
        if (transport := self._transports.get(name)) is not None:
            refused = transport.bins.since(latest.when - window.seconds).refused
        grown = grown._replace(refused=min(grown.failures, refused))
        return window._replace(tally=grown, source=source)

    # The log

    def _add_lines(self, lines: Sequence[LogLine], now: float) -> None:
        for line in lines:
            events = parse_mail_event(line)
            if line.when is not None:
                self._last_line = min(line.when, now)
            if events is None or self._last_line is None or self._last_line < now - HOUR_SECONDS:
                continue  # older than any window
            self._current = events.transport or self._current
            transport = self._find_transport(self._current) if self._current else None
            if transport is not None:
                transport.add_events(events, self._last_line, line.text)

    def _by_log(self, transport: _TransportLog, window: CountWindow, now: float) -> CountWindow:
        log, start, why = self._log, now - window.seconds, ""
        if log is None:
            why = "no such file"
        elif log.problem:
            why = log.problem
        elif log.is_behind or log.since is None:
            why = "still being read"
        elif log.since > start:
            known = now - log.since
            why = f"only {format_rough_duration(known)} of data" if known >= 0 else "no data yet"
        if why:
            return window._replace(reason=f"{Source.LOG}: {why}")
        tally = transport.bins.since(start)
        times = transport.send_times(start) if tally.success else None
        known = seconds_known(now, inf if log is None else log.began, window.seconds)
        window = window._replace(tally=tally, source=Source.LOG, send_times=times)
        return window._replace(known_seconds=known if known < window.seconds else None)

    # Both

    def _find_transport(self, name: str) -> _TransportLog | None:
        """Return the data of a transport; None if there are already `FOLLOWED` others."""
        transport = self._transports.get(name)
        if transport is None and len(self._transports) < MAX_TRANSPORTS:
            transport = self._transports[name] = _TransportLog()
        return transport

    def _transport_health(self, name: str, transport: _TransportLog, now: float) -> TransportHealth:
        windows = (self._window(name, transport, CountWindow(*shape), now) for shape in WINDOWS)
        has_log = transport.spoken and self._log is not None and not self._log.problem
        counted = (not has_log and transport.last_counted) or 0.0
        return TransportHealth(
            name,
            transport.totals,
            tuple(windows),
            faults=transport.faults(now),
            last_success=transport.last_success,
            last_failure=max(transport.last_failure or 0.0, counted) or None,
            last_refused=transport.last_refused,
            minutes=tuple(self._minutes(transport, now)) if transport.spoken else (),
            first_failures=(*transport.bins.first_failures,),
            failures=merge_failures([*transport.failures][::-1], self._records.get(name, ())),
        )

    def _window(
        self, name: str, transport: _TransportLog, window: CountWindow, now: float
    ) -> CountWindow:
        """Fill a window from the log if that mentions this transport, else from the metrics."""
        log, metrics = self._by_log(transport, window, now), self._by_metrics(name, window, now)
        has_counts = metrics.tally is not None and any(metrics.tally)
        if log.tally is not None and (transport.spoken or not has_counts):
            return log
        if metrics.tally is not None:
            return metrics
        missing = [f"{name}: {NOT_THERE}" for name in (Source.LOG, Source.METRICS)]
        if [log.reason, metrics.reason] == missing:
            return window._replace(reason=NO_MAIL_LOGGED)
        return window._replace(reason=f"{log.reason}; {metrics.reason}")

    def _minutes(self, transport: _TransportLog, now: float) -> Iterator[DeliveryCounts | None]:
        log, this_minute = self._log, int(now // 60)
        since = float("inf") if log is None or log.since is None else log.since
        counted = transport.bins.by_minute()
        for minute in range(this_minute - 59, this_minute + 1):
            known = since < 60.0 * (minute + 1)
            yield counted.get(minute, DeliveryCounts()) if known else None

    def _sources(self, now: float) -> Iterator[SourceReport]:
        log, mail = self._log, self._mail
        if log is not None:
            known = None if log.is_behind else log.since
            yield SourceReport(Source.LOG, self._last_line, known, log.problem)
        if isinstance(mail, Samples):
            yield SourceReport(Source.METRICS, mail.modified, self._history[0].when)
        elif mail is not None:
            yield SourceReport(Source.METRICS, None, None, mail)


def merge_failures(logged: Sequence[Failure], recorded: Sequence[Failure]) -> tuple[Failure, ...]:
    """Merge failures from the log and from the delivery records, each once, the latest first. Both
    record the end of a mail: the log with one word, the records with the transport's own text, if
    their writer stored it."""
    unmatched = list(recorded)
    failures: list[Failure] = []
    for failure in logged:
        same = next((each for each in unmatched if _is_same(failure, each)), None)
        if same is not None:
            unmatched.remove(same)
            failure = failure._replace(text=same.text)
        failures.append(failure)
    rows = sorted((*failures, *unmatched), key=lambda each: each.when or 0.0, reverse=True)
    return tuple(rows[:MAX_FAILURES])


_APART = 2.0
"""Maximum seconds between the log line and the record of one failure; both have whole seconds."""


def _is_same(one: Failure, other: Failure) -> bool:
    if one.when is None or other.when is None or abs(one.when - other.when) > _APART:
        return False
    # Other programs log more than one word; the first one is the same.
    return one.word.partition(" ")[0] == other.word.partition(" ")[0]


def _increase(before: DeliveryCounts | None, now: DeliveryCounts, fresh: bool) -> DeliveryCounts:
    """Increase of counters; one that went back was reset to 0 in between. The first file counts
    events from before we watched, but a transport that appears only in a later file (`fresh`) was 0
    until then."""
    if before is None:
        return now if fresh else DeliveryCounts()
    pairs = list(zip(before, now, strict=True))
    if any(count < was for was, count in pairs):
        return now  # all were reset, also those that are already higher than before
    return DeliveryCounts(*(count - was for was, count in pairs))
