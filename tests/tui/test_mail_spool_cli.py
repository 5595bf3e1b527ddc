"""`mail spool`: what waits is counted, explained, and sent again once and only where it can be."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest

from engine import files, verbs
from engine.model import State
from engine.stores.nftban import NftbanStore
from tests.tui.test_mail_cli import Office
from tui.cli.mailretry import TOGETHER


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A queue with a mail spool."""
    return Office(tmp_path)


def rewrite(office: Office, ident: str, **values: str) -> None:
    """Have the meta.sh of a mail say something else."""
    path = Path(office.meta(ident))
    said = files.parse_assignments(path.read_bytes(), lambda key: True)
    path.write_bytes(files.assignments({**said, **values}))


def mark_sent(office: Office, ident: str) -> None:
    """Have a transport accept a mail."""
    mark = Path(office.meta(ident)).with_name("sent")
    mark.write_bytes(files.assignments({"TRANSPORT": "curl", "SINCE": "1795170000"}))
    mark.chmod(0o640)


# ---- seen


def test_what_the_list_counts_is_what_status_counts(office: Office) -> None:
    """All folders, and of what kinds they are: what waits is the pending and the broken ones."""
    waiting, broken, sent = office.spool(), office.spool(), office.spool()
    Path(office.meta(broken)).write_text("MAIL_TO=\n")
    mark_sent(office, sent)
    (office.root / "mailspool" / "mail-20260107T120102Z-empty").mkdir()

    listed = office.mail("spool", "list").stdout
    status = office.mail("status").stdout

    assert "Spooled mails: 4 (1 pending, 1 broken, 1 empty, 1 sent)\n" in listed
    assert "spool      2 mails" in status
    pending, _, rest = listed.partition("Pending mails:")[2].partition("Sent mails:")
    assert waiting in pending and sent not in pending
    assert sent in rest and "by curl" in rest


def test_a_list_says_the_time_of_the_mail_s_own_name(office: Office) -> None:
    """UTC, and says so, wherever the reader is."""
    ident = office.spool()
    made = time.strftime("%Y-%m-%d %H:%MZ", time.strptime(ident[5:20], "%Y%m%dT%H%M%S"))

    for zone in ("UTC", "Asia/Tokyo"):
        assert f"Created: {made} |" in office.mail("spool", "list", TZ=zone).stdout


def test_of_a_dead_mail_the_reason_and_the_way_back_are_said(office: Office) -> None:
    """Why its task was given up on, in the list as well, and the command for another try."""
    ident = office.spool()
    office.change("bury")

    listed, shown = office.mail("spool", "list").stdout, office.mail("spool", "show", ident).stdout

    task = office.task()
    assert f"Task: {task.id} (dlq) | Error: no use\n" in listed
    assert f"task     {task.id} (dlq)\nerror    no use\n" in shown
    place = f"--root {office.root} --config {office.config}"
    assert f"again    spooldeck {place} mail spool retry {ident}\n" in shown


def test_a_mail_that_waits_for_its_turn_needs_no_command(office: Office) -> None:
    """None is said for what will be sent by itself; for what is held it is the release."""
    ident = office.spool()

    waiting = office.mail("spool", "show", ident).stdout
    office.change("hold")
    held = office.mail("spool", "show", ident).stdout

    assert "again" not in waiting
    place = f"--root {office.root} --config {office.config}"
    assert f"again    spooldeck {place} release --id {office.task().id}\n" in held


def test_of_a_long_body_the_beginning_is_shown(office: Office) -> None:
    """Ten megabytes may be sent: what is shown of them is said."""
    ident = office.spool("first line\n" + "x" * (1 << 21) + "\nlast line\n")

    run = office.mail("spool", "show", ident)

    assert run.returncode == 0
    assert "body     text, 2,097,174 bytes, of which these are the first 1,048,576\n" in run.stdout
    assert "\nfirst line\n" in run.stdout and "last line" not in run.stdout


# ---- sent again


@pytest.mark.parametrize("wrong", ["recipient", "body"])
def test_what_cannot_be_sent_is_not_queued(office: Office, wrong: str) -> None:
    """An address that is none, or more than may be sent: said at once, and left alone."""
    bad, good = office.spool(task=False), office.spool(task=False)
    if wrong == "recipient":
        rewrite(office, bad, MAIL_TO="a b")
    else:
        os.truncate(Path(office.meta(bad)).with_name("body.txt"), 1 << 30)

    run = office.mail("spool", "retry", bad, good)

    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert f"{bad}: cannot be sent, and was left alone: " in run.stderr
    assert office.task().payload == office.meta(good)


