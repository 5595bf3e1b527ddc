"""What may be done with a message, from settings and times alone."""

from collections import Counter

from engine.formats.exim import rules
from engine.formats.exim.rules import ExpungeBar, HoldBar, HoldLimits, RestoreBar
from engine.model import Edges, State, Task, TaskBar
from engine.operations import plans
from tests.tables import each

DAY = 86400.0
DEBIAN = HoldLimits(7 * DAY, 2 * DAY, 0.0)


def a_mail(sender: str = "a@b.test", **extra: str) -> Task:
    """A message that arrived at 0."""
    return Task("1xX5UE-0003Hr-2I", "mail", State.PENDING, 0.0, sender=sender, extra=extra)


def edges_of(limits: HoldLimits = DEBIAN) -> Edges:
    """The edges with these settings."""
    return rules.edges(limits, "", "", hours=24, undo="exim -MG")


CANCELS = "Exim cancels frozen mail older than 7d00h: this one"
THAWS = "Exim thaws bounces older than 2d00h: this one"
REPORT = "a bounce has no sender to report to: Exim would delete it; X moves it to the trash queue"
HOLD, RESTORE, EXPUNGE = HoldBar(DEBIAN), RestoreBar(DEBIAN), ExpungeBar(24.0, "spooldeck-trash")
NO_LIMITS = edges_of(HoldLimits(0, 0, 0))[State.PENDING, State.HELD].bars
GIVE_UP = [edges_of()[state, State.DEAD].bars for state in (State.PENDING, State.HELD)]
OURS = {"moved by": "spooldeck", "trash_since": "1000"}


@each(
    ("bar", "mail", "now", "why"),
    [
        # a day before Exim ends it, holding is barred, with the other way
        (HOLD, a_mail(), 0.0, ""),
        (HOLD, a_mail(), 6 * DAY - 1, ""),
        (HOLD, a_mail(), 6 * DAY, f"{CANCELS} in 1d00h; X moves it to the trash queue instead"),
        (HOLD, a_mail(), 8 * DAY, f"{CANCELS} is older; X moves it to the trash queue instead"),
        (HOLD, a_mail("<>"), DAY, f"{THAWS} in 1d00h; X moves it to the trash queue instead"),
        (NO_LIMITS, a_mail("<>"), 1e9, ""),
        # what was frozen before the purge returns as it was; what was not is not frozen for it
        (RESTORE, a_mail(frozen="yes"), 8 * DAY, ""),
        (RESTORE, a_mail(), 8 * DAY, f"{CANCELS} is older"),
        # deleted only if we moved it and its time there is over
        (EXPUNGE, a_mail(**OURS), 1000 + DAY, ""),
        (EXPUNGE, a_mail(**OURS), 1000 + DAY - 1, "less than 24h"),
        (EXPUNGE, a_mail(**OURS), 999.0, "in the future"),
        (EXPUNGE, a_mail(**{"moved by": "spooldeck"}), 1e9, "unknown"),
        (EXPUNGE, a_mail(trash_since="1000"), 1e9, "cannot prove"),
        (EXPUNGE, a_mail(**{**OURS, "moved by": "another"}), 1e9, "by another: kept"),
        # Exim would delete a message without a sender
        *((bar, a_mail(), 0.0, "") for bar in GIVE_UP),
        *((bar, a_mail("<>"), 0.0, REPORT) for bar in GIVE_UP),
    ],
)
def test_what_exim_would_end_or_another_moved_is_barred(
    bar: TaskBar, mail: Task, now: float, why: str
) -> None:
    """With the reason, which is all of it or its part that differs."""
    text = bar(mail, now)
    assert (why in text if bar is EXPUNGE else text == why) and bool(text) == bool(why)


def test_edges_have_the_warnings_of_the_settings() -> None:
    """Hold says when Exim thaws; purge says how to move a message back by hand; a plan delivers 100
    messages, and for more names the queue run."""
    edges = edges_of(DEBIAN._replace(thaw_after=7200.0))
    assert "auto_thaw" in edges[State.PENDING, State.HELD].warning
    assert "exim -MG" in edges[State.PENDING, State.TRASH].warning
    row = plans.Row("", State.PENDING, "")
    for number, why in ((100, ""), (101, "at most 100 in a plan; for more: control run-queue")):
        assert plans.row_refusal(edges, "promote", row, number) == why


def test_release_and_restore_count_the_old_mail() -> None:
    """Bounces that Exim would discard, and frozen mail that it would cancel."""
    edges = edges_of()
    held = [a_mail(sender)._replace(state=State.HELD, id=sender) for sender in ("<>", "a@b.test")]
    release = plans.freeze_plan("release", held, 3 * DAY, edges=edges)
    amounts = Counter((row.state, row.target, row.warned) for row in release.rows)
    (preview,) = plans.preview_transitions("release", amounts, edges)
    text = "1 without a sender older than 2d00h: discarded if they fail again"
    assert (preview.amount, preview.warnings) == (2, (text,))
    trashed = a_mail(frozen="yes")._replace(state=State.TRASH)
    for age, bits in ((6 * DAY, 0), (8 * DAY, 1)):
        assert plans.warning_bits(edges, "restore", trashed, now=age, target=State.HELD) == bits
    (cancels,) = edges[State.TRASH, State.HELD].warnings
    assert cancels.text == "{count} older than 7d00h: cancelled by Exim at its next queue run"


@each(("text", "moment"), [("12.5", 12.5), ("", None), ("x", None)])
def test_times_of_files(text: str, moment: float | None) -> None:
    """The time of a file is a number, or unknown."""
    assert rules.to_time(text) == moment
