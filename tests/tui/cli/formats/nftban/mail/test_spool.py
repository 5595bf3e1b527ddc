"""`spooldeck mail spool`: list, show and retry."""

import os
import re
import time
import zlib
from collections.abc import Collection
from pathlib import Path

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore
from engine.model import State
from engine.system import files
from tests.nftban_queues import GOLDEN
from tests.tables import each
from tests.tui.cli.formats.nftban.mail.test_mail import TO, MailPlace, place
from tui.cli.formats.nftban.mail.retry import BATCH_MAILS

__all__ = ["place"]


def write(place: MailPlace, ident: str, name: str, **values: str) -> None:
    """Change values in a file of a mail: its meta.sh, or a mark such as `sent`."""
    path = Path(place.meta(ident)).with_name(name)
    known = files.parse_assignments(path.read_bytes(), lambda key: True) if path.exists() else {}
    path.write_bytes(files.format_assignments({**known, **values}))
    path.chmod(0o640)


CURL = {"TRANSPORT": "curl", "SINCE": "1795170000"}


def test_the_list_of_spooled_mails(place: MailPlace) -> None:
    """A line a mail, below the contract's header; broken and sent ones are counted."""
    plain, lost, broken, sent, doubt, refused = (
        place.spool(task=number != 1, old=3600 * (number + 1)) for number in range(6)
    )
    tasks = {task.payload: task.id for task in place.tasks()}
    Path(place.meta(broken)).write_text("MAIL_TO=\n")
    (place.mails / "mail-20260107T120102Z-empty").mkdir()
    write(place, sent, "sent", **CURL)
    write(place, doubt, "trying", **CURL)
    write(place, refused, "refused", WHY="rejected_550: no such user")
    run, tokyo = (place.mail("spool", "list", TZ=zone) for zone in ("UTC", "Asia/Tokyo"))
    sample = "\n".join((GOLDEN / "mail_spool_status.stdout.txt").read_text().splitlines()[:6])
    counts = "mails: 7 (4 pending, 1 broken, 1 empty, 1 sent)"
    head = sample.replace("/var/lib/nftban/mailspool", str(place.mails))
    lines = run.stdout.splitlines()
    assert lines[:6] == head.replace("mails: 2", counts).splitlines()
    assert tokyo.stdout == run.stdout
    assert "spool      5 mails" in place.mail("status").stdout
    pending, _, rest = run.stdout.partition("Pending mails:")[2].partition("Sent mails:")
    assert plain in pending and sent not in pending
    assert sent in rest and "by curl" in rest
    rows = {line.split()[0]: line.strip() for line in lines if line.startswith("  mail-")}
    made = time.strftime("%Y-%m-%d %H:%MZ", time.strptime(plain[5:20], "%Y%m%dT%H%M%S"))
    assert re.split(r" +\| +", rows[plain])[1] == "To: admin@..."
    assert f"Created: {made} |" in rows[plain]
    for ident, end in (
        (plain, f"Task: {tasks[place.meta(plain)]} (pending)"),
        (lost, " | Task: none"),
        (doubt, " (pending) | In doubt since: 2026-11-20 10:20:00Z"),
        (refused, " | Refused: rejected_550: no such user"),
    ):
        assert rows[ident].endswith(end)
    for name in (broken, "mail-20260107T120102Z-empty"):
        assert f"{name}: " in run.stderr


