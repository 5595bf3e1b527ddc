"""Triage of a lock: the verdict with its certainty, duplicates on a repeat, the rate."""

from functools import partial

import pytest

from engine.locks.process_stats import ProcessDelta, ProcessStats
from engine.locks.token_buckets import BucketState
from engine.logs import task_events
from engine.model import LockEvidence, Verdict
from engine.monitor import lock_diagnosis
from engine.monitor.lock_diagnosis import describe_task_log, start_rate_before, summarize_task_log
from engine.monitor.run_forecast import Pace
from tests.engine.task_builders import log_line
from tests.tables import each

NOW = 1_795_167_728.0
a_line = partial(log_line, when=NOW - 60)
ID = "20261120T022011Z-mail_send-7c01d2ab"
ALIVE = "PID 4711 is alive, no heartbeat"
STUCK = LockEvidence(Verdict.STUCK, 4711, NOW - 2820, 2820.0, ALIVE, holders=(4711,))
ASLEEP = ProcessStats(4711, 100.0, state="S", waits="do_wait", io_bytes=(0, 0))
STILL, BUSY = ProcessDelta(5.0, 0.0, 0), ProcessDelta(5.0, 3.2, 0)
EARLY = "PID 4711 started after its last heartbeat"
AT_WORK = LockEvidence(Verdict.HELD, 7, age=3.0, reason="PID 7 is running")
UNPROVEN = LockEvidence(Verdict.STALE, reason="it names no process", is_proven=False)
VERDICTS: tuple[tuple[LockEvidence, ProcessStats | None, ProcessDelta | None, str, str], ...] = (
    (STUCK, ASLEEP, STILL, "sure", "alive, no heartbeat for 47m; idle: hung in do_wait"),
    (STUCK, ASLEEP, BUSY, "doubtful", "but it works: 3.20 s of CPU"),
    (STUCK, ASLEEP, None, "likely", ALIVE),
    (STUCK, ASLEEP, ProcessDelta(5.0, 0.0, None), "likely", "no CPU used"),
    (STUCK, ASLEEP._replace(state="T"), BUSY, "sure", "is stopped by a signal"),
    (STUCK, ASLEEP._replace(state="D"), None, "sure", "waits for a disk or a server"),
    (STUCK, None, None, "likely", ALIVE),
    (STUCK._replace(is_proven=False), ASLEEP, STILL, "likely", "idle: hung"),
    (STUCK._replace(signal_refusal="PID 4711 is this process"), ASLEEP, STILL, "doubtful",
     "no process is signalled: PID 4711 is this process"),
    (STUCK._replace(holders=(4712,)), ASLEEP._replace(pid=4712), STILL, "sure",
     "PID 4712 (left behind by PID 4711)"),
    (LockEvidence(Verdict.FREE, reason="no lock file"), None, None, "sure", "not held"),
    (LockEvidence(Verdict.STALE, 7, reason="PID 7 is gone"), None, None, "sure", "is gone"),
    (UNPROVEN, None, None, "likely", "it names no process"),
    (AT_WORK, ASLEEP, None, "sure", "last heartbeat 3s ago"),
    (AT_WORK, ASLEEP._replace(pid=7, state="T"), None, "doubtful", "kill -CONT 7 resumes it"),
    (AT_WORK._replace(contradiction=EARLY), None, None, "likely", f"3s ago; but {EARLY}"),
    (STUCK._replace(contradiction=EARLY, signal_refusal=EARLY), ASLEEP, STILL, "likely", EARLY),
    (STUCK._replace(contradiction=EARLY), ASLEEP, BUSY, "doubtful", f"not hung; but {EARLY}"),
    (LockEvidence(Verdict.UNKNOWN, reason="Permission denied"), None, None, "doubtful",
     "cannot read lock: Permission denied"),
)  # fmt: skip


def test_a_verdict_with_its_certainty() -> None:
    """Each verdict says how sure it is, and why; a contradiction makes it likely at most."""
    for evidence, holder, done, certainty, words in VERDICTS:
        diagnosis = lock_diagnosis.diagnose_lock(evidence, holder, done)
        assert diagnosis.certainty is lock_diagnosis.Certainty(certainty), words
        assert words in diagnosis.sentence
        assert diagnosis.sentence.startswith(f"{evidence.verdict.upper()} ({certainty}): ")


