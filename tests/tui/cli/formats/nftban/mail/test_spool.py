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
from tests.tui.cli.formats.nftban.mail.test_mail import GOLDEN, TO, Office, office
from tui.cli.formats.nftban.mail.retry import BATCH_MAILS

__all__ = ["office"]


def rewrite(office: Office, ident: str, **values: str) -> None:
    """Change values in the meta.sh of a mail."""
    path = Path(office.meta(ident))
    said = files.parse_assignments(path.read_bytes(), lambda key: True)
    path.write_bytes(files.format_assignments({**said, **values}))


def mark(office: Office, ident: str, name: str, **values: str) -> None:
    """Mark a mail as sent, trying or refused."""
    path = Path(office.meta(ident)).with_name(name)
    path.write_bytes(files.format_assignments(values))
    path.chmod(0o640)


CURL = {"TRANSPORT": "curl", "SINCE": "1795170000"}


# ---- list, show


def test_the_list_of_spooled_mails(office: Office) -> None:
    """The contract's header, and a line a mail: cut address, creation time in UTC, task, doubt or
    refusal. What is broken or already sent is counted; `mail status` counts the same.
    """
    plain, lost, broken, sent, doubt, refused = (
        office.spool(task=number != 1, old=3600 * (number + 1)) for number in range(6)
    )
    tasks = {task.payload: task.id for task in office.tasks()}
    Path(office.meta(broken)).write_text("MAIL_TO=\n")
    (office.root / "mailspool" / "mail-20260107T120102Z-empty").mkdir()
    mark(office, sent, "sent", **CURL)
    mark(office, doubt, "trying", **CURL)
    mark(office, refused, "refused", WHY="rejected_550: no such user")

    run, tokyo = (office.mail("spool", "list", TZ=zone) for zone in ("UTC", "Asia/Tokyo"))
    status = office.mail("status").stdout

    sample = (GOLDEN / "mail_spool_status.stdout.txt").read_text().splitlines()[:6]
    folder, counts = f"{office.root}/mailspool", "mails: 7 (4 pending, 1 broken, 1 empty, 1 sent)"
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
    task = tasks[office.meta(plain)]
    assert re.split(r" +\| +", rows[plain])[1] == "To: admin@..."
    assert f"Created: {made} |" in rows[plain] and rows[plain].endswith(f"Task: {task} (pending)")
    assert rows[lost].endswith(" | Task: none")
    assert rows[doubt].endswith(" (pending) | In doubt since: 2026-11-20 10:20:00Z")
    assert rows[refused].endswith(" | Refused: rejected_550: no such user")
    for name in (broken, "mail-20260107T120102Z-empty"):
        assert f"{name}: " in run.stderr


def test_a_spooled_mail_is_shown_as_inert_text(office: Office) -> None:
    """Its fields and its body without a control character; of a long body the first megabyte. The
    command that sends it again is printed only if it does not go by itself.
    """
    place = f"spooldeck --root {office.root} --config {office.config}"
    ident = office.spool("first\x1b[2Jline\nand \u202eback\n")
    waiting = office.mail("spool", "show", ident)
    office.change("hold")
    held = office.mail("spool", "show", ident).stdout
    office.change("release")
    office.change("bury")
    dead, listed = office.mail("spool", "show", ident).stdout, office.mail("spool", "list").stdout
    long = office.spool("first line\n" + "x" * (1 << 21) + "\nlast line\n", task=False)
    cut = office.mail("spool", "show", long)

    task = office.task().id
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


def test_a_broken_mail_is_shown_with_what_to_correct(office: Office) -> None:
    """Its meta.sh and body as they are, its task, and the command to type afterwards; nothing of a
    meta.sh is run.
    """
    ident = office.spool("rescue me\n")
    meta = f'MAIL_TO="$(touch {office.folder}/pwned)"\n'
    Path(office.meta(ident)).write_text(meta)
    bare = office.spool("no meta\n", task=False)
    Path(office.meta(bare)).unlink()

    run, nometa = (office.mail("spool", "show", each) for each in (ident, bare))

    place = f"spooldeck --root {office.root} --config {office.config}"
    assert (run.returncode, nometa.returncode) == (1, 1)
    assert "unescaped $" in run.stderr and not (office.folder / "pwned").exists()
    assert f"---- meta.sh\n{meta}" in run.stdout and "---- body.txt\nrescue me" in run.stdout
    assert f"---- task: {office.task().id} (pending)\n" in run.stdout
    assert f"correct {office.meta(ident)} (" in run.stdout
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
def test_a_wrong_name_of_a_mail_is_refused(office: Office, words: str, code: int) -> None:
    """A mail is named by its id, or all are meant with --all."""
    run = office.mail("spool", *words.split())

    assert (run.returncode, run.stdout) == (code, "")
    assert code == 64 or words.split()[-1] in run.stderr


