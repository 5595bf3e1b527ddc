"""Checks that fit any store: access, problems, times in the future, overdue and dead tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from engine.doctor.finding import MAX_LISTED, Finding, bad, count_are, ok, run_checks, warn
from engine.model import Problem, State, Task, fold_problems
from engine.policy import DAY_SECONDS, DLQ_ALERT_LIMIT, UNITS_PER_TOKEN
from engine.seen_time import note_run
from engine.store import ReadableStore, Unavailable
from engine.system.run_clock import describe_step, read_moment, read_seen_time
from engine.text.times import format_time
from engine.verbs import VERBS, edges_of

CLOCK_SKEW_SECONDS = 60.0
"""Clock skew in seconds: how far a time may be ahead of our clock before it is reported."""

CLOCK_FIX = "timedatectl  # is the clock right? was it set back?"
"""What repairs a time in the future."""

STEP_SHOWN_SECONDS = 7 * DAY_SECONDS
"""Seconds for which a step of the clock is reported."""

OVERDUE_SECONDS = UNITS_PER_TOKEN
"""Seconds for which a task may be overdue before it is reported."""


def check_store(
    store: ReadableStore, now: float, command: str, work: str
) -> Iterator[tuple[str, Finding]]:
    """Run every check of this module; `command` selects the place on the command line, `work`
    runs a worker there, "" if no worker of this project can."""
    problems: dict[str, Problem] = {}
    counts: Counter[State] = Counter()
    ahead: list[str] = []
    overdue: list[float] = []
    try:
        for answer in store.scan():
            if isinstance(answer, Problem):
                problems[answer.where] = answer
        for answer in store.scan(store.states.values()):
            if isinstance(answer, Task):
                counts[answer.state] += 1
                if answer.created > now + CLOCK_SKEW_SECONDS:
                    ahead.append(f"{answer.id}, created {format_time(answer.created)}")
                since = max(answer.due or 0.0, answer.created)
                if answer.state is State.PENDING and since <= now - OVERDUE_SECONDS:
                    overdue.append(since)
    except Unavailable as error:
        yield "tasks", bad(str(error))
        return
    listed = ", ".join(f"{counts[state]:,} {word}" for state, word in store.states.items())
    yield "tasks", ok(listed)
    for why, verbs in sorted(_refused_verbs(store).items()):
        yield "rights", warn(f"{', '.join(verbs) or 'a worker'}: {why}")
    findings = list_problems(list(problems.values()), lambda problem: f"{command} status")
    yield from run_checks([("problems", findings)])
    for what in ahead[:MAX_LISTED]:
        yield "clock", warn(f"ahead of the clock ({format_time(now)}): {what}", CLOCK_FIX)
    if (word := store.states.get(State.DEAD)) is not None:
        yield "dead", check_dead(counts[State.DEAD], word, f"{command} clusters")
    yield "worker", check_overdue(overdue, "task", "runs", work)


def _refused_verbs(store: ReadableStore) -> dict[str, list[str]]:
    """The verbs that a store refuses by the reason; none for what only a worker does."""
    refused = {edge.refusal: list[str]() for edge in store.edges.values() if edge.refusal}
    for verb in VERBS:
        edges = edges_of(store.edges, verb).values()
        for why in {edge.refusal for edge in edges if edge.refusal}:
            refused[why].append(verb)
    return refused


def check_run_times(folder: str, root: str, now: float) -> Iterator[Finding]:
    """Whether the clock was set since the last run at a place, or by a run of the last days;
    `folder` is our own there."""
    try:
        times = note_run(read_seen_time(folder, root), read_moment(now))
    except OSError:
        return  # other checks report what cannot be read
    if times.stepped_at is not None and now - times.stepped_at < STEP_SHOWN_SECONDS:
        what = f"{describe_step(times)}: all ages count from then"
        yield warn(what, "timedatectl  # is the clock right now?")


def list_problems(
    problems: Sequence[Problem], fix: Callable[[Problem], str], limit: int = MAX_LISTED
) -> Iterator[Finding]:
    """A finding for each problem up to a limit, and one with the number of the others."""
    problems = fold_problems(problems)
    for problem in problems[:limit]:
        yield warn(f"{problem.where}: {problem.what}", fix(problem))
    if len(problems) > limit:
        more = len(problems) - limit
        words = "and 1 more problem" if more == 1 else f"and {more:,} more problems"
        yield warn(words, "repair those above, then run doctor again")


def check_dead(dead: int, word: str, fix: str) -> Finding:
    """A finding on the number of dead tasks, with the store's word; `remedy` lists them."""
    if dead <= DLQ_ALERT_LIMIT:
        return ok(f"at most {DLQ_ALERT_LIMIT} tasks are {word}")
    return warn(f"{dead:,} tasks are {word} (over {DLQ_ALERT_LIMIT})", fix)


def check_overdue(overdue: Sequence[float], noun: str, verb: str, fix: str) -> Finding:
    """A finding on overdue tasks, given their due times (epoch seconds UTC). `noun` and `verb` say
    what they are and what should happen to them: mail, sends."""
    if not overdue:
        return ok(f"no {noun} is overdue")
    them = "it" if len(overdue) == 1 else "them"
    since = f"the first since {format_time(min(overdue))}"
    what = f"{count_are(len(overdue), noun)} overdue, {since}: no process {verb} {them}"
    return warn(what, fix)
