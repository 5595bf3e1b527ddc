"""The pieces of a task in a spool folder: shown as far as they are its own, opened nowhere else."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.formats.nftban import task_format
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Part, Problem, State, Task
from engine.store import MAX_PART_BYTES, PREVIEW_BYTES, Gone, Unsupported
from tests.nftban_spool import opened
from tests.store_contents import found

IDENT = "20261120T094115Z-mail_send-00000001"
TASK = Task(IDENT, "mail_send", State.PENDING, 1_795_167_675.0)


@pytest.fixture
def mail(spool: SpoolFolders) -> Path:
    """The folder of a spooled mail: what it says, and its body."""
    folder = Path(spool.mail_spool, "mail-20261120T094604Z-a96ebf3e")
    folder.mkdir()
    meta = f'MAIL_TO="a@b.example"\nMAIL_SUBJECT="$(touch {spool.mail_spool}/ran)"\n'
    (folder / "meta.sh").write_text(meta)
    (folder / "body.html").write_text("<p>hello</p>")
    return folder


def a_task(spool: SpoolFolders, payload: object, task: Task = TASK) -> Path:
    """A task file as the other program writes it, with any payload."""
    record = task_format.new_record(task)._replace(payload=str(payload))
    path = Path(spool.pending, f"{task.id}.task")
    path.write_bytes(task_format.render_task(record))
    path.chmod(0o640)
    return path


def parts(store: NftbanStore) -> dict[str, Part]:
    """The task's parts by their names."""
    return {part.name: part for part in store.parts(found(store, IDENT))}


def read(store: NftbanStore, name: str) -> bytes:
    """The bytes of one of them."""
    return store.read(found(store, IDENT), name)


def test_a_spooled_mail_is_shown_with_its_body(spool: SpoolFolders, mail: Path) -> None:
    """Payload and files beside it are parts with their facts; nothing in them is run."""
    path, body = a_task(spool, mail / "meta.sh"), mail / "body.html"
    body.chmod(0o600)
    os.utime(body, (1_795_000_000, 1_795_000_000))
    store = opened(spool)

    seen = parts(store)

    assert list(seen) == ["task", "payload", "mail/body.html"]
    assert (seen["task"].where, seen["task"].size) == (str(path), path.stat().st_size)
    assert seen["mail/body.html"].where == str(body)
    facts = dict(seen["mail/body.html"].facts)
    assert (facts["modified"], facts["mode"]) == ("1795000000", "-rw-------")
    assert facts["inode"] == str(body.stat().st_ino)
    assert facts["owner"] == f"{body.owner()}:{body.group()}"
    assert "lock" not in facts
    assert read(store, "mail/body.html") == b"<p>hello</p>"
    assert read(store, "payload") == (mail / "meta.sh").read_bytes()
    assert not Path(spool.mail_spool, "ran").exists()

    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert dict(parts(opened(spool))["task"].facts)["lock"] == "its flock is held"
    body.write_bytes(b"x" * 5_000_000)
    assert parts(store)["mail/body.html"].size == 5_000_000
    assert len(read(store, "mail/body.html")) == MAX_PART_BYTES


def test_only_the_folder_of_a_mail_is_listed(spool: SpoolFolders) -> None:
    """Beside any other payload lie those of other tasks."""
    payload = Path(spool.mail_spool, "report.txt")
    payload.write_text("words")
    Path(spool.mail_spool, "other.txt").write_text("not ours")
    a_task(spool, payload)
    assert list(parts(opened(spool))) == ["task", "payload"]


def _written(path: Path) -> Path:
    path.write_text("x")
    return path


def _linked_by_any_user(path: Path) -> None:
    path.with_name("again").hardlink_to(_written(path))
    path.parent.chmod(0o777)


UNREAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: None, "is not there"),
    (os.mkfifo, "is a FIFO"),
    (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link, not followed"),
    (Path.mkdir, "is a folder"),
    (_linked_by_any_user, "has a second hard link"),
]