def test_retry_never_makes_a_second_task(office: Office) -> None:
    """A mail without a task gets one, a waiting task is made due, a dead one is retried, and a held
    or purged one is left to the command that is printed.
    """
    ident = office.spool(task=False)

    def retry() -> str:
        run = office.mail("spool", "retry", ident)
        return run.stderr if run.returncode else run.stdout

    place = f"spooldeck --root {office.root} --config {office.config}"
    queued, same = retry(), retry()
    task = office.task()
    assert queued == f"{ident}: task {task.id} queued\n"
    assert same == f"{ident}: task {task.id} is already due\n"
    office.change("edit", due=2_000_000_000.0)
    assert (retry(), office.task().due) == (f"{ident}: task {task.id} is due now\n", 0)
    office.change("bury")
    assert retry() == f"{ident}: task {task.id} moved from DLQ to pending queue\n"
    assert (office.task().state, office.task().payload) == (State.PENDING, office.meta(ident))
    for verb, back in (("hold", "release"), ("purge", "restore")):
        office.change(verb)
        assert f"{place} {back} --id {task.id}" in retry()


@pytest.mark.parametrize("wrong", ["new", "address", "size", "disk"])
def test_a_mail_that_cannot_be_queued_stops_no_other(
    office: Office, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """One line names the reason: it was spooled a moment ago and its sender may queue it, has no
    valid address, is too large, or cannot be read. The other mail is queued.
    """
    bad = office.spool(task=False, old=1 if wrong == "new" else 3600)
    good = office.spool(task=False, old=6)
    said = f"{bad}: cannot be sent; skipped: "
    if wrong == "address":
        rewrite(office, bad, MAIL_TO="a b")
    elif wrong == "size":
        os.truncate(Path(office.meta(bad)).with_name("body.txt"), 1 << 30)
    elif wrong == "new":
        said = f"{bad}: just spooled"
    else:
        said = f"{bad}: Input/output error"
        opened = files.open_folder

        def refused(path: str, dir_fd: int | None = None) -> int:
            if path == bad:
                raise OSError(5, "Input/output error", path)
            return opened(path, dir_fd)

        monkeypatch.setattr(files, "open_folder", refused)

    run = office.mail("spool", "retry", bad, good)

    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert said in run.stderr and (wrong != "new" or "its task may follow" in run.stderr)
    assert office.task().payload == office.meta(good)


def test_another_handler_checks_addresses_itself(office: Office) -> None:
    """Where a program is configured for mail_send, no address is refused before it."""
    office.config.write_text("handlers: {mail_send: {command: [/bin/true]}}\n")
    ident = office.spool(task=False)
    rewrite(office, ident, MAIL_TO="a b")

    assert office.mail("spool", "retry", ident).returncode == 0
    assert office.task().payload == office.meta(ident)


def test_a_mail_whose_task_is_being_moved_or_added_is_left_alone(office: Office) -> None:
    """While a living process has the task in the staging directory there is no second one; a move
    whose process has ended is finished. So too for a task of another kind that names the mail.
    """
    ident = office.spool()
    task = office.task()
    path = office.root / "queue" / "pending" / f"{task.id}.task"
    adding = office.staging / f"T.{task.id}.1-0-1"
    path.rename(adding)
    run = office.mail("spool", "retry", ident)
    assert (run.returncode, office.tasks()) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{adding.name}" in run.stderr

    crc = zlib.crc32(adding.read_bytes())
    withdrawn = office.staging / f"D.{task.id}.pending.held.{crc:08x}.1-0-1"
    adding.rename(withdrawn)
    fd = os.open(withdrawn, os.O_RDONLY)
    assert files.claim_flock(fd)
    living, tasks = office.mail("spool", "retry", ident), office.tasks()
    os.close(fd)
    dead = office.mail("spool", "retry", ident)
    assert (living.returncode, tasks) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{withdrawn.name}" in living.stderr
    assert (office.task().id, office.task().state) == (task.id, State.HELD)
    assert f"task {task.id} is held" in dead.stderr

    other = office.spool(task=False)
    with closing(office.store()) as store:
        store.swap(None, verbs.enqueue("report", time.time(), "0000000a", "", office.meta(other)))
    run = office.mail("spool", "retry", other)
    assert (run.returncode, "skipped: pending/" in run.stderr) == (1, True)
    assert len(office.tasks()) == 2


@pytest.mark.parametrize("ran", [False, True])
def test_a_mail_to_a_wrong_recipient_is_sent_to_another(office: Office, ran: bool) -> None:
    """`--to` replaces the recipient of a refused mail, before and after the first run of its task;
    a wrong one, or one for all mails, is refused and changes nothing."""
    office.mail("send-with-retry", "hello", "root@localhost", "alert")
    (task,) = office.tasks()
    ident = Path(task.payload).parent.name
    with Server() as server:
        office.goes_by("curl", server.port)
        if ran:
            office.run("queue", "process-next")
        wrong = office.mail("spool", "retry", ident, "--to", "nobody")
        everything = office.mail("spool", "retry", "--all", "--to", TO)
        run = office.mail("spool", "retry", ident, "--to", TO)
        office.run("queue", "process-next")

    assert (wrong.returncode, everything.returncode, run.returncode) == (1, 64, 0)
    assert "'nobody' has no domain" in wrong.stderr
    assert [mail.recipients for mail in server.mails] == [(TO,)]
    assert "spooldeck: --to needs the id of one mail, not --all" in everything.stderr
    change = f"{ident}: recipient changed from root@localhost to {TO}\n"
    assert run.stdout.startswith(change)
    assert change in (office.root / "log" / "queue.log").read_text()


def test_a_mail_that_is_being_sent_or_held_keeps_its_recipient(office: Office) -> None:
    """`--to` changes no mail whose task runs, is held, in the trash or being moved, or
    that is not the only one named.
    """
    ident = office.spool()
    meta = Path(office.meta(ident)).read_bytes()
    task = office.task()

    def refused(*more: str) -> str:
        run = office.mail("spool", "retry", ident, *more, "--to", TO)
        assert (run.returncode, run.stdout) == (64 if more else 1, "")
        assert Path(office.meta(ident)).read_bytes() == meta
        return run.stderr

    assert "--to needs the id of one mail" in refused("mail-2")
    unchanged = f"spooldeck: {ident}: recipient unchanged: "
    for verb, why in (("hold", "is held: "), ("purge", "is in the trash: ")):
        office.change(verb)
        assert refused().startswith(f"{unchanged}task {task.id} {why}")
    office.change("restore")
    office.change("release")
    with closing(office.store()) as store:
        (task,) = store.take(2_000_000_000, "test", 1)
    assert refused() == f"{unchanged}task {task.id} is sending it now\n"

    path = next(office.root.glob(f"queue/work/{task.id}*"))
    path.rename(office.staging / f"T.{task.id}.1-0-1")
    assert refused() == f"{unchanged}.spooldeck/T.{task.id}.1-0-1 names it\n"


def test_retry_all(office: Office) -> None:
    """What has no task is queued, the dead are retried and a backoff is ended; broken and sent mail
    is counted, and a permanent refusal is tried again only with --refused.
    """
    dead = office.spool()
    office.change("bury")
    refused = office.spool()
    with closing(office.store()) as store:
        (taken,) = store.take(2_000_000_000, "test", 1)
        store.swap(taken, verbs.give_up_task(taken, "rejected_550: no such user"))
    waiting = office.spool()
    with closing(office.store()) as store:
        (task,) = (task for task in office.tasks() if task.payload == office.meta(waiting))
        store.swap(task, verbs.edit(task, 0, due=time.time() + 900.0))
    lost = [office.spool(task=False) for _ in range(3)]
    broken, sent = office.spool(task=False), office.spool(task=False)
    Path(office.meta(broken)).write_text("MAIL_TO=\n")
    mark(office, sent, "sent", **CURL)

    run, again = (office.mail("spool", "retry", "--all") for _ in range(2))
    states = {task.payload: (task.state, task.due) for task in office.tasks()}
    more = office.mail("spool", "retry", "--all", "--refused")

    left = "will be sent now; skipped: 1 broken, "
    assert (run.returncode, run.stderr) == (0, "")
    assert states.pop(office.meta(refused))[0] is State.DEAD
    assert set(states) == {office.meta(ident) for ident in (dead, waiting, *lost)}
    assert {state for state, _ in states.values()} == {State.PENDING}
    assert states[office.meta(waiting)] == (State.PENDING, 0)
    assert run.stdout.endswith(f"5 of 5 {left}1 sent, 1 refused permanently (--refused)\n")
    others = "1 sent, 5 being sent or due, 1 refused permanently (--refused)"
    assert again.stdout == f"0 of 0 {left}{others}\n"
    assert more.stdout.endswith(f"1 of 1 {left}1 sent, 5 being sent or due\n")
    assert {task.state for task in office.tasks()} == {State.PENDING}


def test_many_mails_are_queued_with_few_scans(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are read once for each group of mails, not for each mail."""
    asked: list[int] = []
    real = NftbanStore.find_named_payloads

    def counted(self: NftbanStore, payloads: Collection[str]) -> dict[str, str]:
        asked.append(len(payloads))
        return real(self, payloads)

    monkeypatch.setattr(NftbanStore, "find_named_payloads", counted)
    lost = [office.spool(task=False) for _ in range(BATCH_MAILS + 1)]
    run = office.mail("spool", "retry", *lost)

    assert (run.returncode, asked) == (0, [BATCH_MAILS, 1])
    assert len(office.tasks()) == BATCH_MAILS + 1


def test_a_full_queue_is_reported_once(office: Office) -> None:
    """Mails that do not fit are counted and stay in the spool."""
    for _ in range(5):
        office.spool(task=False)

    run = office.mail("spool", "retry", "--all", NFTBAN_QUEUE_MAX_PENDING="2")

    assert (run.returncode, len(office.tasks())) == (1, 2)
    full, left = run.stderr.splitlines()
    assert "full" in full and "3 mails skipped" in left
    assert run.stdout.endswith("2 of 5 will be sent now\n")