def test_a_spooled_mail_is_shown_as_inert_text(place: MailPlace) -> None:
    """Its fields and its body without a control character; of a long body the first megabyte. The
    command that sends it again is printed only if it does not go by itself."""
    ident = place.spool("first\x1b[2Jline\nand \u202eback\n")
    waiting = place.mail("spool", "show", ident)
    place.change("hold")
    held = place.mail("spool", "show", ident).stdout
    place.change("release")
    place.change("bury")
    dead, listed = (place.mail("spool", *w).stdout for w in (["show", ident], ["list"]))
    long = place.spool("first line\n" + "x" * (1 << 21) + "\nlast line\n", task=False)
    cut = place.mail("spool", "show", long)
    task = place.task().id
    assert (waiting.returncode, "again" in waiting.stdout) == (0, False)
    assert "to       admin@example.com" in waiting.stdout
    assert f"task     {task} (pending)" in waiting.stdout
    assert all(line.isprintable() for line in waiting.stdout.splitlines())
    assert f"again    {place.printed} release --id {task}\n" in held
    assert f"task     {task} (dlq)\nerror    no use\n" in dead
    assert f"again    {place.printed} mail spool retry {ident}\n" in dead
    assert f"Task: {task} (dlq) | Error: no use\n" in listed
    assert cut.returncode == 0
    assert "body     text, 2,097,174 bytes, of which these are the first 1,048,576\n" in cut.stdout
    assert "\nfirst line\n" in cut.stdout and "last line" not in cut.stdout


def test_a_broken_mail_is_shown_with_what_to_correct(place: MailPlace) -> None:
    """Its meta.sh and body as they are, its task, and what to type afterwards; nothing is run."""
    ident, bare = place.spool("rescue me\n"), place.spool("no meta\n", task=False)
    meta = f'MAIL_TO="$(touch {place.folder}/pwned)"\n'
    Path(place.meta(ident)).write_text(meta)
    Path(place.meta(bare)).unlink()
    run, nometa = (place.mail("spool", "show", each) for each in (ident, bare))
    assert (run.returncode, nometa.returncode) == (1, 1)
    assert "unescaped $" in run.stderr and not (place.folder / "pwned").exists()
    assert f"---- meta.sh\n{meta}" in run.stdout and "---- body.txt\nrescue me" in run.stdout
    assert f"---- task: {place.task().id} (pending)\n" in run.stdout
    assert f"correct {place.meta(ident)} (" in run.stdout
    assert "no meta" in nometa.stdout and "---- task: none\n" in nometa.stdout
    assert nometa.stdout.endswith(f"then {place.printed} mail spool retry {bare}\n")


def test_retry_never_makes_a_second_task(place: MailPlace) -> None:
    """A waiting task is made due, a dead one retried; for a held one a command is printed."""
    ident = place.spool(task=False)

    def retry() -> str:
        run = place.mail("spool", "retry", ident)
        return run.stderr if run.returncode else run.stdout

    queued, same, task = retry(), retry(), place.task()
    assert queued == f"{ident}: task {task.id} queued\n"
    assert same == f"{ident}: task {task.id} is already due\n"
    place.change("edit", due=2_000_000_000.0)
    assert (retry(), place.task().due) == (f"{ident}: task {task.id} is due now\n", 0)
    place.change("bury")
    assert retry() == f"{ident}: task {task.id} moved from DLQ to pending queue\n"
    task = place.task()
    assert (task.state, task.payload) == (State.PENDING, place.meta(ident))
    for verb, back in (("hold", "release"), ("purge", "restore")):
        place.change(verb)
        assert f"{place.printed} {back} --id {task.id}" in retry()


@each(
    ("wrong", "message"),
    [
        ("new", "just spooled.*its task may follow"),
        ("address", "cannot be sent; skipped: "),
        ("size", "cannot be sent; skipped: "),
        ("disk", "Input/output error"),
    ],
    place=MailPlace,
)
def test_a_mail_that_cannot_be_queued_stops_no_other(
    place: MailPlace, monkeypatch: pytest.MonkeyPatch, wrong: str, message: str
) -> None:
    """One line names the reason; the other mail is queued."""
    broken = place.spool(task=False, old=1 if wrong == "new" else 3600)
    good, opened = place.spool(task=False, old=6), files.open_folder

    def refused(path: str, dir_fd: int | None = None) -> int:
        if path == broken and wrong == "disk":
            raise OSError(5, "Input/output error", path)
        return opened(path, dir_fd)

    if wrong == "address":
        write(place, broken, "meta.sh", MAIL_TO="a b")
    elif wrong == "size":
        os.truncate(Path(place.meta(broken)).with_name("body.txt"), 1 << 30)
    monkeypatch.setattr(files, "open_folder", refused)
    run = place.mail("spool", "retry", broken, good)
    assert (run.returncode, run.stderr.count("\n")) == (1, 1)
    assert re.search(f"{broken}: {message}", run.stderr)
    assert place.task().payload == place.meta(good)


