"""`spooldeck mail spool`: list, show and retry."""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore
from engine.model import State
from engine.system import files
from tests.smtp_server import Server
from tests.tui.cli.formats.nftban.mail.test_mail import GOLDEN, TO, MailPlace, mail_place
from tui.cli.formats.nftban.mail.retry import BATCH_MAILS

__all__ = ["mail_place"]


def rewrite(mail_place: MailPlace, ident: str, **values: str) -> None:
    """Change values in the meta.sh of a mail."""
    path = Path(mail_place.meta(ident))
    assignments = files.parse_assignments(path.read_bytes(), lambda key: True)
    path.write_bytes(files.format_assignments({**assignments, **values}))


def mark(mail_place: MailPlace, ident: str, name: str, **values: str) -> None:
    """Mark a mail as sent, trying or refused."""
    path = Path(mail_place.meta(ident)).with_name(name)
    path.write_bytes(files.format_assignments(values))
    path.chmod(0o640)


CURL = {"TRANSPORT": "curl", "SINCE": "1795170000"}


# ---- list, show


def test_the_list_of_spooled_mails(mail_place: MailPlace) -> None:
    """The contract's header, and a line a mail: cut address, creation time in UTC, task, doubt or
    refusal. What is broken or already sent is counted; `mail status` counts the same.
    """
    plain, lost, broken, sent, doubt, refused = (
        mail_place.spool(task=number != 1, old=3600 * (number + 1)) for number in range(6)
    )
    tasks = {task.payload: task.id for task in mail_place.tasks()}
    Path(mail_place.meta(broken)).write_text("MAIL_TO=\n")
    (mail_place.root / "mailspool" / "mail-20260107T120102Z-empty").mkdir()
    mark(mail_place, sent, "sent", **CURL)
    mark(mail_place, doubt, "trying", **CURL)
    mark(mail_place, refused, "refused", WHY="rejected_550: no such user")

    run, tokyo = (mail_place.mail("spool", "list", TZ=zone) for zone in ("UTC", "Asia/Tokyo"))
    status = mail_place.mail("status").stdout

    sample = (GOLDEN / "mail_spool_status.stdout.txt").read_text().splitlines()[:6]
    folder, counts = (
        f"{mail_place.root}/mailspool",
        "mails: 7 (4 pending, 1 broken, 1 empty, 1 sent)",
    )
    head = [line.replace("/var/lib/nftban/mailspool", folder) for line in sample]
    lines = run.stdout.splitlines()
    assert lines[:6] == [line.replace("mails: 2", counts) for line in head]
    assert tokyo.stdout == run.stdout
    assert "spool      5 mails" in status
    pending, _, rest = run.stdout.partition("Pending mails:")[2].partition("Sent mails:")
    assert plain in pending and sent not in pending
    assert sent in rest and "by curl" in rest
    rows = {line.split()[0]: line.strip() for line in lines if line.startswith("  mail-")}
    made = time.strftime("%Y-%m-%d %H:%MZ", time.strptime(plain[5:20], "%Y%m%dT%H%M%S"))
    task = tasks[mail_place.meta(plain)]
    assert re.split(r" +\| +", rows[plain])[1] == "To: admin@..."
    assert f"Created: {made} |" in rows[plain] and rows[plain].endswith(f"Task: {task} (pending)")
    assert rows[lost].endswith(" | Task: none")
    assert rows[doubt].endswith(" (pending) | In doubt since: 2026-11-20 10:20:00Z")
    assert rows[refused].endswith(" | Refused: rejected_550: no such user")
    for name in (broken, "mail-20260107T120102Z-empty"):
        assert f"{name}: " in run.stderr


def test_a_spooled_mail_is_shown_as_inert_text(mail_place: MailPlace) -> None:
    """Its fields and its body without a control character; of a long body the first megabyte. The
    command that sends it again is printed only if it does not go by itself.
    """
    place = f"spooldeck --root {mail_place.root} --config {mail_place.config}"
    ident = mail_place.spool("first\x1b[2Jline\nand \u202eback\n")
    waiting = mail_place.mail("spool", "show", ident)
    mail_place.change("hold")
    held = mail_place.mail("spool", "show", ident).stdout
    mail_place.change("release")
    mail_place.change("bury")
    dead, listed = (
        mail_place.mail("spool", "show", ident).stdout,
        mail_place.mail("spool", "list").stdout,
    )
    long = mail_place.spool("first line\n" + "x" * (1 << 21) + "\nlast line\n", task=False)
    cut = mail_place.mail("spool", "show", long)

    task = mail_place.task().id
    assert (waiting.returncode, "again" in waiting.stdout) == (0, False)
    assert "to       admin@example.com" in waiting.stdout
    assert f"task     {task} (pending)" in waiting.stdout
    assert all(line.isprintable() for line in waiting.stdout.splitlines())
    assert f"again    {place} release --id {task}\n" in held
    assert f"task     {task} (dlq)\nerror    no use\n" in dead
    assert f"again    {place} mail spool retry {ident}\n" in dead
    assert f"Task: {task} (dlq) | Error: no use\n" in listed
    assert cut.returncode == 0
    assert "body     text, 2,097,174 bytes, of which these are the first 1,048,576\n" in cut.stdout
    assert "\nfirst line\n" in cut.stdout and "last line" not in cut.stdout