def test_what_is_no_plain_file_is_not_opened(spool: SpoolFolders, mail: Path) -> None:
    """The part of such a payload, of such a file beside a mail, and of one of another user has the
    reason, and reading it, or the bytes of such a problem, is refused with the same words."""
    for number, (make, why) in enumerate(UNREAD):
        make(mail / f"odd{number}")
        a_task(spool, mail / f"odd{number}")
        store = opened(spool)
        assert parts(store)["payload"].refusal == why
        with pytest.raises((Gone, Unsupported), match=why):
            read(store, "payload")
        if why == "is not there":
            continue
        where = f"dlq/odd{number}.task"
        make(Path(spool.pending).parent / where)
        (problem,) = {p for p in store.scan() if isinstance(p, Problem) and p.where == where}
        with pytest.raises(Unsupported, match=why):
            store.preview_problem(problem)

    (mail / "ln").symlink_to("/etc/passwd")
    if os.geteuid() == 0:  # only root gives files away
        os.chown(mail / "body.html", 12345, 12345)
    a_task(spool, mail / "meta.sh")
    seen = parts(store)
    assert seen["mail/ln"].refusal == "is a symbolic link, not followed"
    with pytest.raises(Unsupported, match="symbolic link"):
        read(store, "mail/ln")
    with pytest.raises(Gone):
        read(store, "mail/../../../queue/pending/x")
    assert os.geteuid() or "belongs to user 12345" in seen["mail/body.html"].refusal


def test_a_payload_elsewhere_is_not_read(spool: SpoolFolders) -> None:
    """Of a payload outside of the mail spool nothing is shown but the reason."""
    for payload, why in (
        ("/etc/passwd", "is not a plain path below"),
        (f"{spool.mail_spool}/mail-9/meta.sh", "is not there"),
    ):
        a_task(spool, payload)
        store = opened(spool)
        part = parts(store)["payload"]
        assert (why in part.refusal, part.size, part.facts) == (True, None, ())
        with pytest.raises((Gone, Unsupported)):
            read(store, "payload")


def test_the_first_bytes_of_a_broken_file_can_be_seen(spool: SpoolFolders) -> None:
    """They are those of the file, in any folder; what has gone, or was never here, has none."""
    data, aside = b"\0\x1b[2J" + b"x" * 10_000, Path(spool.staging_dir, "corrupt")
    Path(spool.dlq, "broken.task").write_bytes(data)
    aside.mkdir(parents=True)
    (aside / "x.pending.00000000").write_bytes(b"aside")
    store = opened(spool)
    problems = {item for item in store.scan() if isinstance(item, Problem)}
    glimpses = {problem.where: store.preview_problem(problem) for problem in problems}
    assert glimpses["dlq/broken.task"] == data[:PREVIEW_BYTES]
    assert glimpses[".spooldeck/corrupt/x.pending.00000000"] == b"aside"
    for where in ("dlq/gone.task", "/etc/passwd", "../secret", "odd"):
        with pytest.raises((Gone, Unsupported)):
            store.preview_problem(Problem(where, ""))


def test_a_scan_finds_the_destination_of_a_request(spool: SpoolFolders, tmp_path: Path) -> None:
    """Only of kinds that are delivered, in a payload in the mail spool or in their data."""
    inside, elsewhere = Path(spool.mail_spool, "request"), tmp_path / "request"
    for path in (inside, elsewhere):
        path.write_bytes(b"peer")
    expected = {("push", inside): "to peer", ("push", elsewhere): "", ("pull", inside): ""}
    store = opened(spool, delivered={"push": lambda data: f"to {data.decode()}"})
    for number, (kind, path) in enumerate(expected):
        a_task(spool, path, Task(f"{number}", kind, State.PENDING, 1.0))
    store.swap(None, store.write_data(Task("3", "push", State.PENDING, 1.0), [b"data"]))
    for touched in (None, [f"{number}" for number in range(4)], ["pending"]):
        found = {t.id: t.destination for t in store.scan(touched) if isinstance(t, Task)}
        assert found == {f"{n}": to for n, to in enumerate([*expected.values(), "to data"])}