def test_another_handler_checks_addresses_itself(place: MailPlace) -> None:
    """Where a program is configured for mail_send, it gets any address, and needs no transport."""
    place.config.write_text("handlers: {mail_send: {command: [/bin/true]}}\n")
    ident = place.spool(task=False)
    write(place, ident, "meta.sh", MAIL_TO="a b")
    assert place.mail("spool", "retry", ident).returncode == 0
    assert place.task().payload == place.meta(ident)
    assert (place.work().returncode, place.tasks()) == (0, [])


def test_a_mail_whose_task_is_being_moved_or_added_is_left_alone(place: MailPlace) -> None:
    """While a living process has the task in the staging directory there is no second one; a move
    whose process has ended is finished. So too for a task of another kind that names the mail."""
    ident, task = place.spool(), place.task()
    path = place.root / "queue" / "pending" / f"{task.id}.task"
    adding = path.rename(place.staging / f"T.{task.id}.1-0-1")
    run = place.mail("spool", "retry", ident)
    assert (run.returncode, place.tasks()) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{adding.name}" in run.stderr
    crc = zlib.crc32(adding.read_bytes())
    withdrawn = adding.rename(place.staging / f"D.{task.id}.pending.held.{crc:08x}.1-0-1")
    with withdrawn.open() as file:
        assert files.claim_flock(file.fileno())
        living, tasks = place.mail("spool", "retry", ident), place.tasks()
    dead = place.mail("spool", "retry", ident)
    assert (living.returncode, tasks) == (1, [])
    assert f"{ident}: skipped: .spooldeck/{withdrawn.name}" in living.stderr
    assert (place.task().id, place.task().state) == (task.id, State.HELD)
    assert f"task {task.id} is held" in dead.stderr
    other = place.spool(task=False)
    place.swap(None, verbs.enqueue("report", time.time(), "0000000a", "", place.meta(other)))
    run = place.mail("spool", "retry", other)
    assert (run.returncode, "skipped: pending/" in run.stderr) == (1, True)
    assert len(place.tasks()) == 2


@each("ran", [False, True], place=MailPlace)
def test_a_mail_to_a_wrong_recipient_is_sent_to_another(place: MailPlace, ran: bool) -> None:
    """`--to` replaces the recipient of a refused mail; a wrong one changes nothing."""
    place.mail("send-with-retry", "hello", "root@localhost", "alert")
    ident = Path(place.task().payload).parent.name
    with place.served() as server:
        if ran:
            place.work()
        wrong, everything, run = (
            place.mail("spool", "retry", name, "--to", to)
            for name, to in ((ident, "postmaster"), ("--all", TO), (ident, TO))
        )
        place.work()
    assert (wrong.returncode, everything.returncode, run.returncode) == (1, 64, 0)
    assert "'postmaster' has no domain" in wrong.stderr
    assert [mail.recipients for mail in server.mails] == [(TO,)]
    assert "spooldeck: --to needs the id of one mail, not --all" in everything.stderr
    change = f"{ident}: recipient changed from root@localhost to {TO}\n"
    assert run.stdout.startswith(change)
    assert change in (place.root / "log" / "queue.log").read_text()