RESULT = f"MAIL_SEND_RESULT task_id={ID} status"
ACCEPTED = [
    f"{RESULT}=success transport=postfix retries=0", f"Task completed: {ID} (mail_send)",
    f"{ID}: 250 2.0.0 Ok: queued as 4F2A", f"{ID} message accepted for delivery",
    f"{ID} sent to mx7.example.net",
]  # fmt: skip
NOT_ACCEPTED = [
    f"{RESULT}=failed transport=curl retries=1 last_error=250 no",
    f"Task failed: {ID} (mail_send): not sent",
    f"Processing task: {ID} (mail_send: 250 mails to be sent)", f"{ID} was not accepted",
    f"{ID} 421 4.7.0 try again later", f"{ID} could not be delivered", f"{ID} asked for 2500 bytes",
]  # fmt: skip


def test_a_line_says_that_a_mail_was_accepted() -> None:
    """A line that says that it was accepted, sent or completed; what takes that back does not."""
    assert [text for text in ACCEPTED if not lock_diagnosis.is_success_line(a_line(text))] == []
    assert [text for text in NOT_ACCEPTED if lock_diagnosis.is_success_line(a_line(text))] == []


def test_once_accepted_a_repeat_is_a_duplicate() -> None:
    """It is held, and the line quoted; else given back, or unknown if no log can be read."""
    accepted = a_line(f"{ID}: 250 2.0.0 Ok", when=NOW - 2700)
    lost = a_line(f"{ID}: connection lost", when=NOW - 2600)
    summary = summarize_task_log([accepted, lost, a_line("another: 421 later")], ID)
    assert (summary.last, summary.accepted, summary.advice) == (lost, accepted, "hold")
    words = describe_task_log(summary, NOW)
    assert words.startswith(f'"{ID}: 250 2.0.0 Ok" at 08:57:08Z (45m ago)')
    assert words.endswith("a repeat would be a duplicate")
    red = describe_task_log(summarize_task_log([a_line(f"{ID} \x1b[31mred")], ID), NOW)
    assert red.isprintable() and "[31mred" in red

    assert summarize_task_log([], ID).advice == "release"
    assert describe_task_log(summarize_task_log([], ID), NOW).startswith("no log line mentions it")
    begun = describe_task_log(summarize_task_log([a_line(f"{ID} begun")], ID), NOW)
    assert "the last log line: no record" in begun
    unknown = describe_task_log(lock_diagnosis.TaskLogSummary(unknown="EACCES"), NOW)
    assert unknown.startswith("? EACCES: unknown whether a repeat")


def a_run(when: float, text: str = "Processing task: {} (mail_send)") -> task_events.TaskEvent:
    """Something that a log says happened."""
    task_event = task_events.parse_event(a_line(text.format(ID), when=when))
    assert task_event is not None
    return task_event


def test_how_long_it_would_take() -> None:
    """At the rate before the last heartbeat; without half a minute of that there is no rate."""
    silent = NOW - 2820
    before = [a_run(silent - second) for second in range(590, 0, -10)]
    mail = [a_run(silent - 5, "MAIL_SEND_ATTEMPT task_id={} attempt=1 transport=postfix")]
    rate = start_rate_before([a_run(silent - 700), *before, *mail, a_run(NOW - 60)], silent)
    assert rate == pytest.approx(59 / 600)
    for ago in ([], [20.0], [-10.0, -20.0]):
        assert start_rate_before([a_run(NOW - seconds) for seconds in ago], NOW) is None


@each(
    ("due", "buckets", "rate", "text"),
    [
        ({"": 182}, (), 7.1, "would drain at 7.1/s, 25s"),
        ({}, (), 0.05, "would drain at 3/min"),
        ({"": 100}, (), 0.0, "would drain at 0.0/s"),
        ({"": 34}, (), None, "drain rate unknown (no earlier log)"),
        ({"": 37, "mail": 178}, [BucketState("mail", 0, 5, NOW + 5, 720)], 3.0,
         "would drain in 14m: 178 x 5s at 720/h of mail"),
        ({"mail": 9}, [BucketState("mail", 0, 5, None, 0)], 3.0,
         "would not drain: rate limit is 0 of mail"),
        ({"": 100, "mail": 1}, [BucketState("mail", 0, 5, None, 0)], 3.0,
         "would not drain: rate limit is 0 of mail"),
        ({"mail": 9}, "not a number", 3.0,
         "drain time unknown: rate limits cannot be read: not a number"),
    ],
)  # fmt: skip
def test_how_long_the_due_tasks_would_take(
    due: dict[str, int], buckets: list[BucketState] | str, rate: float | None, text: str
) -> None:
    """Once the lock is free: at the rate before, or of the rate limit that takes longer."""
    pace = Pace(buckets, per_second=rate, is_busy=True)
    assert lock_diagnosis.describe_drain(due, pace, NOW) == text
