"""`replay`: rate, canaries and stop rules from the options, and the progress on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, closing
from functools import partial
from typing import NoReturn

from engine.formats.base.format import Setup
from engine.logs import task_events
from engine.logs.recent_lines import RecentLines
from engine.model import State
from engine.operations.journal import Intent
from engine.operations.plans import Plan
from engine.places.place_watcher import read_queue_figures
from engine.replay import estimate
from engine.replay.outcome_poller import LogEventReader, OutcomeSources, make_processed_reader
from engine.replay.progress import Phase, ReplayProgress
from engine.replay.replay import Replay, ReplayResult
from engine.replay.settings import MAX_RATE, MIN_RATE, RemainderPolicy, ReplayPace, StopRules
from engine.replay.shared_rate import BUCKET_NAME
from engine.store import ChangeableStore, ReadableStore, StoreError
from engine.system.command_errors import EX_UNAVAILABLE, EX_USAGE, fail, print_error
from engine.text.decode import parse_digits
from engine.text.safe import safe_line
from engine.text.times import format_rough_duration
from engine.text.typed_json import to_json
from engine.values import NamedTuple
from tui.cli.plans import plan_command
from tui.cli.plans.plan_command import DONE, NOT_ALL_DONE, SignalCounter
from tui.cli.setup.output import columns, print_lines
from tui.cli.setup.places import make_place
from tui.session.running_operations import find_worker

POLL_INTERVAL_SECONDS = 0.25
"""Seconds between two reads of the progress."""

PROGRESS_INTERVAL_SECONDS = 1.0
"""Minimum seconds between two progress lines."""

DEFAULT_PACE = ReplayPace(attended=False)
"""Default pace. No operator is attending: a doubtful canary stops the replay."""


class PaceOptions(NamedTuple):
    """The options of the pace, as typed."""

    rate: str
    canary: str
    stop_same: int | None
    stop_share: str
    stop_pending: int | None
    rest: str
    timeout: float


def parse_pace(options: PaceOptions) -> ReplayPace | None:
    """The pace from the options; None: no limit and no waiting for outcomes."""
    rate = _rate(options.rate)
    if rate is None:
        return None
    usual = DEFAULT_PACE.stops
    stops = StopRules(
        usual.same if options.stop_same is None else options.stop_same or None,
        *_share(options.stop_share),
        options.stop_pending,
        RemainderPolicy(options.rest),
    )
    canary = _canary(options.canary)
    return ReplayPace(rate, canary, float(options.timeout), stops, attended=False)


def typed_options(options: PaceOptions) -> list[str]:
    """The options of the pace as typed, without defaults."""
    given = ((f"--{name.replace('_', '-')}", value) for name, value in options._asdict().items())
    usual = {"--rest": str(RemainderPolicy.STAY), "--timeout": DEFAULT_PACE.timeout}
    return [
        word
        for name, value in given
        if value not in (None, "", usual.get(name))
        for word in (name, f"{value:g}" if isinstance(value, float) else str(value))
    ]


_MAX_TASKS = 10**6 - 1
"""Largest size of a canary batch, and of the window of --stop-share."""


def _wrong(option: str, text: str, expected: str) -> NoReturn:
    fail(EX_USAGE, f"{option} {safe_line(text[:40])}: expected {expected}")


def _rate(text: str) -> float | None:
    if text == "now":
        return None
    try:
        rate = float(text) if text else float(DEFAULT_PACE.rate or 0)
    except ValueError:
        rate = 0.0
    if not MIN_RATE <= rate <= MAX_RATE:
        _wrong("--rate", text, f"tasks per second, up to {MAX_RATE:g}, or `now`")
    return rate


def _canary(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    if not text:
        return DEFAULT_PACE.canary
    sizes = tuple(parse_digits(size, _MAX_TASKS) or 0 for size in text.split(","))
    if not all(sizes):
        _wrong("--canary", text, "numbers such as 1,10, or `none`")
    return sizes


def _share(text: str) -> tuple[float | None, int]:
    usual = DEFAULT_PACE.stops
    if not text:
        return usual.share, usual.last
    if text == "none":
        return None, usual.last
    percent, _, last = text.partition("/")
    share, tasks = parse_digits(percent, 100), parse_digits(last or str(usual.last), _MAX_TASKS)
    if share is None or not tasks:
        _wrong("--stop-share", text, "percent/tasks such as 10/20, or `none`")
    return share / 100, tasks


def describe_pace(
    setup: Setup, amount: int, pace: ReplayPace | None
) -> tuple[tuple[str, str], ...]:
    """Describe the expected course of a replay before it starts."""
    if pace is None or amount < 2:
        return (("pace", "no limit; outcomes are not awaited"),)
    return tuple(("pace", words) for words in _estimate(setup, amount, pace).sentences)


def _estimate(setup: Setup, amount: int, pace: ReplayPace) -> estimate.ReplayEstimate:
    log, now = RecentLines(setup.log_path), time.time()
    events = tuple(task_events.read_events(log.poll(now)))
    log.close()
    figures = read_queue_figures(make_place(setup, setup.place, setup.words))
    known = find_worker(setup.examine_lock(), figures, events, time.time())
    return estimate.estimate_replay(amount, pace, known)


def apply_plan(
    setup: Setup,
    store: ChangeableStore,
    plan: Plan,
    intent: Intent,
    pace: ReplayPace | None,
    *,
    as_json: bool,
) -> int:
    """Apply a plan, print the result and return the exit code; with a pace also the progress, on
    standard error.

    Of a paced plan the first Ctrl-C stops sending and waits for the outcomes of sent tasks; a
    second ends the wait. It also runs without a worker, which a timer may start, but first prints
    that none runs.
    """
    if pace is None:
        return plan_command.carry_out(setup, store, plan, intent, as_json=as_json)
    replay_estimate = _estimate(setup, plan.amount, pace)
    if replay_estimate.worker and replay_estimate.runs is None:
        patience = format_rough_duration(pace.timeout)
        print_error(f"{replay_estimate.worker}; ends after {patience} without an outcome")
    pending_counts = _count_pending(setup)
    logs = (setup.log_path, f"{setup.queue.log_dir}/mail.log", *setup.config.logs)
    hearing = LogEventReader(logs)

    def close() -> None:
        hearing.close()
        pending_counts.close()

    replay = Replay(
        setup.open_store,
        plan,
        pace,
        journal=setup.journal(),
        intent=intent._replace(pace=to_json(pace)),
        facts=OutcomeSources(
            hearing,
            make_processed_reader(setup.queue.queue_metrics),
            partial(next, pending_counts),
            close,
        ),
        buckets=f"{setup.state_folder}/{BUCKET_NAME}.buckets",
        root=setup.queue.root,
    )
    with SignalCounter() as interrupted:
        replay.start()
        _follow(replay, interrupted)
    return _print_result(setup, replay.result, as_json)


def _follow(replay: Replay, interrupted: SignalCounter) -> None:
    orders = ("stop", "leave")
    pause, printed_line, printed_at = threading.Event(), "", float("-inf")
    given = 0
    while not replay.progress.is_over:
        pause.wait(POLL_INTERVAL_SECONDS)
        times = interrupted.times  # a signal handler increases it
        for order in orders[given:times]:
            replay.order(order)
            if order == "stop":
                again = "Ctrl-C again: do not wait for outcomes"
                print_error(f"stopping: unsent tasks stay there; {again}")
        given = times
        line, now = describe_progress(replay.progress), time.monotonic()
        began = replay.progress.phase is not Phase.STARTING
        if (
            began
            and line != printed_line
            and (now - printed_at >= PROGRESS_INTERVAL_SECONDS or replay.progress.is_over)
        ):
            print_error(line)
            printed_line, printed_at = line, now
    replay.close()  # the replay has ended: this only joins its thread


def describe_progress(progress: ReplayProgress) -> str:
    """Describe the progress on one line."""
    tally = progress.tally
    parts = [f"{progress.sent:,} of {progress.planned - progress.excluded:,} sent"]
    counts = {
        "delivered": tally.delivered,
        "failed again": tally.failed,
        "running": tally.running,
        "waiting": tally.waiting,
        "unknown": tally.unknown,
        "taken by others": tally.taken,
        "skipped": progress.skipped,
        "refused": progress.refused,
        "not sent": progress.unsent if progress.stopped else 0,
        "held": progress.held,
    }
    parts += [f"{amount:,} {name}" for name, amount in counts.items() if amount]
    why = progress.stopped or progress.why
    more = [safe_line(words) for words in (why, progress.trouble) if words]
    return "; ".join([", ".join(parts), *more])


def _print_result(setup: Setup, result: ReplayResult, as_json: bool) -> int:
    progress, report = result.progress, result.report
    if report is None:
        why = progress.trouble or "the replay ended before it sent a task"
        fail(EX_UNAVAILABLE, safe_line(why))
    tally = progress.tally
    became = {
        **tally._asdict(),
        "held": progress.held,
        "stopped": progress.stopped,
        "became": {
            ident: [str(known.outcome), known.reason]
            for ident, known in result.known_outcomes.items()
        },
    }
    code = plan_command.print_report(setup, report, as_json, became)
    if not as_json:
        print_lines([((f" {describe_progress(progress)}"[: columns()], ""),)])
    sys.stdout.flush()
    is_successful = not tally.failed and not progress.stopped and progress.phase is Phase.OVER
    return code if code != DONE or is_successful else NOT_ALL_DONE


def _count_pending(setup: Setup) -> Generator[int | None, None, None]:
    """Yield the number of pending tasks each time it is asked, for a stop rule; None if they cannot
    be counted."""
    with ExitStack() as stack:
        store: ReadableStore | None = None
        while True:
            try:
                if store is None:
                    store = stack.enter_context(closing(setup.open_store()))
                amount: int | None = store.count_tasks()[State.PENDING]
            except StoreError:
                amount = None
            yield amount