def test_a_broken_mail_is_shown_with_what_to_correct(mail_place: MailPlace) -> None:
    """Its meta.sh and body as they are, its task, and the command to type afterwards; nothing of a
    meta.sh is run.
    """
    ident = mail_place.spool("rescue me\n")
    meta = f'MAIL_TO="$(touch {mail_place.folder}/pwned)"\n'
    Path(mail_place.meta(ident)).write_text(meta)
    bare = mail_place.spool("no meta\n", task=False)
    Path(mail_place.meta(bare)).unlink()

    run, nometa = (mail_place.mail("spool", "show", each) for each in (ident, bare))

    place = f"spooldeck --root {mail_place.root} --config {mail_place.config}"
    assert (run.returncode, nometa.returncode) == (1, 1)
    assert "unescaped $" in run.stderr and not (mail_place.folder / "pwned").exists()
    assert f"---- meta.sh\n{meta}" in run.stdout and "---- body.txt\nrescue me" in run.stdout
    assert f"---- task: {mail_place.task().id} (pending)\n" in run.stdout
    assert f"correct {mail_place.meta(ident)} (" in run.stdout
    assert "no meta" in nometa.stdout and "---- task: none\n" in nometa.stdout
    assert nometa.stdout.endswith(f"then {place} mail spool retry {bare}\n")


# ---- retry


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *((f"{verb} {name}", 1) for verb in ("show", "retry") for name in ("../../etc", "mail-no")),
        ("retry", 64),
        ("retry --all mail-x", 64),
        ("retry --refused", 64),
    ],
)
def test_a_wrong_name_of_a_mail_is_refused(mail_place: MailPlace, words: str, code: int) -> None:
    """A mail is named by its id, or all are meant with --all."""
    run = mail_place.mail("spool", *words.split())

    assert (run.returncode, run.stdout) == (code, "")
    assert code == 64 or words.split()[-1] in run.stderr


def test_retry_never_makes_a_second_task(mail_place: MailPlace) -> None:
    """A mail without a task gets one, a waiting task is made due, a dead one is retried, and a held
    or purged one is left to the command that is printed.
    """
    ident = mail_place.spool(task=False)

    def retry() -> str:
        run = mail_place.mail("spool", "retry", ident)
        return run.stderr if run.returncode else run.stdout

    place = f"spooldeck --root {mail_place.root} --config {mail_place.config}"
    queued, same = retry(), retry()
    task = mail_place.task()
    assert queued == f"{ident}: task {task.id} queued\n"
    assert same == f"{ident}: task {task.id} is already due\n"
    mail_place.change("edit", due=2_000_000_000.0)
    assert (retry(), mail_place.task().due) == (f"{ident}: task {task.id} is due now\n", 0)
    mail_place.change("bury")
    assert retry() == f"{ident}: task {task.id} moved from DLQ to pending queue\n"
    assert (mail_place.task().state, mail_place.task().payload) == (
        State.PENDING,
        mail_place.meta(ident),
    )
    for verb, back in (("hold", "release"), ("purge", "restore")):
        mail_place.change(verb)
        assert f"{place} {back} --id {task.id}" in retry()


