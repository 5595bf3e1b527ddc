"""What to make of a lock: the verdict with its certainty, what a repeat would be, the rate."""

from __future__ import annotations

import pytest

from engine import events, triage
from engine.logtail import LogLine
from engine.model import LockEvidence, Verdict
from engine.triage import Certainty, Told, accepts, finding, on_record, runs_before, told
from engine.vitals import Done, Vitals

NOW = 1_795_167_728.0
ID = "20261120T022011Z-mail_send-7c01d2ab"
STUCK = LockEvidence(
    *(Verdict.STUCK, 4711, NOW - 2820, 2820.0, "PID 4711 lives, but gave no sign of life"),
    holders=(4711,),
)
ASLEEP = Vitals(4711, 100.0, state="S", waits="do_wait", moved=(0, 0))
STILL, BUSY = Done(5.0, 0.0, 0), Done(5.0, 3.2, 0)


def a_line(text: str, when: float | None = NOW - 60) -> LogLine:
    """A line of a log."""
    return LogLine(when, "INFO", text, "queue.log")


@pytest.mark.parametrize(
    ("evidence", "holder", "done", "certainty", "words"),
    [
        (STUCK, ASLEEP, STILL, "sure", "for 47 min, and it does nothing: it hangs"),
        (STUCK, ASLEEP, BUSY, "doubtful", "but it works: 3.20 s of CPU"),
        (STUCK, ASLEEP, None, "likely", "gave no sign of life"),
        (STUCK, ASLEEP, Done(5.0, 0.0, None), "likely", "it uses no CPU"),
        (STUCK, ASLEEP._replace(state="T"), BUSY, "sure", "is stopped by a signal"),
        (STUCK, ASLEEP._replace(state="D"), None, "sure", "waits for a disk or a server"),
        (STUCK, None, None, "likely", "gave no sign of life"),
        (STUCK._replace(proven=False), ASLEEP, STILL, "likely", "it hangs"),
        (STUCK._replace(doubt="PID 4711 is this process"), ASLEEP, STILL, "doubtful",
         "nobody is signalled: PID 4711 is this process"),
        (STUCK._replace(holders=(4712,)), ASLEEP._replace(pid=4712), STILL, "sure",
         "PID 4712 (left behind by PID 4711)"),
        (LockEvidence(Verdict.FREE, reason="no lock file"), None, None, "sure", "nobody holds"),
        (LockEvidence(Verdict.STALE, 7, reason="PID 7 is gone"), None, None, "sure", "is gone"),
        (LockEvidence(Verdict.STALE, reason="it names no process", proven=False), None, None,
         "likely", "it names no process"),
        (LockEvidence(Verdict.HELD, 7, age=3.0, reason="PID 7 is at work"), ASLEEP, None, "sure",
         "its last sign of life is 3 s old"),
        (LockEvidence(Verdict.HELD, 7, age=3.0), ASLEEP._replace(pid=7, state="T"), None,
         "doubtful", "kill -CONT 7 lets it go on"),
        (LockEvidence(Verdict.UNKNOWN, reason="Permission denied"), None, None, "doubtful",
         "cannot be told: Permission denied"),
    ],
)  # fmt: skip
def test_a_verdict_with_its_certainty(
    evidence: LockEvidence, holder: Vitals | None, done: Done | None, certainty: str, words: str
) -> None:
    """Each verdict says how sure it is, and why, in one sentence."""
    found = finding(evidence, holder, done)

    assert found.certainty is Certainty(certainty)
    assert words in found.words
    assert found.words.startswith(f"{evidence.verdict.upper()} ({certainty}): ")


@pytest.mark.parametrize(
    ("text", "yes"),
    [
        (f"MAIL_SEND_RESULT task_id={ID} status=success transport=postfix retries=0", True),
        (f"Task completed: {ID} (mail_send)", True),
        (f"{ID}: 250 2.0.0 Ok: queued as 4F2A", True),
        (f"{ID} message accepted for delivery", True),
        (f"{ID} sent to mx7.example.net", True),
        (f"MAIL_SEND_RESULT task_id={ID} status=failed transport=curl retries=1 last_error=250 no",
         False),
        (f"Task failed: {ID} (mail_send): not sent", False),
        (f"Processing task: {ID} (mail_send: 250 mails to be sent)", False),
        (f"{ID} was not accepted", False),
        (f"{ID} 421 4.7.0 try again later", False),
        (f"{ID} could not be delivered", False),
        (f"{ID} asked for 2500 bytes", False),
    ],
)  # fmt: skip
def test_what_a_line_says_of_a_repeat(text: str, yes: bool) -> None:
    """A line that says that it was accepted, sent or completed; what takes that back does not."""
    assert accepts(a_line(text)) is yes


def test_once_accepted_a_repeat_is_a_duplicate() -> None:
    """Whatever a log says later, what was accepted once is to be held, and the line is quoted."""
    lines = [
        a_line(f"{ID}: 250 2.0.0 Ok", NOW - 2700),
        a_line(f"{ID}: connection lost", NOW - 2600),
        a_line("another: 421 later", NOW - 60),
    ]

    found = told(lines, ID)

    assert (found.last, found.accepted, found.advice) == (lines[1], lines[0], "hold")
    words = on_record(found, NOW)
    assert words.startswith(f'"{ID}: 250 2.0.0 Ok" at 08:57:08Z (45 min ago)')
    assert words.endswith("a repeat would be a duplicate")


def test_without_a_word_of_it_a_task_may_run_again() -> None:
    """Where no log says that it was done, it is given back; where none can be read, who knows."""
    assert told([], ID).advice == "release"
    assert on_record(told([], ID), NOW).startswith("no log speaks of it")
    assert "the last word: nothing says" in on_record(told([a_line(f"{ID} begun")], ID), NOW)
    assert on_record(Told(unknown="EACCES"), NOW).startswith("? EACCES: whether a repeat")


def test_foreign_words_are_inert() -> None:
    """What a log says acts on no terminal."""
    words = on_record(told([a_line(f"{ID} \x1b[31mred")], ID), NOW)

    assert words.isprintable()
    assert "[31mred" in words


def a_run(when: float, text: str = "Processing task: {} (mail_send)") -> events.Event:
    """Something that a log says happened."""
    found = events.event(a_line(text.format(ID), when))
    assert found is not None
    return found


def test_the_rate_before_it_got_stuck() -> None:
    """Runs in the ten minutes before the last sign of life are counted, not those after it."""
    silent = NOW - 2820
    before = [a_run(silent - second) for second in range(590, 0, -10)]
    mail = [a_run(silent - 5, "MAIL_SEND_ATTEMPT task_id={} attempt=1 transport=postfix")]

    rate = runs_before([a_run(silent - 700), *before, *mail, a_run(NOW - 60)], silent)

    assert rate == pytest.approx(59 / 600)


@pytest.mark.parametrize("ago", [[], [20.0], [-10.0, -20.0]], ids=["none", "too few", "after it"])
def test_no_rate_where_too_little_is_known(ago: list[float]) -> None:
    """Without half a minute of the time before there is no rate, and that is said."""
    assert runs_before([a_run(NOW - seconds) for seconds in ago], NOW) is None
    assert triage.flows_again(34, None).startswith("? the rate")


def test_how_long_it_would_take() -> None:
    """What waits, at the rate from before; slow ones are told by the minute."""
    assert triage.flows_again(182, 7.1) == (
        "it would flow again at about 7.1/s, as it did before, about 25 s until all is through"
    )
    assert "0.9 a minute" in triage.flows_again(0, 0.015)
    assert "through" not in triage.flows_again(0, 0.015)