def test_a_mail_that_is_being_sent_or_held_keeps_its_recipient(place: MailPlace) -> None:
    """`--to` changes no mail whose task runs, is held, in the trash or being moved."""
    ident, task = place.spool(), place.task()
    meta = Path(place.meta(ident)).read_bytes()

    def refused(*more: str) -> str:
        run = place.mail("spool", "retry", ident, *more, "--to", TO)
        assert (run.returncode, run.stdout) == (64 if more else 1, "")
        assert Path(place.meta(ident)).read_bytes() == meta
        return run.stderr

    assert "--to needs the id of one mail" in refused("mail-2")
    unchanged = f"spooldeck: {ident}: recipient unchanged: "
    for verb, why in (("hold", "is held: "), ("purge", "is in the trash: ")):
        place.change(verb)
        assert refused().startswith(f"{unchanged}task {task.id} {why}")
    place.change("restore")
    place.change("release")
    place.take()
    assert refused() == f"{unchanged}task {task.id} is sending it now\n"
    path = next(place.root.glob(f"queue/work/{task.id}*"))
    path.rename(place.staging / f"T.{task.id}.1-0-1")
    assert refused() == f"{unchanged}.spooldeck/T.{task.id}.1-0-1 names it\n"


def test_retry_all(place: MailPlace) -> None:
    """The dead are retried, a backoff is ended; a permanent refusal only with --refused."""
    dead = place.spool()
    place.change("bury")
    refused = place.spool()
    taken = place.take()
    place.swap(taken, verbs.give_up_task(taken, "rejected_550: no such user"))
    waiting = place.spool()
    (task,) = (task for task in place.tasks() if task.payload == place.meta(waiting))
    place.swap(task, verbs.edit(task, 0, due=time.time() + 900.0))
    lost = [place.spool(task=False) for _ in range(3)]
    broken, sent = place.spool(task=False), place.spool(task=False)
    Path(place.meta(broken)).write_text("MAIL_TO=\n")
    write(place, sent, "sent", **CURL)

    run, again = (place.mail("spool", "retry", "--all") for _ in range(2))
    states = {task.payload: (task.state, task.due) for task in place.tasks()}
    more = place.mail("spool", "retry", "--all", "--refused")
    left = "will be sent now; skipped: 1 broken, "
    assert (run.returncode, run.stderr) == (0, "")
    assert states.pop(place.meta(refused))[0] is State.DEAD
    assert set(states) == {place.meta(ident) for ident in (dead, waiting, *lost)}
    assert {state for state, _ in states.values()} == {State.PENDING}
    assert states[place.meta(waiting)] == (State.PENDING, 0)
    assert run.stdout.endswith(f"5 of 5 {left}1 sent, 1 refused permanently (--refused)\n")
    others = "1 sent, 5 being sent or due, 1 refused permanently (--refused)"
    assert again.stdout == f"0 of 0 {left}{others}\n"
    assert more.stdout.endswith(f"1 of 1 {left}1 sent, 5 being sent or due\n")
    assert {task.state for task in place.tasks()} == {State.PENDING}


def test_many_mails_need_few_scans(place: MailPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks are read once for each group of mails, not for each mail."""
    asked: list[int] = []
    real = NftbanStore.find_named_payloads

    def counted(self: NftbanStore, payloads: Collection[str]) -> dict[str, str]:
        asked.append(len(payloads))
        return real(self, payloads)

    monkeypatch.setattr(NftbanStore, "find_named_payloads", counted)
    lost = [place.spool(task=False) for _ in range(BATCH_MAILS + 1)]
    run = place.mail("spool", "retry", *lost)
    assert (run.returncode, asked) == (0, [BATCH_MAILS, 1])
    assert len(place.tasks()) == BATCH_MAILS + 1


def test_a_full_queue_is_reported_once(place: MailPlace) -> None:
    """Mails that do not fit are counted and stay in the spool."""
    for _ in range(5):
        place.spool(task=False)
    run = place.mail("spool", "retry", "--all", NFTBAN_QUEUE_MAX_PENDING="2")
    full, left = run.stderr.splitlines()
    assert (run.returncode, len(place.tasks())) == (1, 2)
    assert "full" in full and "3 mails skipped" in left
    assert run.stdout.endswith("2 of 5 will be sent now\n")
