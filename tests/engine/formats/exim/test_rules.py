"""What may be done with a message, from settings and times alone."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.formats.exim import rules
from engine.formats.exim.rules import ExpungeBar, HoldBar, HoldLimits, RestoreBar
from engine.model import Edges, State, Task
from engine.operations.plans import (
    Row,
    freeze_plan,
    preview_transitions,
    row_refusal,
    warning_bits,
)

DAY = 86400.0
DEBIAN = HoldLimits(7 * DAY, 2 * DAY, 0.0)


def a_mail(sender: str = "a@b.test", **extra: str) -> Task:
    """A message that arrived at 0."""
    return Task("1xX5UE-0003Hr-2I", "mail", State.PENDING, 0.0, sender=sender, extra=extra)


@pytest.mark.parametrize(
    ("sender", "now", "why"),
    [
        ("a@b.test", 0.0, ""),
        ("a@b.test", 6 * DAY - 1, ""),
        ("a@b.test", 6 * DAY, "Exim cancels frozen mail older than 7d00h: this one in 1d00h"),
        ("a@b.test", 8 * DAY, "Exim cancels frozen mail older than 7d00h: this one is older"),
        ("<>", DAY, "Exim thaws bounces older than 2d00h: this one in 1d00h"),
    ],
)
def test_mail_that_would_not_stay_frozen_is_not_held(sender: str, now: float, why: str) -> None:
    """A day before Exim ends it, holding is barred, with the other way."""
    bar = HoldBar(DEBIAN)(a_mail(sender), now)
    assert bar == (f"{why}; X moves it to the trash queue instead" if why else "")


def edges_of(limits: HoldLimits = DEBIAN) -> Edges:
    """The edges with these settings."""
    return rules.edges(limits, "", "", hours=24, undo="exim -MG")


def test_without_limits_all_mail_is_held() -> None:
    """If no setting ends that mail is frozen, none is barred."""
    edge = edges_of(HoldLimits(0, 0, 0))[State.PENDING, State.HELD]
    assert edge.bars(a_mail("<>"), 1e9) == ""


def test_only_a_message_that_is_frozen_by_us_is_barred_from_its_return() -> None:
    """What was frozen before the purge returns as it was; what was not is not frozen for it."""
    bar = RestoreBar(DEBIAN)
    assert bar(a_mail(frozen="yes"), 8 * DAY) == ""
    assert bar(a_mail(), 8 * DAY) == "Exim cancels frozen mail older than 7d00h: this one is older"


@pytest.mark.parametrize(
    ("extra", "now", "why"),
    [
        ({"trash_since": "1000", "moved by": "spooldeck"}, 1000 + DAY, ""),
        ({"trash_since": "1000", "moved by": "spooldeck"}, 1000 + DAY - 1, "less than 24h"),
        ({"trash_since": "1000", "moved by": "spooldeck"}, 999.0, "in the future"),
        ({"moved by": "spooldeck"}, 1e9, "unknown"),
        ({"trash_since": "1000"}, 1e9, "cannot prove"),
        ({"trash_since": "1000", "moved by": "another program"}, 1e9, "by another program: kept"),
    ],
)
def test_only_what_we_moved_is_deleted(extra: dict[str, str], now: float, why: str) -> None:
    """A message is deleted only if we moved it and its time there is over."""
    bar = ExpungeBar(24.0, "spooldeck-trash")(a_mail(**extra), now)
    assert why in bar and bool(why) == bool(bar)


@pytest.mark.parametrize("state", [State.PENDING, State.HELD])
def test_a_report_is_not_given_up(state: State) -> None:
    """Exim would delete a message without a sender, so its bounce is barred, with the other way."""
    edge = edges_of()[state, State.DEAD]
    assert edge.bars(a_mail(), 0.0) == ""
    why = "a bounce has no sender to report to: Exim would delete it; X moves it to the trash queue"
    assert edge.bars(a_mail("<>"), 0.0) == why


def test_edges_have_the_warnings_of_the_settings() -> None:
    """Hold says when Exim thaws; purge says how to move a message back by hand."""
    edges = edges_of(DEBIAN._replace(thaw_after=7200.0))
    assert "auto_thaw" in edges[State.PENDING, State.HELD].warning
    assert "exim -MG" in edges[State.PENDING, State.TRASH].warning


def test_release_and_restore_count_the_old_mail() -> None:
    """A release counts the bounces that Exim would discard, a restore the frozen mail that it would
    cancel."""
    edges = edges_of()
    held = [a_mail(sender)._replace(state=State.HELD, id=sender) for sender in ("<>", "a@b.test")]
    release = freeze_plan("release", held, 3 * DAY, edges=edges)
    amounts = Counter((row.state, row.target, row.warned) for row in release.rows)
    (preview,) = preview_transitions("release", amounts, edges)
    text = "1 without a sender older than 2d00h: discarded if they fail again"
    assert (preview.amount, preview.warnings) == (2, (text,))
    trashed = a_mail(frozen="yes")._replace(state=State.TRASH)
    for age, bits in ((6 * DAY, 0), (8 * DAY, 1)):
        assert warning_bits(edges, "restore", trashed, now=age, target=State.HELD) == bits
    (cancels,) = edges[State.TRASH, State.HELD].warnings
    assert cancels.text == "{count} older than 7d00h: cancelled by Exim at its next queue run"


def test_few_messages_are_delivered_one_by_one() -> None:
    """A plan delivers 100 messages; for more, the words name the queue run."""
    for number, why in ((100, ""), (101, "at most 100 in a plan; for more: control run-queue")):
        assert row_refusal(edges_of(), "promote", Row("", State.PENDING, ""), number) == why


@pytest.mark.parametrize(("text", "moment"), [("12.5", 12.5), ("", None), ("x", None)])
def test_times_of_files(text: str, moment: float | None) -> None:
    """The time of a file is a number, or unknown."""
    assert rules.to_time(text) == moment