@pytest.mark.parametrize("wrong", ["new", "address", "size", "disk"])
def test_a_mail_that_cannot_be_queued_stops_no_other(
    mail_place: MailPlace, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """One line names the reason: it was spooled a moment ago and its sender may queue it, has no
    valid address, is too large, or cannot be read. The other mail is queued.
    """
    broken = mail_place.spool(task=False, old=1 if wrong == "new" else 3600)
    good = mail_place.spool(task=False, old=6)
    text = f"{broken}: cannot be sent; skipped: "
    if wrong == "address":
        rewrite(mail_place, broken, MAIL_TO="a b")
    elif wrong == "size":
        os.truncate(Path(mail_place.meta(broken)).with_name("body.txt"), 1 << 30)
    elif wrong == "new":
        text = f"{broken}: just spooled"
    else:
        text = f"{broken}: Input/output error"
        opened = files.open_folder

        def refused(path: str, dir_fd: int | None = None) -> int:
            if path == broken:
                raise OSError(5, "Input/output error", path)
            return opened(path, dir_fd)

        monkeypatch.setattr(files, "open_folder", refused)

    run = mail_place.mail("spool", "retry", broken, good)

    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert text in run.stderr and (wrong != "new" or "its task may follow" in run.stderr)
    assert mail_place.task().payload == mail_place.meta(good)


def test_another_handler_checks_addresses_itself(mail_place: MailPlace) -> None:
    """Where a program is configured for mail_send, no address is refused before it."""
    mail_place.config.write_text("handlers: {mail_send: {command: [/bin/true]}}\n")
    ident = mail_place.spool(task=False)
    rewrite(mail_place, ident, MAIL_TO="a b")

    assert mail_place.mail("spool", "retry", ident).returncode == 0
    assert mail_place.task().payload == mail_place.meta(ident)


def test_a_mail_whose_task_is_being_moved_or_added_is_left_alone(mail_place: MailPlace) -> None:
    """While a living process has the task in the staging directory there is no second one; a move
    whose process has ended is finished. So too for a task of another kind that names the mail.
    """
    ident = mail_place.spool()
    task = mail_place.task()
    path = mail_place.root / "queue" / "pending" / f"{task.id}.task"
    adding = mail_place.staging / f"T.{task.id}.1-0-1"
    path.rename(adding)
    run = mail_place.mail("spool", "retry", ident)
    assert (run.returncode, mail_place.tasks()) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{adding.name}" in run.stderr

    crc = zlib.crc32(adding.read_bytes())
    withdrawn = mail_place.staging / f"D.{task.id}.pending.held.{crc:08x}.1-0-1"
    adding.rename(withdrawn)
    fd = os.open(withdrawn, os.O_RDONLY)
    assert files.claim_flock(fd)
    living, tasks = mail_place.mail("spool", "retry", ident), mail_place.tasks()
    os.close(fd)
    dead = mail_place.mail("spool", "retry", ident)
    assert (living.returncode, tasks) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{withdrawn.name}" in living.stderr
    assert (mail_place.task().id, mail_place.task().state) == (task.id, State.HELD)
    assert f"task {task.id} is held" in dead.stderr

    other = mail_place.spool(task=False)
    with closing(mail_place.store()) as store:
        store.swap(
            None, verbs.enqueue("report", time.time(), "0000000a", "", mail_place.meta(other))
        )
    run = mail_place.mail("spool", "retry", other)
    assert (run.returncode, "skipped: pending/" in run.stderr) == (1, True)
    assert len(mail_place.tasks()) == 2


@pytest.mark.parametrize("ran", [False, True])
def test_a_mail_to_a_wrong_recipient_is_sent_to_another(mail_place: MailPlace, ran: bool) -> None:
    """`--to` replaces the recipient of a refused mail, before and after the first run of its task;
    a wrong one, or one for all mails, is refused and changes nothing."""
    mail_place.mail("send-with-retry", "hello", "root@localhost", "alert")
    (task,) = mail_place.tasks()
    ident = Path(task.payload).parent.name
    with Server() as server:
        mail_place.goes_by("curl", server.port)
        if ran:
            mail_place.run("queue", "process-next")
        wrong = mail_place.mail("spool", "retry", ident, "--to", "postmaster")
        everything = mail_place.mail("spool", "retry", "--all", "--to", TO)
        run = mail_place.mail("spool", "retry", ident, "--to", TO)
        mail_place.run("queue", "process-next")

    assert (wrong.returncode, everything.returncode, run.returncode) == (1, 64, 0)
    assert "'postmaster' has no domain" in wrong.stderr
    assert [mail.recipients for mail in server.mails] == [(TO,)]
    assert "spooldeck: --to needs the id of one mail, not --all" in everything.stderr
    change = f"{ident}: recipient changed from root@localhost to {TO}\n"
    assert run.stdout.startswith(change)
    assert change in (mail_place.root / "log" / "queue.log").read_text()


def test_a_mail_that_is_being_sent_or_held_keeps_its_recipient(mail_place: MailPlace) -> None:
    """`--to` changes no mail whose task runs, is held, in the trash or being moved, or
    that is not the only one named.
    """
    ident = mail_place.spool()
    meta = Path(mail_place.meta(ident)).read_bytes()
    task = mail_place.task()

    def refused(*more: str) -> str:
        run = mail_place.mail("spool", "retry", ident, *more, "--to", TO)
        assert (run.returncode, run.stdout) == (64 if more else 1, "")
        assert Path(mail_place.meta(ident)).read_bytes() == meta
        return run.stderr

    assert "--to needs the id of one mail" in refused("mail-2")
    unchanged = f"spooldeck: {ident}: recipient unchanged: "
    for verb, why in (("hold", "is held: "), ("purge", "is in the trash: ")):
        mail_place.change(verb)
        assert refused().startswith(f"{unchanged}task {task.id} {why}")
    mail_place.change("restore")
    mail_place.change("release")
    with closing(mail_place.store()) as store:
        (task,) = store.take(2_000_000_000, "test", 1)
    assert refused() == f"{unchanged}task {task.id} is sending it now\n"

    path = next(mail_place.root.glob(f"queue/work/{task.id}*"))
    path.rename(mail_place.staging / f"T.{task.id}.1-0-1")
    assert refused() == f"{unchanged}.spooldeck/T.{task.id}.1-0-1 names it\n"


def test_retry_all(mail_place: MailPlace) -> None:
    """What has no task is queued, the dead are retried and a backoff is ended; broken and sent mail
    is counted, and a permanent refusal is tried again only with --refused.
    """
    dead = mail_place.spool()
    mail_place.change("bury")
    refused = mail_place.spool()
    with closing(mail_place.store()) as store:
        (taken,) = store.take(2_000_000_000, "test", 1)
        store.swap(taken, verbs.give_up_task(taken, "rejected_550: no such user"))
    waiting = mail_place.spool()
    with closing(mail_place.store()) as store:
        (task,) = (task for task in mail_place.tasks() if task.payload == mail_place.meta(waiting))
        store.swap(task, verbs.edit(task, 0, due=time.time() + 900.0))
    lost = [mail_place.spool(task=False) for _ in range(3)]
    broken, sent = mail_place.spool(task=False), mail_place.spool(task=False)
    Path(mail_place.meta(broken)).write_text("MAIL_TO=\n")
    mark(mail_place, sent, "sent", **CURL)

    run, again = (mail_place.mail("spool", "retry", "--all") for _ in range(2))
    states = {task.payload: (task.state, task.due) for task in mail_place.tasks()}
    more = mail_place.mail("spool", "retry", "--all", "--refused")

    left = "will be sent now; skipped: 1 broken, "
    assert (run.returncode, run.stderr) == (0, "")
    assert states.pop(mail_place.meta(refused))[0] is State.DEAD
    assert set(states) == {mail_place.meta(ident) for ident in (dead, waiting, *lost)}
    assert {state for state, _ in states.values()} == {State.PENDING}
    assert states[mail_place.meta(waiting)] == (State.PENDING, 0)
    assert run.stdout.endswith(f"5 of 5 {left}1 sent, 1 refused permanently (--refused)\n")
    others = "1 sent, 5 being sent or due, 1 refused permanently (--refused)"
    assert again.stdout == f"0 of 0 {left}{others}\n"
    assert more.stdout.endswith(f"1 of 1 {left}1 sent, 5 being sent or due\n")
    assert {task.state for task in mail_place.tasks()} == {State.PENDING}


def test_many_mails_are_queued_with_few_scans(
    mail_place: MailPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are read once for each group of mails, not for each mail."""
    asked: list[int] = []
    real = NftbanStore.find_named_payloads

    def counted(self: NftbanStore, payloads: Collection[str]) -> dict[str, str]:
        asked.append(len(payloads))
        return real(self, payloads)

    monkeypatch.setattr(NftbanStore, "find_named_payloads", counted)
    lost = [mail_place.spool(task=False) for _ in range(BATCH_MAILS + 1)]
    run = mail_place.mail("spool", "retry", *lost)

    assert (run.returncode, asked) == (0, [BATCH_MAILS, 1])
    assert len(mail_place.tasks()) == BATCH_MAILS + 1


def test_a_full_queue_is_reported_once(mail_place: MailPlace) -> None:
    """Mails that do not fit are counted and stay in the spool."""
    for _ in range(5):
        mail_place.spool(task=False)

    run = mail_place.mail("spool", "retry", "--all", NFTBAN_QUEUE_MAX_PENDING="2")

    assert (run.returncode, len(mail_place.tasks())) == (1, 2)
    full, left = run.stderr.splitlines()
    assert "full" in full and "3 mails skipped" in left
    assert run.stdout.endswith("2 of 5 will be sent now\n")
