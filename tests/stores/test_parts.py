"""The pieces of a task in a spool folder: shown as far as they are its own, opened nowhere else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.model import Part, Problem, State, Task
from engine.store import GLIMPSE, SHOWN, Gone, Unsupported
from engine.stores.nftban import NftbanStore, Spool, form

Opener = Callable[..., NftbanStore]

IDENT = "20261120T094115Z-mail_send-00000001"


@pytest.fixture
def mail(spool: Spool) -> Path:
    """The folder of a spooled mail: what it says, and its body."""
    folder = Path(spool.mail_spool, "mail-20261120T094604Z-a96ebf3e")
    folder.mkdir()
    meta = f'MAIL_TO="a@b.example"\nMAIL_SUBJECT="$(touch {spool.mail_spool}/ran)"\n'
    (folder / "meta.sh").write_text(meta)
    (folder / "body.html").write_text("<p>hello</p>")
    return folder


def a_task(spool: Spool, payload: object) -> Path:
    """A task file as the other program writes it, whatever payload it names."""
    record = form.new_record(Task(IDENT, "mail_send", State.PENDING, 1_795_167_675.0))
    path = Path(spool.pending, f"{IDENT}.task")
    path.write_bytes(form.render(record._replace(payload=str(payload))))
    path.chmod(0o640)
    return path


def seen(store: NftbanStore) -> Task:
    """The task, as it stands there."""
    (task,) = store.look({IDENT})
    assert isinstance(task, Task)
    return task


def parts(store: NftbanStore) -> dict[str, Part]:
    """Its parts by their names."""
    return {part.name: part for part in store.parts(seen(store))}


def test_a_spooled_mail_is_shown_with_its_body(
    open_spool: Opener, spool: Spool, mail: Path
) -> None:
    """The payload and each file beside it are parts; nothing in them is run."""
    path = a_task(spool, mail / "meta.sh")
    store = open_spool()
    found = parts(store)
    assert list(found) == ["task", "payload", "mail/body.html"]
    assert found["task"].where == str(path)
    assert found["task"].size == path.stat().st_size
    assert found["mail/body.html"].where == str(mail / "body.html")
    assert store.read(seen(store), "mail/body.html") == b"<p>hello</p>"
    assert store.read(seen(store), "payload") == (mail / "meta.sh").read_bytes()
    assert not Path(spool.mail_spool, "ran").exists()


def test_a_part_tells_what_its_file_is(open_spool: Opener, spool: Spool, mail: Path) -> None:
    """Times, inode, mode and owner are those of the file."""
    body = mail / "body.html"
    body.chmod(0o600)
    os.utime(body, (1_795_000_000, 1_795_000_000))
    a_task(spool, mail / "meta.sh")
    facts = dict(parts(open_spool())["mail/body.html"].facts)
    assert facts["modified"] == "1795000000"
    assert facts["inode"] == str(body.stat().st_ino)
    assert facts["mode"] == "-rw-------"
    assert facts["owner"] == f"{body.owner()}:{body.group()}"
    assert "lock" not in facts


def test_a_file_whose_flock_is_held_is_said_to_be(open_spool: Opener, spool: Spool) -> None:
    """Found out without touching the lock."""
    import fcntl

    with a_task(spool, "").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert dict(parts(open_spool())["task"].facts)["lock"] == "its flock is held"


def test_only_the_folder_of_a_mail_is_listed(open_spool: Opener, spool: Spool) -> None:
    """Beside any other payload lie those of other tasks."""
    payload = Path(spool.mail_spool, "report.txt")
    payload.write_text("words")
    Path(spool.mail_spool, "other.txt").write_text("not ours")
    a_task(spool, payload)
    assert list(parts(open_spool())) == ["task", "payload"]


def _written(path: Path) -> Path:
    path.write_text("x")
    return path


UNREAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "is not there"),
    "a FIFO": (os.mkfifo, "is a FIFO"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link, not followed"),
    "a folder": (Path.mkdir, "is a folder"),
    "a second link": (
        lambda path: path.with_name("again").hardlink_to(_written(path)),
        "has a second hard link",
    ),
}


def test_a_payload_that_is_no_plain_file_is_not_opened(
    open_spool: Opener, spool: Spool, mail: Path
) -> None:
    """Its part says why, and reading it is refused with the same words."""
    for number, (make, why) in enumerate(UNREAD.values()):
        make(mail / f"odd{number}")
        a_task(spool, mail / f"odd{number}")
        store = open_spool()
        assert parts(store)["payload"].refused == why
        with pytest.raises((Gone, Unsupported), match=why):
            store.read(seen(store), "payload")


def test_what_lies_beside_a_mail_is_judged_too(
    open_spool: Opener, spool: Spool, mail: Path
) -> None:
    """A link in the folder of a mail leads nowhere."""
    (mail / "ln").symlink_to("/etc/passwd")
    a_task(spool, mail / "meta.sh")
    store = open_spool()
    assert parts(store)["mail/ln"].refused == "is a symbolic link, not followed"
    with pytest.raises(Unsupported, match="symbolic link"):
        store.read(seen(store), "mail/ln")
    with pytest.raises(Gone):
        store.read(seen(store), "mail/../../../queue/pending/x")


def test_a_payload_elsewhere_is_not_looked_at(open_spool: Opener, spool: Spool) -> None:
    """Whatever a task file names outside of the mail spool, nothing is told of it but that."""
    Path(spool.mail_spool, "ln").symlink_to("/etc")
    for payload, why in {
        "/etc/passwd": "does not lie plainly below",
        "{spool}-evil/x": "does not lie plainly below",
        "{spool}/../secret": "does not lie plainly below",
        "{spool}/ln/passwd": "lies behind ln, a symbolic link or no folder",
        "{spool}/mail-9/meta.sh": "is not there",
    }.items():
        a_task(spool, payload.format(spool=spool.mail_spool))
        store = open_spool()

        part = parts(store)["payload"]

        assert why in part.refused, payload
        assert part.size is None
        assert not part.facts
        with pytest.raises((Gone, Unsupported)):
            store.read(seen(store), "payload")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_payload_of_somebody_else_is_not_opened(
    open_spool: Opener, spool: Spool, mail: Path
) -> None:
    """It may be theirs to hide; the one of the mail spool's owner is shown."""
    os.chown(mail / "body.html", 12345, 12345)
    a_task(spool, mail / "meta.sh")
    assert "belongs to user 12345" in parts(open_spool())["mail/body.html"].refused


