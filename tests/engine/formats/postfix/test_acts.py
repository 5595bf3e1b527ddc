"""What postsuper printed, and what may be done with which message."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.formats.postfix import acts
from engine.formats.postfix.acts import DELETE, EXPIRE, HOLD, RELEASE, Verb, parse_end
from engine.formats.postfix.instance import SETTING_NAMES, Instance
from engine.formats.postfix.lines import EXPIRED_KEY, HELD_KEY, QUEUE_KEY, STATES
from engine.model import Lease, State, Task
from engine.operations import plans
from engine.operations.trash import SINCE_KEY
from engine.programs.prefix import HERE
from engine.system.run_program import ProgramEnd
from engine.verbs import VERBS, edges_of
from tests.tables import each

SAMPLES = Path(__file__).parent / "samples"

TIMES = dict.fromkeys(SETTING_NAMES, "") | {"queue_run_delay": "300s"}
TIMES |= dict.fromkeys(("maximal_queue_lifetime", "bounce_queue_lifetime"), "5d")
INSTANCE = Instance("/etc/postfix", HERE, "/usr/sbin/", TIMES, uid=0, device=None)
EDGES = acts.make_edges(INSTANCE)
P, H, A, T = State.PENDING, State.HELD, State.ACTIVE, State.TRASH
DEAD, DONE = State.DEAD, State.DONE


def transcripts() -> dict[str, ProgramEnd]:
    """How each call of the samples ended, by the call and its input."""
    ends = {}
    for part in (SAMPLES / "postsuper.txt").read_text().split("\n\n"):
        lines = part.splitlines()
        if lines and lines[0].startswith("$ "):
            given = [line[2:] for line in lines if line[:2] == "< "]
            errors = "".join(f"{line[2:]}\n" for line in lines if line[:2] == "2 ").encode()
            status = int(lines[-1].split()[2])
            ends[" ".join([lines[0][2:], *given])] = ProgramEnd(status, errors, 0.0)
    return ends


@each(
    ("call", "verb", "done", "is_complete"),
    [
        ("postsuper -h - 4D9752DA018 DEADBEEF123", HOLD, [], True),
        ("postsuper -h - deferred 36E8E70BC9E 3C6762", HOLD, ["36E8E70BC9E"], True),
        ("postsuper -H - hold 4D9752DA018", RELEASE, ["4D9752DA018"], True),
        ("postsuper -H - deferred 4D9752DA018", RELEASE, [], True),
        ("postsuper -e - 4D9752DA018", EXPIRE, ["4D9752DA018"], True),
        ("postsuper -d - deferred 4D9752DA018", DELETE, [], True),
        ("postsuper -d - nosuchqueue 4D9752DA018", DELETE, [], False),
        ("postsuper -h 4D9752DA018      [as web]", HOLD, [], False),
        ("postsuper -h - no/such ../../etc/passwd 4D9752DA018 ", HOLD, [], True),
    ],
)
def test_printed_lines_decide(call: str, verb: Verb, done: list[str], is_complete: bool) -> None:
    """A message with its own line is done; with the last line, all were gone through."""
    end = parse_end(verb, transcripts()[call])
    assert (sorted(end.done), end.is_complete) == (done, is_complete)
    assert bool(end.why) is not is_complete


def test_the_first_line_counts_though_the_program_fails() -> None:
    """With a log that cannot be written, one is done; of the others nothing is known."""
    errors = (
        b"postsuper: 33C402DA0A9: placed on hold\n"
        b"postsuper: fatal: open logfile '/var/log/mail.log': cannot open file: Permission denied\n"
    )
    end = parse_end(HOLD, ProgramEnd(1, errors, 1.0), "Permission denied")
    assert (end.done, end.is_complete) == ({"33C402DA0A9"}, False)
    assert end.why == "postsuper cannot write /var/log/mail.log while Postfix is stopped"
    limited = ProgramEnd(0, errors, 1.0, limit="not ended after 120 s")
    assert not parse_end(HOLD, limited).is_complete


def a_task(state: State, word: str = "", **extra: str) -> Task:
    """A message in a state."""
    task = Task("4D9752DA018", "mail", state, 0.0, word=word, extra=extra)
    return task._replace(recipients=("u@far.example",))


@each(
    ("task", "queue"),
    [
        (a_task(P), "deferred"),
        (a_task(P, "incoming"), "incoming"),
        (a_task(A, "delivering"), "active"),
        (a_task(H, "delivered"), "hold"),
        (a_task(T), "hold"),
        (a_task(DEAD, **{QUEUE_KEY: "active"}), "active"),
    ],
)
def test_a_task_is_in_a_queue(task: Task, queue: str) -> None:
    """The queue is that of the state, of its finer word, or named beside it."""
    assert acts.queue_of(task) == queue


@each(
    ("task", "end", "why"),
    [
        (a_task(P), H, ""),
        (a_task(P, "maildrop"), H, "pickup has not taken it yet"),
        (a_task(P, "incoming"), DONE, "only from deferred and hold"),
        (a_task(H), DONE, ""),
        (a_task(DEAD, **{QUEUE_KEY: "active"}), DONE, "only from deferred and hold"),
        (a_task(DEAD, **{QUEUE_KEY: "active"}), T, "the queue manager has it"),
        (a_task(DEAD, **{QUEUE_KEY: "hold"}), T, ""),
        (a_task(P, "incoming"), P, "only from deferred"),
        (a_task(T), DEAD, "it is not expired"),
        (a_task(T, **{EXPIRED_KEY: "yes"}), P, "it is expired"),
        (a_task(T), None, "cannot prove that it stayed on hold"),
        (a_task(T, **{HELD_KEY: "1", SINCE_KEY: "10000"}), None, "kept for 23h59m more"),
        (a_task(T, **{HELD_KEY: "1", SINCE_KEY: "-80000"}), None, ""),
    ],
)
def test_what_is_barred(task: Task, end: State | None, why: str) -> None:
    """Each message that an act would harm, or not reach, is barred with the reason."""
    bar = EDGES[task.state, end].bars(task, 10_060.0)
    assert bar.startswith(why) and bool(bar) is bool(why)


def test_each_edge_has_its_act() -> None:
    """Between known states; none leads to active, and no requeue starts there."""
    assert set(EDGES) - set(acts.VERBS) == {(P, P)}
    assert {start for start, _ in EDGES} == {*STATES}
    assert not [end for _, end in EDGES if end is A]
    assert (A, DONE) not in EDGES
    assert EDGES[H, P].warning == "tried at the next queue run, within 5m; O: now"


SOON = "past the lifetime of 5d within 24h"
OLD = "past the lifetime of 5d: returned after one attempt; Q renews it"
DAY = 86400.0


@each(
    ("verb", "state", "ages", "warnings"),
    [
        ("release", H, (1, 5), ["tried at"]),
        ("release", H, (1, 5.1, 9), ["tried at", f"2 {OLD}"]),
        ("restore", T, (1, 9), [f"1 {OLD}"]),
        ("hold", P, (3.9,), []),
        ("hold", P, (3.9, 4.1, 7), [f"1 {OLD}", f"1 {SOON}"]),
        ("hold", A, (4.1, 1), [f"1 {SOON}"]),
        ("promote", P, (9,), []),
    ],
)
def test_a_plan_counts_the_messages_past_their_lifetime(
    verb: str, state: State, ages: Sequence[float], warnings: Sequence[str]
) -> None:
    """It warns with the number of those whose lifetime is over, or soon."""
    target = P if verb == "restore" else None
    tasks = [a_task(state)._replace(created=100 * DAY - age * DAY) for age in ages]
    texts = warnings_of(verb, tasks, INSTANCE, target)
    assert len(texts) == len(warnings)
    assert all(text.startswith(start) for text, start in zip(texts, warnings, strict=True)), texts
    delivered = [task._replace(recipients=()) for task in tasks]
    assert not [text for text in warnings_of(verb, delivered, INSTANCE, target) if "past" in text]


def test_a_plan_counts_bounces_and_deliveries() -> None:
    """Bounces by a lifetime of their own, never longer than the other one, in days without a unit;
    active messages by the processes that deliver them."""
    tasks = [a_task(H)._replace(created=98.5 * DAY, sender=one) for one in ("<>", "a@b")]
    for setting, is_counted in (("1", True), ("1d", True), ("9d", False)):
        instance = INSTANCE._replace(settings=TIMES | {"bounce_queue_lifetime": setting})
        _, *counted = warnings_of("release", tasks, instance)
        start = "1 without a sender past the lifetime of 1d: dropped after one attempt"
        assert [text.startswith(start) for text in counted] == [True] * is_counted
    waits = a_task(A)._replace(created=100 * DAY)
    busy = waits._replace(word="delivering", lease=Lease("PID 77", 0.0))
    assert warnings_of("hold", [waits], INSTANCE) == []
    assert warnings_of("hold", [waits, busy], INSTANCE) == ["1 in delivery: that goes on"]


def warnings_of(
    verb: str, tasks: Sequence[Task], instance: Instance, target: State | None = None
) -> list[str]:
    """The warnings of a plan for these messages."""
    edges, moves = acts.make_edges(instance), Counter[tuple[State, State | None, int]]()
    for task in tasks:
        warned = plans.warning_bits(edges, verb, task, now=100 * DAY, target=target)
        moves[task.state, target, warned] += 1
    (preview,) = plans.preview_transitions(verb, moves, edges)
    assert preview.amount == len(tasks)
    return [*preview.warnings]


def test_attempts_are_asked_for_few_messages() -> None:
    """Of more than 100 messages of a plan none is promoted, and the words name the control."""
    stopped = acts.allow_edges(EDGES, "", is_running=False)
    for edges, number, why in (
        (EDGES, 100, ""),
        (EDGES, 101, "at most 100 in a plan; for more: control flush"),
        (stopped, 101, acts.STOPPED),
    ):
        assert plans.row_refusal(edges, "promote", plans.Row("", P, ""), number) == why


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("is_root", [True, False])
def test_rights_and_a_stopped_instance_refuse(is_root: bool, is_running: bool) -> None:
    """Only root changes messages; an attempt needs no rights, but a running instance."""
    refusal, stopped, attempt = (
        "" if is_root else "only root",
        "" if is_running else acts.STOPPED,
        (P, P),
    )
    allowed = acts.allow_edges(EDGES, refusal, is_running=is_running)
    assert allowed[attempt].refusal == stopped
    assert {edge.refusal for its, edge in allowed.items() if its != attempt} == {refusal}
    user = INSTANCE._replace(uid=1000, sudo="sudo -u root spooldeck")
    assert INSTANCE.refusal == ""
    assert user.refusal == "only root may do this: sudo -u root spooldeck"
    assert [verb for verb in VERBS if attempt in edges_of(allowed, verb)] == ["promote"]
    controls = acts.make_controls(INSTANCE, is_running=is_running)
    assert controls["flush"].refusal == stopped
