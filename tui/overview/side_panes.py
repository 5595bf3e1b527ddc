"""Panes of a wide overview, each as a function of what is known: clusters, locks, workers, kinds,
transports, operations, places, controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from engine.index import filter_language
from engine.locks.token_buckets import BucketState
from engine.logs.log_line import LogLine
from engine.model import LockEvidence, State, Verdict
from engine.monitor.forecast import ForecastTopic
from engine.monitor.latency import KindFigures
from engine.monitor.prometheus import NOT_THERE, Samples
from engine.monitor.throughput import Trend
from engine.monitor.transport_health import TEN_MINUTES, Health, MailHealth, TransportHealth
from engine.operations.journal import Operation
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import fit_count, format_bytes, format_count, format_rate
from engine.text.safe import safe_error, safe_line
from engine.text.times import format_time
from engine.values import NamedTuple
from tui.operations import operation_lines, worker_lines
from tui.operations.worker_lines import PlaceKind
from tui.overview import place_lines as lines_view
from tui.overview import snapshot
from tui.overview.reads import EventCounts
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.target import Target
from tui.session.history import operation_name
from tui.session.index_queries import CheckedCluster, failed_state
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, count_workers
from tui.text import keys
from tui.text.frames import Frame
from tui.text.glyphs import SPARKS
from tui.text.graphs import bar, resample
from tui.text.lines import (
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
    fold_text,
    join_ends,
    merge_runs,
    width_of,
)
from tui.text.lock import ALARMING_VERDICTS, verdict_style
from tui.text.styles import STILL_LOOKS
from tui.text.times import format_age, format_clock
from tui.transports import destination_lines
from tui.transports import transport_lines as ways

MAX_ROWS = 12
"""Rows for which a pane asks room; those beyond scroll."""

MAX_PANE_ROWS = 100
MAX_FAULTS = 8
MAX_OPERATIONS = 5


class LiveValues(NamedTuple):
    """Values of all places that the recorder does not have; while frozen they stay as they were."""

    logs: tuple[Sequence[LogLine], ...] = ()
    workers: Sequence[WorkerRow] = ()
    kinds: tuple[Sequence[KindFigures], ...] = ()
    operations: tuple[tuple[str, Operation], ...] = ()
    """Latest operations with their place, the latest first."""


def live_values(
    sessions: Sequence[PlaceSession], moments: Sequence[PlaceSnapshot], now: float
) -> LiveValues:
    """The present values of all places, some of which are in their snapshots."""
    return LiveValues(
        tuple(session.readings.log for session in sessions),
        all_worker_rows(sessions, now),
        tuple(moment.kinds for moment in moments),
        latest_operations(sessions),
    )


def latest_operations(
    sessions: Sequence[PlaceSession], at: float = inf
) -> tuple[tuple[str, Operation], ...]:
    """The latest operations of all places with their place, as the journal shows them at a time:
    one that had not ended was running."""
    ran = [
        (
            session.name,
            ran if (ran.ended or 0.0) <= at else ran._replace(ended=None, is_running=True),
        )
        for session in sessions
        for ran in session.history.operations
        if ran.started <= at
    ]
    return tuple(sorted(ran, key=lambda one: -one[1].started)[:MAX_OPERATIONS])


class OverviewData(NamedTuple):
    """Everything that the panes show."""

    sessions: Sequence[PlaceSession]
    selected: PlaceSession
    """The place under the cursor."""
    moments: Sequence[PlaceSnapshot]
    live_values: LiveValues
    clusters: Mapping[int, Sequence[CheckedCluster]]
    """Error clusters by number of the place."""
    clusters_age: Line
    """How old those that are shown are; () if they are of now."""
    now: float
    can_start: bool
    """True if a worker of some place can be started from here, and can write."""
    is_wall: bool = False

    @property
    def moment(self) -> PlaceSnapshot:
        """The place under the cursor."""
        return self.moments[self.selected.number - 1]


class PaneRow(NamedTuple):
    """A row of a pane, and where Enter leads from it."""

    key: str
    """Identity of the row while it lasts."""
    line: Line
    target: Target


class PaneRows(NamedTuple):
    """What a pane shows: rows for the cursor, and lines above and below that do not scroll."""

    rows: Sequence[PaneRow] = ()
    head: Sequence[Line] = ()
    foot: Sequence[Line] = ()
    spare: Sequence[Line] = ()
    """Lines below the foot that are shown only where all rows have room."""

    @property
    def height(self) -> int:
        """The lines that it asks for."""
        rows = min(len(self.rows), MAX_ROWS)
        return len(self.head) + rows + len(self.foot) + len(self.spare)

    def fitted(self, lines: int, width: int, *, starts_at_top: bool) -> PaneRows:
        """The pane in so many lines: spare ones as far as the rows leave room. `starts_at_top`:
        it does not scroll, so only the first rows are kept, and the last line counts the others;
        if it is the only line, at its end."""
        room = max(1, lines - len(self.head) - len(self.foot))
        foot = [*self.foot, *self.spare[: max(0, room - len(self.rows))]]
        fitted = self._replace(foot=foot, spare=())
        if not starts_at_top or len(self.rows) <= room:
            return fitted
        kept, more = self.rows[: max(1, room - 1)], len(self.rows) - max(1, room - 1)
        words: Line = ((f"  +{more:,} more", "muted"),)
        if room > 1:
            return fitted._replace(rows=kept, foot=[words, *foot])
        first = kept[0]
        line = (*cut_line(first.line, max(0, width - width_of(words))), *words)
        return fitted._replace(rows=[first._replace(line=line)])


TARGET_STEPS: Mapping[str, str] = {
    keys.LIST: "lists these tasks",
    keys.TASK: "opens the task",
    keys.WORKERS: "opens the workers",
    keys.TRANSPORTS: "opens this transport",
    keys.LOG: "opens the log at this line",
    keys.LOCK: "shows the evidence of the lock",
    keys.LOCKS: "opens the locks",
    keys.OPERATIONS: "opens this operation",
    keys.CONTROLS: "opens the controls of the queue",
}
"""What Enter does on a row of a pane, by the screen that it leads to."""


class SidePane(NamedTuple):
    """A pane: its frame, and its rows for a width."""

    frame: Callable[[OverviewData], Frame]
    rows: Callable[[OverviewData, int], PaneRows]
    is_recorded: bool = False
    """True if it can be shown for a recorded time."""


def _shown_clusters(data: OverviewData) -> list[tuple[PlaceSession, CheckedCluster]]:
    """The clusters of the place under the cursor; on a wall of all places, the largest first."""
    sessions = data.sessions if data.is_wall else [data.selected]
    clusters = [
        (session, one)
        for session in sessions
        if not data.moments[session.number - 1].queue.unavailable
        for one in data.clusters.get(session.number, ())
    ]
    return sorted(clusters, key=lambda one: -one[1].cluster.count)


def _unread_lines(data: OverviewData) -> list[Line]:
    """That a pane cannot be known of the place under the cursor; the ages have the reason. () if it
    can be read, and on a wall."""
    is_unread = not data.is_wall and data.moment.queue.unavailable
    return [((f"  {UNKNOWN}", "unknown"),)] if is_unread else []


def title_of(data: OverviewData, name: str) -> str:
    """The title of a pane that shows the place under the cursor; if there are several, with it."""
    return f"{name}: {data.selected.name}" if len(data.sessions) > 1 else name


def _clusters_frame(data: OverviewData) -> Frame:
    amount = len(_shown_clusters(data))
    name = "Clusters" if data.is_wall else title_of(data, "Clusters")
    age = (*data.clusters_age, (" ", "")) if data.clusters_age else ()
    right = (*age, ("STILL?", "muted"))
    is_dead = data.is_wall or failed_state(data.selected) is State.DEAD
    return Frame(name, "4" if is_dead else "c", f"{amount}" if amount else "", right)


def _cluster_pane(data: OverviewData, width: int) -> PaneRows:
    """Error clusters of failed tasks, the share of each, and whether they still happen."""
    rows: list[PaneRow] = []
    clusters = _shown_clusters(data)[:MAX_PANE_ROWS]
    most = max((one.cluster.count for _, one in clusters), default=1)
    several = data.is_wall and len(data.sessions) > 1
    if unread := _unread_lines(data):
        return PaneRows(head=unread)
    place = max((cells_of(session.name) for session, _ in clusters), default=0) + several
    room = width - 19 - place * several
    for session, (cluster, now) in clusters:
        error = fit_text(safe_error(cluster.pattern), max(8, room - cells_of(now.text)))
        runs: Line = (
            (f"  {cluster.mark:<7}", "accent"),
            (f"{fit_count(cluster.count, 4):>4} ", ""),
            (bar(cluster.count / most, 3), "muted"),
            (f" {fit_text(session.name, place - 1)}" if several else "", "muted"),
            (f" {error} ", ""),
            (now.text, STILL_LOOKS[now.answer]),
        )
        words = filter_language.format_term("cluster", "=", cluster.mark)
        target = Target(keys.LIST, session.number, failed_state(session), words)
        rows.append(PaneRow(f"{session.number} {cluster.mark}", cut_line(runs, width), target))
    return PaneRows(rows, () if rows else [(("  none", "muted"),)])


def _transport_pane(data: OverviewData, width: int) -> PaneRows:
    if unread := _unread_lines(data):
        return PaneRows(head=unread)
    place, sending = data.selected.place, data.moment.sending
    limit, has_mail = place.alerts.transport_failures, place.mail is not None
    lines = transport_lines(sending, limit, width, MAX_PANE_ROWS, has_mail=has_mail)
    used = used_transports(sending, limit)
    target = Target(keys.TRANSPORTS, data.selected.number)
    rows = [
        PaneRow(transport.name, line, target._replace(id=transport.name))
        for transport, line in zip(used, lines, strict=False)
    ]
    foot: list[Line] = []
    if (known := data.moment.destinations) is None:
        has_some = data.selected.place.destinations is not None
        foot += [(("  destinations: not recorded", "muted"),)] if has_some else []
    elif known:
        lines = lines if rows else []
        listed = known[: MAX_PANE_ROWS - len(rows)]
        destinations = destination_lines.brief_lines(listed, data.now, width)
        rows += [
            PaneRow(one.destination.origin, line, target._replace(id=one.destination.origin))
            for one, line in zip(listed, destinations, strict=True)
        ]
        if (more := len(known) - len(listed)) > 0:
            foot.append(((f"  +{more:,} more: 6 lists them", "muted"),))
    transports = () if sending is None else sending.transports
    faults = [one for transport in transports for one in transport.faults]
    spare: list[Line] = []
    if data.is_wall and faults:
        faults.sort(key=lambda one: -one.times)
        most = faults[0].times
        spare.append(cut_line((("  errors of the last hour, grouped", "muted"),), width))
        for fault in faults[:MAX_FAULTS]:
            runs: Line = (
                (f"  {fit_count(fault.times, 4):>4} ", ""),
                (bar(fault.times / most, 3), "muted"),
                (f" {safe_line(fault.example)}", ""),
            )
            spare.append(cut_line(runs, width))
    return PaneRows(rows, () if rows else lines, foot, spare)


def _transport_frame(data: OverviewData) -> Frame:
    both = " and destinations" if data.moment.destinations else ""
    return Frame(title_of(data, f"Transports{both}"), "6", right=(("attempts  /min", "muted"),))


def used_transports(sending: MailHealth | None, limit: float) -> list[TransportHealth]:
    """The transports that the logs mention, the most urgent first."""
    # The transports screen lists unused transports and why they are unused.
    used = (one for one in (sending.transports if sending else ()) if one.is_mentioned)
    return sorted(used, key=lambda transport: _URGENCY.index(transport.health(limit)))


def transport_lines(
    sending: MailHealth | None, limit: float, width: int, height: int, *, has_mail: bool
) -> list[Line]:
    """Transports of a place, the worst first; from a failure rate of `limit` on it is failing.
    `has_mail` if the place can send by transports."""
    if sending is None:
        return [(("  not recorded", "muted"),)]
    if not (used := used_transports(sending, limit)):
        return [ways.no_transports_line(sending, has_mail=has_mail)]
    name = min(12, max(cells_of(safe_line(transport.name)) for transport in used))
    longest = max(len(transport.health(limit).value) for transport in used)
    lines: list[Line] = []
    for transport in used[:height]:
        health, window = transport.health(limit), transport.windows[TEN_MINUTES]
        _, look = ways.STATE_RUNS[health]
        judged = transport.judged or window
        tally, over = judged.tally, "" if judged is window else f" {judged.name}"
        text = UNKNOWN if tally is None else f"{tally.failed:,}/{tally.attempts:,} failed{over}"
        left: Line = (
            ("! " if health is Health.FAILING else "  ", "error"),
            (f"{fit_text(safe_line(transport.name), name)} ", ""),
            (f" {health.value.upper()} ", look),
            (" " * (longest - len(health.value)), ""),
            (f" {text}", "unknown" if tally is None else "muted"),
        )
        rate = UNKNOWN if window.rate is None else format_rate(window.rate, "/min")
        style = "unknown" if window.rate is None else "muted"
        lines.append(join_ends(left, ((rate, style),), width))
    return lines


_URGENCY = tuple(
    map(Health, ("failing", "suspended", "unknown", "few tries", "over", "ok", "idle"))
)


def _workers_frame(data: OverviewData) -> Frame:
    workers = count_workers(data.live_values.workers)
    amount = "" if workers == Figure(0) else workers.text()
    return Frame("Workers", "3", amount, (("RUNNING", "muted"),))


def _worker_pane(data: OverviewData, width: int) -> PaneRows:
    workers = worker_lines.keyed_rows(data.live_values.workers[:MAX_PANE_ROWS])
    head: Sequence[Line] = ()
    if data.is_wall:
        title, lines = worker_lines.worker_table([*workers.values()], width)
        head = [title]
    else:
        workers = {key: row for key, row in workers.items() if worker_lines.is_busy(row)}
        lines = worker_lines.brief_worker_lines(
            data.live_values.workers, width, MAX_PANE_ROWS, can_start=data.can_start
        )
        if not workers:
            return PaneRows(head=lines)
    rows = [
        PaneRow(key, line, Target(keys.TASK if row.task else keys.WORKERS, row.number, id=row.task))
        for (key, row), line in zip(workers.items(), lines, strict=False)
    ]
    return PaneRows(rows, head)


def _lock_pane(data: OverviewData, width: int) -> PaneRows:
    room = max(cells_of(session.name) for session in data.sessions)
    rows = []
    for session, moment in zip(data.sessions, data.moments, strict=True):
        lock = moment.lock
        is_alarming = lock is not None and lock.verdict in ALARMING_VERDICTS
        sign: Run = ("! " if is_alarming else "  ", "error")
        lead: Line = (sign, (f"{fit_text(session.name, room)}  ", ""))
        if moment.queue.unavailable:
            line = cut_line((*lead, (" ?       cannot be read", "unknown")), width)
        else:
            none = session.place.no_lock if session.place.has_leases else "no lock"
            line = _lock_line(lead, lock, none, data.now, width)
        pane = keys.LOCKS if session.place.has_leases else keys.LOCK
        row = PaneRow(f"{session.number}", line, Target(pane, session.number))
        rows.append((not (is_alarming or moment.queue.unavailable), row))
    return PaneRows([row for _, row in sorted(rows, key=lambda one: one[0])])


def _lock_line(lead: Line, lock: LockEvidence | None, none: str, now: float, width: int) -> Line:
    if lock is None:
        return cut_line((*lead, (f" -       {none}", "muted")), width)
    style = verdict_style(lock.verdict)
    chip = f"chip-{style}" if style in ("error", "warn") else style
    word = f" {lock.verdict.upper()} "
    holder = "" if lock.pid is None else f"PID {lock.pid}"
    free = lock.verdict is Verdict.FREE
    text = holder or ("no process holds it" if free else safe_line(lock.reason))
    age = "" if free or lock.since is None else format_age(now - lock.since)
    left: Line = (*lead, (word, chip), (" " * max(1, 9 - len(word)), ""), (text, "muted"))
    return join_ends(left, ((age, style),), width)


def _operation_pane(data: OverviewData, width: int) -> PaneRows:
    numbers = {session.name: session.number for session in data.sessions}
    ages = {session.name: session.history.age for session in data.sessions}
    rows = []
    known = {}  # each with what later operations undid or resumed
    for session in data.sessions:
        ran = [one for one in session.history.operations if one.started <= data.now]
        for listed in operation_lines.list_operations(ran):
            known[session.name, listed.operation.op] = listed
    for place, operation in data.live_values.operations:
        listed = known.get((place, operation.op), operation_lines.ListedOperation(operation))
        age = None if data.moments[numbers[place] - 1].recorded else ages[place]
        listed = listed._replace(operation=operation, age=age)
        state = operation_lines.operation_state(listed)
        _, undo_look = operation_lines.undo_time_left(listed, data.now)
        hour = format_time(operation.started)[11:16]
        tasks = operation_lines.task_count(operation)  # those of all that were planned
        noun = format_count(operation.planned, "task").partition(" ")[2] * tasks[-1:].isdigit()
        named = f"{operation_name(operation)} {tasks} {noun}".rstrip() if operation.planned else ""
        what = f"{named or operation_lines.describe_operation(operation)} on {place}"
        left: Line = (
            (f"  {hour} ", "muted"),
            (f"{fit_text(safe_line(operation.intent.who.name), 6)} ", ""),
            (what, ""),
        )
        can_undo = not undo_look and not operation.is_running
        key, step = (
            ("8", "resume") if listed.suspended else ("u", "undo") if can_undo else ("8", "open")
        )
        next_key: Line = ((key, "key"), (f" {step:<6}", "muted"))
        right: Line = ((operation_lines.state_text(state.word), state.style), ("  ", ""), *next_key)
        target = Target(keys.OPERATIONS, numbers[place], id=operation.op)
        rows.append(PaneRow(operation.op, join_ends(left, right, width), target))
    return PaneRows(rows, () if rows else [(("  none in the last 24 hours", "muted"),)])


def _place_pane(data: OverviewData, width: int) -> PaneRows:
    rows = []
    room = max(cells_of(session.name) for session in data.sessions)
    for session, moment in zip(data.sessions, data.moments, strict=True):
        latest = session.inspector.latest
        lead: Line = ((f"  {fit_text(session.name, room)}  ", ""),)
        if latest.unavailable:
            why = safe_line(latest.unavailable)
            line = cut_line((*lead, (f"? {why}", "unknown")), width)
        else:
            amount = sum(moment.queue.counts.values())  # while frozen, as it was
            tasks = format_count(amount, "task")
            if not latest.is_counted:
                tasks = f"{Figure(amount, is_exact=False).text()} tasks"
            wrong = format_count(latest.problems, "problem") if latest.problems else ""
            if wrong and not latest.is_complete:
                wrong = f"{latest.problems:,}+ problems"
            left = (
                *lead,
                (f"{session.place.claims:<12}  ", "muted"),
                (f"{tasks:>12}  ", ""),
                (wrong, "warn"),
            )
            right = _metrics_cell(session, data.now)
            if width_of(left) + 1 + cells_of(right[0]) > width:
                left = (left[0], *left[2:])  # the locks have how tasks are claimed
            line = join_ends(left, (right,), width)
        row = PaneRow(f"{session.number}", line, Target(keys.LIST, session.number))
        rows.append((not (latest.unavailable or latest.problems), row))
    rows.sort(key=lambda one: one[0])
    hosts = _host_lines(data.sessions, width)
    full = [line for line in hosts if line[-1][1] == "warn"]
    others = [line for line in hosts if line not in full]
    return PaneRows([row for _, row in rows], foot=full, spare=others)


def _host_lines(sessions: Sequence[PlaceSession], width: int) -> list[Line]:
    """How full each disk with tasks is, and the load of the host; a disk that is not the only one
    has the name of its first place."""
    known = [
        (session.name, one) for session in sessions if (one := session.readings.host) is not None
    ]
    disks = {one.device: (name, one) for name, one in reversed(known)}
    several = len(disks) > 1
    room = max((cells_of(f"disk of {name}") for name, _ in disks.values() if several), default=4)
    lines = [
        _gauge_line(
            fit_text(f"disk of {name}" if several else "disk", room),
            share := one.used_bytes / max(1, one.total_bytes),
            f"{share:.0%} of {format_bytes(one.total_bytes)}",
            "warn" if share >= FULL_DISK else "",
            width,
        )
        for name, one in reversed(disks.values())
    ]
    if known:
        load, cpus = known[0][1].load, known[0][1].cpus
        style = "warn" if load > cpus else ""
        text = f"{load:.1f} of {format_count(cpus, 'CPU')}"
        lines.append(_gauge_line(fit_text("load", room), load / cpus, text, style, width))
    return lines


FULL_DISK = 0.9
"""Share of a disk from which it is shown as a warning."""


def _metrics_cell(session: PlaceSession, now: float) -> Run:
    metrics = session.readings.queue
    if metrics is None:
        return "no metrics", "muted"
    if not isinstance(metrics, Samples):
        return ("no file", "muted") if metrics == NOT_THERE else ("unreadable", "unknown")
    return format_age(now - metrics.modified), "muted"


GAUGE_CELLS = 16


def _control_pane(data: OverviewData, width: int) -> PaneRows:
    several = len(data.sessions) > 1
    rows: list[PaneRow] = []
    buckets: list[tuple[int, str, BucketState]] = []
    for session, moment in zip(data.sessions, data.moments, strict=True):
        lead, number = f"{session.name} " if several else "", session.number
        if not isinstance(moment.tokens, str):
            named = [(number, safe_line(one.name) or "all kinds", one) for one in moment.tokens]
            buckets += [(number, f"{lead}{name}", one) for number, name, one in named]
        elif session.place.tokens is not None:
            line = cut_line(((f"  {lead}? {safe_line(moment.tokens)}", "unknown"),), width)
            rows.append(PaneRow(f"{number} ?", line, Target(keys.CONTROLS, number)))
    longest = max((cells_of(name) for _, name, _ in buckets), default=0)
    cells = max(8, min(longest, width - GAUGE_CELLS - 21))
    for number, name, one in buckets:
        line = _bucket_line(fit_text(name, cells), one, width)
        rows.append(PaneRow(f"{number} {name}", line, Target(keys.CONTROLS, number)))
    return PaneRows(rows, () if rows else [(("  no rate limits", "muted"),)])


def _bucket_line(name: str, bucket: BucketState, width: int) -> Line:
    rate = "" if bucket.per_hour is None else f", {bucket.per_hour:,}/h"
    text = "PAUSED" if bucket.paused else f"{bucket.tokens} of {bucket.burst}{rate}"
    style = "warn" if bucket.paused or not bucket.tokens else ""
    return _gauge_line(name, bucket.tokens / max(1, bucket.burst), text, style, width)


def _gauge_line(name: str, share: float, text: str, style: str, width: int) -> Line:
    filled = bar(min(1.0, share), GAUGE_CELLS).rstrip()
    unfilled = "\u2581" * (GAUGE_CELLS - len(filled))
    line: Line = ((f"  {name}  ", ""), (filled, "accent"), (f"{unfilled}  ", "line"), (text, style))
    return cut_line(line, width)


def _outlook_pane(data: OverviewData, width: int) -> PaneRows:
    """When the queue of each place is empty, in a line; below, the forecasts in full sentences."""
    briefs, lines = list[Line](), list[Line]()
    room = max(cells_of(session.name) for session in data.sessions)
    for session, moment in zip(data.sessions, data.moments, strict=True):
        name = session.name
        drain = next((one for one in moment.forecasts if one.topic is ForecastTopic.DRAIN), None)
        style = "unknown" if drain is None else snapshot.forecast_style(drain)
        brief = UNKNOWN if drain is None else drain.brief
        briefs.append(((f"  {fit_text(name, room)}  ", "strong"), (brief, style)))
        for each in moment.forecasts:
            if each.sentence == each.brief:
                continue
            for text in fold_text(each.sentence, max(8, width - room - 4)):
                lead = f"  {fit_text(name, room)}  "
                lines.append(((lead, "strong"), (text, snapshot.forecast_style(each))))
                name = ""
    return PaneRows(head=briefs, spare=[cut_line(line, width) for line in lines])


def _named(name: str, key: str, right: str = "") -> Callable[[OverviewData], Frame]:
    edge: Line = ((right, "muted"),) if right else ()
    return lambda data: Frame(name, key, right=edge)


WIDE_PANES: Mapping[str, SidePane] = {
    "clusters": SidePane(_clusters_frame, _cluster_pane),
    "workers": SidePane(_workers_frame, _worker_pane),
    "transports": SidePane(_transport_frame, _transport_pane, is_recorded=True),
}
"""The panes at the right of two columns, below the graph."""

WALL_PANES: Mapping[str, SidePane] = {
    "clusters": WIDE_PANES["clusters"],
    "locks": SidePane(_named("Locks", "5", "HEARTBEAT"), _lock_pane, is_recorded=True),
    "workers": WIDE_PANES["workers"],
    "transports": WIDE_PANES["transports"],
    "operations": SidePane(_named("Operations", "8", "NEXT"), _operation_pane, is_recorded=True),
    "places": SidePane(_named("Places", "", "METRICS"), _place_pane),
    "controls": SidePane(_named("Controls", "9", "rate limits"), _control_pane, is_recorded=True),
    "forecasts": SidePane(_named("Outlook", ""), _outlook_pane, is_recorded=True),
}
"""The panes at the right of three columns."""


def kind_pane(data: OverviewData, width: int) -> tuple[Frame, PaneRows]:
    """The kinds of the place under the cursor, on a wall of all places; with their titles."""
    sessions = data.sessions if data.is_wall else [data.selected]
    kinds_of_places = [
        (session, PlaceKind(session.name, one, moment.queue.drain.trend is Trend.STALLED))
        for session in sessions
        for moment in (data.moments[session.number - 1],)
        if not moment.queue.unavailable
        for one in (data.live_values.kinds[session.number - 1] if data.live_values.kinds else ())
    ][:MAX_PANE_ROWS]
    kinds = [kind for _, kind in kinds_of_places]
    several = len({kind.place for kind in kinds}) > 1
    head, lines = worker_lines.kind_table(kinds, width, places=several)
    rows = []
    for (session, kind), line in zip(kinds_of_places, lines, strict=True):
        words = filter_language.format_term("kind", "=", kind.figures.kind)
        target = Target(keys.LIST, session.number, State.PENDING, words)
        rows.append(PaneRow(f"{session.number} {kind.figures.kind}", line, target))
    name = "Kinds" if data.is_wall else title_of(data, "Kinds")
    frame = Frame(name, amount=f"{len(rows)}" if rows else "", right=(("last 10m", "muted"),))
    none = _unread_lines(data) or [(("   no tasks", "muted"),)]
    return frame, PaneRows(rows, [head] if rows else none)


def log_rows(
    logs: Sequence[tuple[str, Sequence[LogLine]]], width: int, most: int, level: int
) -> PaneRows:
    """The latest lines of all logs from a level on, the newest last."""
    lines = lines_view.recent_warnings(logs, most, level)
    numbers = {name: number for number, (name, _) in enumerate(logs, 1)}
    times: Counter[tuple[str, LogLine]] = Counter()
    rows, when = [], None
    for warning in lines:
        name, line, text = warning
        when = when if line.when is None else line.when
        times[name, line] += 1
        target = Target(keys.LOG, numbers[name], at=when, line=line.text)
        painted = lines_view.warning_line(name if len(logs) > 1 else "", warning, width)
        rows.append(PaneRow(f"{name} {when} {times[name, line]} {text}", painted, target))
    return PaneRows(rows, () if rows else [lines_view.NO_WARNINGS_LINE])


HISTOGRAM_LINES = 4


def histogram_lines(counts: Sequence[EventCounts], width: int, rows: int) -> list[Line]:
    """Log events of all places by time as blocks; those of failures at the foot, as a warning."""
    if not counts or not any(map(any, (one.all for one in counts))):
        return []
    both = [
        [sum(parts) for parts in zip(*(one[at] for one in counts), strict=True)] for at in (0, 1)
    ]
    width = min(width, MAX_HISTOGRAM_CELLS)
    total, failed = ([value or 0.0 for value in resample(one, width)] for one in both)
    top, steps = max(total), len(SPARKS) - 1
    heights = [
        (round(rows * steps * all_ / top), round(rows * steps * some / top))
        for all_, some in zip(total, failed, strict=True)
    ]
    lines = []
    for row in range(rows - 1, -1, -1):
        runs: list[Run] = [("   ", "")]
        for height, foot in heights:
            level = min(steps, max(0, height - row * steps))
            style = "warn" if foot > row * steps else "muted"
            runs.append((SPARKS[level] if level else " ", style))
        lines.append(merge_runs(runs))
    return lines


MAX_HISTOGRAM_CELLS = 240

NOT_RECORDED, LOG_TOO_SHORT = "not recorded", "log not read so far back"
"""Why values of a past time are unknown: ages, clusters and workers; lines and kinds."""


def unknown_then_line(why: str, known_at: float, name: str = "") -> Line:
    """Why values of a past time are unknown, and the time from which on they are known."""
    return ((f"  {name}{why}: step to {format_clock(known_at)} (.)", "muted"),)


def side_rows(data: OverviewData, width: int) -> dict[str, PaneRows]:
    """The rows of the panes at the right."""
    panes = WALL_PANES if data.is_wall else WIDE_PANES
    return {name: pane.rows(data, width) for name, pane in panes.items()} if width > 0 else {}


def unrecorded_panes(sides: Iterable[str]) -> list[str]:
    """Those of the panes at the right of which nothing is known for a time before the freeze."""
    return [name for name in sides if not WALL_PANES[name].is_recorded]