def test_what_a_program_sends_is_the_program_s_to_judge(office: Office) -> None:
    """Where mail is sent by another handler, no rule of ours stands in its way."""
    office.config.write_text("handlers: {mail_send: {command: [/bin/true]}}\n")
    ident = office.spool(task=False)
    rewrite(office, ident, MAIL_TO="a b")

    assert office.mail("spool", "retry", ident).returncode == 0
    assert office.task().payload == office.meta(ident)


def test_one_mail_that_cannot_be_read_stops_no_other(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses one of two: its id is said with the reason, and the other one is queued."""
    bad, good = office.spool(task=False), office.spool(task=False)
    opened = files.open_folder

    def refused(path: str, dir_fd: int | None = None) -> int:
        if path == bad:
            raise OSError(5, "Input/output error", path)
        return opened(path, dir_fd)

    monkeypatch.setattr(files, "open_folder", refused)

    run = office.mail("spool", "retry", bad, good)

    assert run.returncode == 1
    assert f"{bad}: Input/output error" in run.stderr
    assert office.task().payload == office.meta(good)


def test_a_task_that_is_being_moved_is_not_doubled(office: Office) -> None:
    """While somebody who lives has it on the desk the retry waits for another time; of somebody
    who ended there it is fetched back.
    """
    ident = office.spool()
    task = office.task()
    path = office.root / "queue" / "pending" / f"{task.id}.task"
    crc = zlib.crc32(path.read_bytes())
    withdrawn = office.root / "queue" / ".spooldeck" / f"D.{task.id}.pending.held.{crc:08x}.1-0-1"
    path.rename(withdrawn)
    held = os.open(withdrawn, os.O_RDONLY)
    assert files.claim_flock(held)

    living = office.mail("spool", "retry", ident)
    tasks = office.tasks()
    os.close(held)
    dead = office.mail("spool", "retry", ident)

    assert (living.returncode, tasks) == (1, [])
    assert f"{ident}: left alone: .spooldeck/D.{task.id}" in living.stderr
    assert office.task().id == task.id and office.task().state is State.HELD
    assert f"task {task.id} is held" in dead.stderr


def test_a_task_that_is_being_added_is_not_doubled(office: Office) -> None:
    """What somebody is about to queue is on the desk already, and seen there."""
    ident = office.spool()
    task = office.task()
    path = office.root / "queue" / "pending" / f"{task.id}.task"
    path.rename(office.root / "queue" / ".spooldeck" / f"T.{task.id}.1-0-1")

    run = office.mail("spool", "retry", ident)

    assert run.returncode == 1
    assert f"{ident}: left alone: .spooldeck/T.{task.id}" in run.stderr
    assert office.tasks() == []


def test_a_mail_of_another_kind_of_task_is_not_queued_beside_it(office: Office) -> None:
    """Whoever names it, the mail is theirs: with them it would be removed."""
    ident = office.spool(task=False)
    with closing(office.store()) as store:
        store.swap(None, verbs.enqueue("report", time.time(), "0000000a", "", office.meta(ident)))

    run = office.mail("spool", "retry", ident)

    assert run.returncode == 1
    assert "left alone: pending/" in run.stderr
    assert len(office.tasks()) == 1


def test_everything_that_waits_for_nothing_else_is_sent_by_one_word(office: Office) -> None:
    """What has no task is queued, what is dead is retried; all else is left alone, and counted."""
    dead = office.spool()
    office.change("bury")
    lost = [office.spool(task=False) for _ in range(3)]
    broken, sent = office.spool(task=False), office.spool(task=False)
    Path(office.meta(broken)).write_text("MAIL_TO=\n")
    mark_sent(office, sent)

    run = office.mail("spool", "retry", "--all")
    again = office.mail("spool", "retry", "--all")

    tasks = office.tasks()
    assert (run.returncode, run.stderr) == (0, "")
    assert {task.payload for task in tasks} == {office.meta(ident) for ident in [dead, *lost]}
    assert {task.state for task in tasks} == {State.PENDING} and len(tasks) == 4
    assert run.stdout.endswith("4 of 4 will be sent now; left alone: 1 broken, 1 sent\n")
    assert again.stdout == (
        "0 of 0 will be sent now; left alone: 1 broken, 1 sent, 4 on their way\n"
    )


def test_all_ends_backoff_and_leaves_what_was_refused_for_good(office: Office) -> None:
    """A 5xx is tried again only with --refused; a mail in backoff is due now."""
    refused = office.spool()
    office.change("bury", error="rejected_550: no such user")
    waiting = office.spool()
    with closing(office.store()) as store:
        (task,) = (task for task in office.tasks() if task.payload == office.meta(waiting))
        store.swap(task, verbs.edit(task, 0, due=time.time() + 900.0))

    run = office.mail("spool", "retry", "--all")
    states = {task.payload: (task.state, task.due) for task in office.tasks()}
    more = office.mail("spool", "retry", "--all", "--refused")

    ended = "1 of 1 will be sent now; left alone: 1 "
    assert run.stdout.endswith(f"{ended}refused for good (--refused)\n")
    assert states[office.meta(waiting)] == (State.PENDING, 0)
    assert states[office.meta(refused)][0] is State.DEAD
    assert more.stdout.endswith(f"{ended}on their way\n")
    assert {task.state for task in office.tasks()} == {State.PENDING}


def test_however_many_are_queued_the_tasks_are_read_a_few_times(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for each group of mails, and not for each mail: else a full spool takes hours."""
    lost = [office.spool(task=False) for _ in range(TOGETHER + 1)]
    asked: list[int] = []
    real = NftbanStore.named

    def counted(self: NftbanStore, payloads: Collection[str]) -> dict[str, str]:
        asked.append(len(payloads))
        return real(self, payloads)

    monkeypatch.setattr(NftbanStore, "named", counted)
    run = office.mail("spool", "retry", *lost)

    assert run.returncode == 0
    assert len(office.tasks()) == TOGETHER + 1
    assert asked == [TOGETHER, 1]


def test_a_full_queue_is_said_once(office: Office) -> None:
    """What does not fit is counted; the queue's own words are said of the first."""
    for _ in range(5):
        office.spool(task=False)

    run = office.mail("spool", "retry", "--all", NFTBAN_QUEUE_MAX_PENDING="2")

    assert run.returncode == 1
    assert len(office.tasks()) == 2
    assert len(run.stderr.splitlines()) == 2 and "full" in run.stderr.splitlines()[0]
    assert "3 mails are left as they are" in run.stderr
    assert run.stdout.endswith("2 of 5 will be sent now\n")


@pytest.mark.parametrize("words", [[], ["--all", "mail-x"], ["--refused"]])
def test_what_to_retry_is_said_in_one_way(office: Office, words: list[str]) -> None:
    """By name, or all: neither nothing nor both."""
    assert office.mail("spool", "retry", *words).returncode == 64


def test_doubt_and_refusal_stand_in_the_list(office: Office) -> None:
    """What may have arrived, and what never will, is what one looks for first."""
    doubt, refused, plain = office.spool(), office.spool(), office.spool()
    for ident, name, values in (
        (doubt, "trying", {"TRANSPORT": "curl", "SINCE": "1795170000"}),
        (refused, "refused", {"WHY": "rejected_550: no such user"}),
    ):
        mark = Path(office.meta(ident)).with_name(name)
        mark.write_bytes(files.assignments(values))
        mark.chmod(0o640)

    lines = {
        line.split()[0]: line
        for line in office.mail("spool", "list").stdout.splitlines()
        if line.startswith("  mail-")
    }

    assert lines[doubt].endswith(" (pending) | In doubt since: 2026-11-20 10:20:00Z")
    assert lines[refused].endswith(" | Refused: rejected_550: no such user")
    assert lines[plain].endswith(" (pending)")


def test_of_what_is_no_mail_everything_is_shown_with_the_way_out(office: Office) -> None:
    """Its meta.sh and its body as they are, its task, what to correct, and what to type then."""
    ident = office.spool("rescue me\n")
    Path(office.meta(ident)).write_text('MAIL_SUBJECT="$(id)"\n')
    bare = office.spool("no meta\n", task=False)
    Path(office.meta(bare)).unlink()

    run, nometa = (office.mail("spool", "show", each) for each in (ident, bare))

    place = f"spooldeck --root {office.root} --config {office.config}"
    assert (run.returncode, nometa.returncode) == (1, 1)
    assert "---- meta.sh\nMAIL_SUBJECT" in run.stdout and "---- body.txt\nrescue me" in run.stdout
    assert f"---- task: {office.task().id} (pending)\n" in run.stdout
    assert f"correct {office.meta(ident)} (" in run.stdout
    assert "no meta" in nometa.stdout and "---- task: none\n" in nometa.stdout
    assert nometa.stdout.endswith(f"then {place} mail spool retry {bare}\n")


def test_a_mail_that_was_not_queued_can_be_after_a_moment(office: Office) -> None:
    """The retry that `send-with-retry` names works as soon as somebody has typed it."""
    fresh, old = office.spool(task=False, old=1), office.spool(task=False, old=6)

    run = office.mail("spool", "retry", fresh, old)

    assert f"{fresh}: was spooled just now" in run.stderr
    assert office.task().payload == office.meta(old)
