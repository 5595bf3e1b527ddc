"""Same now? Each answer, with its evidence, from log lines that deserve it."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.destinations.destination import Destination
from engine.logs import task_events
from engine.logs.log_line import LogLine
from engine.logs.task_events import TaskEvent
from engine.monitor.recurrence import RECENT_SECONDS, ErrorGroup, Recurrence, check_recurrences
from engine.text.error_pattern import fold_error, pattern_name

NOW = 1_800_000_000.0
LATER = "421 4.7.0 try again later"
LATER_MARK = pattern_name(fold_error(LATER))
NUMBERS = count()


class Errors(NamedTuple):
    """A cluster of which only this matters."""

    mark: str = LATER_MARK
    last: float | None = None
    kinds: tuple[str, ...] = ("mail_send",)
    destinations: tuple[str, ...] = ()


def an_id(kind: str = "mail_send") -> str:
    """The id of a new task."""
    return f"20261120T094115Z-{kind}-{next(NUMBERS):08x}"


def line(minutes: float, text: str, source: str = "queue.log") -> LogLine:
    """A line of so many minutes ago."""
    return LogLine(NOW - minutes * 60, "INFO", text, source)


def begun(minutes: float, id: str, kind: str = "mail_send") -> LogLine:
    """A worker took it."""
    return line(minutes, f"Processing task: {id} ({kind}: x)")


def failed(minutes: float, id: str, error: str = LATER, kind: str = "mail_send") -> LogLine:
    """It failed."""
    return line(minutes, f"Task failed: {id} ({kind}): {error}")


def done(minutes: float, id: str, kind: str = "mail_send") -> LogLine:
    """It succeeded."""
    return line(minutes, f"Task completed: {id} ({kind})")


def many(number: int, minutes: float, kind: str = "mail_send") -> Iterator[LogLine]:
    """So many new tasks that succeeded, the last one so many minutes ago."""
    for n in range(number):
        id = an_id(kind)
        yield begun(minutes + (number - n) * 0.01, id, kind)
        yield done(minutes + (number - n) * 0.01, id, kind)


def told(*lines: LogLine) -> list[TaskEvent]:
    """What these lines tell."""
    return list(task_events.read_events(lines))


ONE, TWO, *TEN = (an_id() for _ in range(12))
SENT = "MAIL_SEND_RESULT task_id=inline status=success transport={} attempt=1"
REFUSED = "MAIL_SEND_RESULT task_id=inline status=failed transport=curl retries=3 "
REFUSED += f"last_error={LATER}"
NONE_TOLD = "no log records how such tasks ended"
UNSEEN = "neither a log nor the spool"
SEEN_40 = "last seen 40m ago"
NONE_ENDED = "no task of kind mail_send has ended since"
OTHERWISE = failed(3, TWO, "550 5.1.1 user unknown")
MAILED = [line(40, REFUSED, "mail.log")]
DATED = "ignored, dated"
ESCAPED = "a\x1b[1m"
CASES: list[tuple[Errors, list[LogLine], str, str]] = [
    # nothing to go by
    (Errors(), [], "?", f"{NONE_TOLD} | {UNSEEN}"),
    (Errors(last=NOW - 60), [], "?", f"{NONE_TOLD} | last seen 1m ago"),
    (Errors(), [done(5, ONE)], "?", f"{UNSEEN} records when it was last seen"),
    (Errors(last=NOW - 7200), [failed(60, an_id("x"), kind="x", error="other")], "?",
     f"last seen 2h00m ago | {NONE_ENDED}"),
    # it goes on
    (Errors(), [begun(3, ONE), failed(2, ONE)], "yes",
     "last seen 2m ago | 1 mail failed with it in 10m"
     " | 2m ago: 1 of 1 mail failed with it"),
    (Errors(), [begun(90, ONE), failed(90, ONE), failed(4, ONE), failed(2, TWO), done(1, an_id())],
     "yes", "last seen 2m ago | 2 mails failed with it in 10m"
     " | 1 new mail_send succeeded since | 1h30m ago to 2m ago: 2 of 2 mails failed with it"
     " | 1 of 10 successes needed for a no"),
    # one in five has it, so four successes since are no news
    (Errors(), [failed(30, ONE), *many(8, 10), failed(5, TWO), *many(4, 1)], "yes",
     "last seen 5m ago | 1 mail failed with it in 10m"
     " | 4 new mail_send succeeded since | 30m ago to 5m ago: 2 of 10 mails failed with it"
     " | 4 of 15 successes needed for a no"),
    # all of many had it, so few successes make a no; all of few does not say as much
    (Errors(), [*(failed(40 - n, an_id()) for n in range(10)), *many(3, 1)], "no (31m)",
     "last seen 31m ago | 3 new | 40m ago to 31m ago: 10 of 10 mails failed with it"),
    (Errors(), [*(failed(40 - n, an_id()) for n in range(9)), *many(3, 1)], "?",
     "last seen 32m ago | 3 new | 40m ago to 32m ago: 9 of 9 | not sure yet: 3 of"),
    # it is over
    (Errors(), [failed(30, ONE), failed(12, TWO), done(11, ONE), *many(34, 1)], "no (12m)",
     "last seen 12m ago | 34 new mail_send succeeded since"
     " | 1 mail with this error succeeded later | 30m ago to 12m ago: 2 of 2 mails failed with it"),
    (Errors(last=NOW - 8000), [*many(10, 5)], "no (2h13m)",
     "last seen 2h13m ago | 10 new mail_send succeeded since"),
    (Errors(last=NOW - 8000), [*many(9, 5)], "?", "last seen | 9 new | not sure yet"),
    # nothing of its kind has run, or it failed otherwise
    (Errors(), [failed(40, ONE), *many(50, 1, kind="feeds_sync")], "?",
     f"{SEEN_40} | {NONE_ENDED} | 40m ago: 1 of 1"),
    (Errors(), [failed(40, ONE), OTHERWISE, failed(2, ONE, "boom")], "?",
     f"{SEEN_40} | 2 mails failed with another error since | 40m ago: 1 of 1"),
    # any kind counts where the cluster names none
    (Errors(kinds=()), [failed(40, ONE), *many(10, 1, "x")], "no (40m)",
     "last | 10 new tasks succeeded | 40m ago:"),
    # a mail that went another way says nothing of this one's way
    (Errors(), [*MAILED, *(line(n, SENT.format("postfix"), "mail.log") for n in range(9))], "?",
     f"{SEEN_40} | {NONE_ENDED} | 40m ago: 1 of 1"),
    (Errors(), [*MAILED, *(line(n, SENT.format("curl"), "mail.log") for n in range(10))],
     "no (40m)", f"{SEEN_40} | 10 new mail_send succeeded since | 40m ago:"),
    # clocks
    (Errors(last=NOW + 3600), [failed(5, ONE), done(-90, TWO)], "yes",
     f"last seen 5m ago | 1 mail failed | 5m ago: | {DATED}"),
    (Errors(last=NOW + 3600), [], "?", f"no log records | neither | {DATED}"),
    (Errors(), [failed(-0.5, ONE)], "yes", "last seen just now | 1 mail failed | just now:"),
    (Errors(last=NOW - 900), [LogLine(None, "", f"Task completed: {ONE} (mail_send)", "x")], "?",
     f"{NONE_TOLD} | last seen 15m ago"),
    # other numbers, hosts and ids in a log are the same error as the spool's
    (Errors(mark=pattern_name(fold_error("connect_timeout mx7.example.net 25"))),
     [failed(1, ONE, "connect_timeout mx31.example.org 587")], "yes",
     "last seen 1m ago | 1 mail failed | 1m ago:"),
    # a mail without a task hides its domain in the log; it was sent the same way
    (Errors(kinds=(), destinations=("a.test",)),
     [failed(40, ONE), *(line(n / 9, SENT.format("curl"), "mail.log") for n in range(9, 19))],
     "no (40m)", f"{SEEN_40} | 10 new tasks succeeded | 40m ago:"),
    # a mail that both logs saw sent counts once, by the transport that one of them names
    *((Errors(), [line(40, REFUSED.replace("inline", ONE), "mail.log"), failed(40, ONE),
       *(line(3, SENT.format("curl").replace("inline", id), "mail.log") for id in TEN[:number]),
       *(done(3, id) for id in TEN[:number])], words, f"{SEEN_40} | {evidence}")
      for number, words, evidence in (
        (9, "?", "9 new mail_send succeeded since | 40m ago: | not sure yet"),
        (10, "no (40m)", "10 new mail_send succeeded since | 40m ago:"))),
    # and went another way, though the queue's log names none
    (Errors(), [*MAILED, *(line(3, SENT.format("postfix").replace("inline", id), "mail.log")
                           for id in TEN), *(done(3, id) for id in TEN)],
     "?", f"{SEEN_40} | {NONE_ENDED} | 40m ago: 1 of 1"),
    # what goes on now is not known any more once nothing has been heard of it for long
    (Errors(), [failed(RECENT_SECONDS / 60, ONE)], "yes", "last seen 10m ago | 10m ago:"),
    (Errors(), [failed(RECENT_SECONDS / 60 + 1, ONE)], "?",
     f"last seen | {NONE_ENDED} | 11m ago:"),
    # what a log says of a task is safe to show
    (Errors(kinds=(ESCAPED,)), [failed(40, ONE), failed(1, TWO, "boom", kind=ESCAPED)], "?",
     f"{SEEN_40} | 1 task failed with another error since | 40m ago:"),
]  # fmt: skip


def check_recurrence(cluster: ErrorGroup, events: Iterable[TaskEvent], now: float) -> Recurrence:
    """The answer for a single cluster."""
    (recurrence,) = check_recurrences([cluster], events, now)
    return recurrence


def test_the_answer_is_that_of_the_logs() -> None:
    """Yes while it goes on, no when as many succeeded as must have met it, and else not known."""
    for errors, lines, words, evidence in CASES:
        now = check_recurrence(errors, told(*lines), NOW)
        assert now.text == words, evidence
        for evidence_line, start in zip(now.evidence, evidence.split(" | "), strict=True):
            assert evidence_line.startswith(start), now.evidence
            assert evidence_line.isprintable()


PEER, OTHER = "http://127.0.0.1:39737", "http://127.0.0.1:41000"


def test_successes_count_only_for_the_destinations_of_the_error() -> None:
    """What other servers, or unknown ones, accepted is no evidence; ten to the same server are."""
    ids = [an_id() for _ in range(10)]
    events = told(failed(40, ONE), *(done(5, id) for id in ids))
    cluster = Errors(destinations=(PEER,))

    for sent_to, words in (
        ({}, "?"), (dict.fromkeys(ids, OTHER), "?"), (dict.fromkeys(ids, PEER), "no (40m)"),
    ):  # fmt: skip
        (now,) = check_recurrences([cluster], events, NOW, sent_to=sent_to)
        assert now.text == words
        not_counted = "10 succeeded since to other or unknown destinations: not counted"
        assert (not_counted in now.evidence) == (words == "?")


def test_an_unhealthy_destination_means_that_its_error_still_happens() -> None:
    """With any successes and times in the logs; a healthy destination changes nothing."""
    events = told(failed(59, ONE), *(done(5, an_id()) for _ in range(63)))
    ill = Destination(PEER, healthy=False, reason="REFUSED", since=NOW - 3600, probes=5)
    ill = ill._replace(last_failure=NOW - 7)
    cluster = Errors(destinations=(OTHER, PEER))

    (now,) = check_recurrences([cluster], events, NOW, registry=[Destination(OTHER), ill])
    assert now.text == "yes"
    assert now.evidence[0] == f"{PEER} is unhealthy: REFUSED, 5 probes, last 7s ago"
    assert now.last == NOW - 7

    (now,) = check_recurrences([cluster], events, NOW, registry=[Destination(PEER)])
    assert now.text == "?"


@pytest.mark.parametrize(("since", "names", "words"), [
    ([9.0], (PEER,), "no (40m)"),
    ([9.0, 5.0], (PEER, OTHER), "no (40m)"),
    ([41.0], (PEER,), "?"),
    ([None], (PEER,), "?"),
    ([9.0], (PEER, OTHER), "?"),
    ([9.0, 41.0], (PEER, OTHER), "?"),
])  # fmt: skip
def test_destinations_that_became_healthy_end_their_error(
    since: list[float | None], names: tuple[str, ...], words: str
) -> None:
    """All of them since the error was last seen; then no success in the logs is needed."""
    registry = [
        Destination(name, since=None if minutes is None else NOW - 60 * minutes)
        for name, minutes in zip(names, since, strict=False)
    ]
    cluster = Errors(destinations=names)
    (now,) = check_recurrences([cluster], told(failed(40, ONE)), NOW, registry=registry)
    assert now.text == words
    assert (now.evidence[0] == f"{PEER} became healthy 9m ago") == (words != "?")


TRY = "MAIL_SEND_ATTEMPT failed attempt={} error=550 5.1.1 user unknown"


def test_a_number_counts_tasks_however_often_they_failed() -> None:
    """Each number has the word for what it counts: a retry of a task or of a mail adds nothing, and
    successes elsewhere are not among those that could have failed."""
    runs = [failed(minutes, id) for id in (ONE, TWO) for minutes in (9, 6, 3)]
    tries = [line(2, TRY.format(n), "mail.log") for n in (1, 2, 3)]
    events = told(
        *runs, *tries, done(7, TEN[0]), failed(1, TEN[1], "boom"), failed(0.5, TEN[1], "x")
    )
    cluster = Errors(kinds=("report", "mail_send"), destinations=(PEER,))
    (now,) = check_recurrences([cluster], events, NOW, sent_to=dict.fromkeys((ONE, TWO), PEER))
    assert "2 tasks failed with it in 10m" in now.evidence
    assert "9m ago to 3m ago: 2 of 2 tasks to its destinations failed with it" in now.evidence

    (now,) = check_recurrences([cluster._replace(destinations=())], events, NOW)
    assert "9m ago to 3m ago: 2 of 3 tasks failed with it" in now.evidence
    assert "1 task failed with another error since" in now.evidence

    sent = [failed(9, an_id("mail"), kind="mail"), failed(6, an_id("smtp"), kind="smtp")]
    for kinds, words in ((("mail",), "2 mails"), (("mail", "smtp"), "2 tasks")):
        (now,) = check_recurrences([Errors(kinds=kinds)], told(*sent), NOW)
        assert f"{words} failed with it in 10m" in now.evidence


def test_many_clusters_are_answered_at_once() -> None:
    """Each of them gets the answer that it would get alone."""
    log = told(failed(30, ONE), *many(8, 10), failed(5, TWO, "boom"), done(1, ONE))
    clusters = [Errors(), Errors(mark=pattern_name("boom")), Errors(mark="F-0000", last=NOW - 60)]
    alone = [check_recurrence(cluster, log, NOW) for cluster in clusters]
    assert list(check_recurrences(clusters, log, NOW)) == alone


MAKES, MINUTES = st.sampled_from([begun, failed, done]), st.floats(-10, 1e4)
MADE = st.lists(st.tuples(MAKES, MINUTES, st.sampled_from(TEN[:6])), max_size=30)


@given(MADE, st.floats(0, 2e9) | st.none())
def test_the_order_of_the_lines_does_not_matter(made: list[Any], last: float | None) -> None:
    """However several logs are put together, the answer is one; and it always has its evidence."""
    lines = [make(minutes, id) for make, minutes, id in made]
    errors = Errors(last=last)
    now = check_recurrence(errors, told(*lines), NOW)
    assert now == check_recurrence(errors, told(*reversed(lines)), NOW)
    assert isinstance(now, Recurrence)
    assert now.evidence
    assert now.text.startswith(str(now.answer))