def test_of_a_big_payload_the_beginning_is_read(
    open_spool: Opener, spool: Spool, mail: Path
) -> None:
    """Its whole size is told."""
    (mail / "body.html").write_bytes(b"x" * 5_000_000)
    a_task(spool, mail / "meta.sh")
    store = open_spool()
    assert parts(store)["mail/body.html"].size == 5_000_000
    assert len(store.read(seen(store), "mail/body.html")) == SHOWN


# Broken files


def problems(store: NftbanStore) -> list[Problem]:
    """What cannot be read as a task."""
    return [found for found in store.look() if isinstance(found, Problem)]


def test_the_first_bytes_of_a_broken_file_can_be_seen(open_spool: Opener, spool: Spool) -> None:
    """They are those of the file, in whatever folder it lies."""
    Path(spool.dlq, "broken.task").write_bytes(b"\0\x1b[2J" + b"x" * 10_000)
    aside = Path(spool.desk, "corrupt")
    aside.mkdir(parents=True)
    (aside / "x.pending.00000000").write_bytes(b"aside")
    store = open_spool()
    glimpses = {problem.where: store.glimpse(problem) for problem in set(problems(store))}
    assert glimpses["dlq/broken.task"] == (b"\0\x1b[2J" + b"x" * 10_000)[:GLIMPSE]
    assert glimpses[".spooldeck/corrupt/x.pending.00000000"] == b"aside"


def test_a_problem_that_is_no_plain_file_is_not_opened(open_spool: Opener, spool: Spool) -> None:
    """It is refused with the reason, at once."""
    for number, kind in enumerate(("a FIFO", "a link", "a folder", "a second link")):
        make, why = UNREAD[kind]
        make(Path(spool.dlq, f"odd{number}.task"))
        store = open_spool()
        where = f"dlq/odd{number}.task"
        found = next(problem for problem in problems(store) if problem.where == where)
        with pytest.raises(Unsupported, match=why):
            store.glimpse(found)


def test_a_problem_that_is_not_there(open_spool: Opener) -> None:
    """What has gone, or was never of this spool, has no bytes."""
    for where in ("dlq/gone.task", "/etc/passwd", "../secret", "odd"):
        with pytest.raises((Gone, Unsupported)):
            open_spool().glimpse(Problem(where, ""))
