"""With the task of a spooled mail goes the mail's folder: all of it, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import files, verbs
from engine.model import Move, State, Task
from engine.stores.nftban import NftbanStore, Spool, form

Opener = Callable[..., NftbanStore]

NOW = 1_795_170_000.0
IDENT = "20261120T094115Z-mail_send-00000001"


@pytest.fixture
def mail(spool: Spool) -> Path:
    """The folder of a spooled mail, in doubt whether it was sent."""
    folder = Path(spool.mail_spool, "mail-2026-11-20T09:46:04Z-a96ebf3e")
    folder.mkdir()
    for name, text in (("meta.sh", "m"), ("body.html", "bo"), ("body.txt", "bod"), ("sent", "s")):
        (folder / name).write_text(text)
    return folder


def put(spool: Spool, store: NftbanStore, payload: object, state: State = State.ACTIVE) -> Task:
    """A task that names a payload, as any program may write it, where it stands then."""
    record = form.new_record(Task(IDENT, "mail_send", State.PENDING, NOW))
    path = Path(spool.pending, f"{IDENT}.task")
    path.write_bytes(form.render(record._replace(payload=str(payload))))
    path.chmod(0o640)
    (task,) = store.take(NOW, "me", 1)
    if state is State.ACTIVE:
        return task
    store.swap(task, verbs.bury(task, "no such user", 1))
    if state is State.TRASH:
        dead = seen(store)
        store.swap(dead, replace(dead, state=State.TRASH))
    return seen(store)


def seen(store: NftbanStore) -> Task:
    """The task, as it stands now."""
    (task,) = store.look({IDENT})
    assert isinstance(task, Task)
    return task


@pytest.mark.parametrize("state", [State.ACTIVE, State.DEAD, State.TRASH])
@pytest.mark.parametrize("many", [False, True])
def test_the_folder_goes_with_the_task(
    spool: Spool, open_spool: Opener, mail: Path, state: State, many: bool
) -> None:
    """Done, or deleted for good, alone or among many: the body and all marks are gone as well."""
    store = open_spool()
    task = put(spool, store, mail / "meta.sh", state)
    if state is not State.ACTIVE:
        assert sorted(path.name for path in mail.iterdir())[-1] == "sent", "until then it stays"

    if many:
        (outcome,) = store.swap_all([Move(task, None)])
        assert outcome.error is None
    else:
        store.swap(task, None)

    assert list(Path(spool.mail_spool).iterdir()) == []


def test_what_tells_that_it_was_sent_goes_last(
    spool: Spool, open_spool: Opener, mail: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash on the way leaves a folder that is known to be litter."""
    gone: list[str] = []
    unlink = files.unlink

    def told(name: str, *, dir_fd: int) -> None:
        gone.append(name)
        unlink(name, dir_fd=dir_fd)

    store = open_spool()
    task = put(spool, store, mail / "meta.sh")
    monkeypatch.setattr(files, "unlink", told)

    store.swap(task, None)

    assert gone == [f"{IDENT}.task", "body.html", "body.txt", "meta.sh", "sent"]


def test_what_is_no_plain_file_stays(
    spool: Spool, open_spool: Opener, mail: Path, tmp_path: Path
) -> None:
    """Links, folders and FIFOs in it are left, and what they lead to; the folder with them."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (mail / "link").symlink_to(precious)
    (mail / "link.sh").symlink_to(precious / "file")
    (mail / "folder").mkdir()
    (mail / "folder" / "file").write_text("x")
    os.mkfifo(mail / "fifo")
    store = open_spool()
    task = put(spool, store, mail / "meta.sh")

    store.swap(task, None)

    assert {path.name for path in mail.iterdir()} == {"link", "link.sh", "folder", "fifo"}
    assert (precious / "file").exists()
    assert (mail / "folder" / "file").exists()
    assert list(store.look()) == []


@pytest.mark.parametrize(
    ("payload", "goes"),
    [
        ("{spool}/mail-1/body.txt", "mail-1/body.txt"),
        ("{spool}/other/meta.sh", "other/meta.sh"),
        ("{spool}/deep/mail-1/meta.sh", "deep/mail-1/meta.sh"),
        ("{spool}/meta.sh", "meta.sh"),
        ("{spool}/mail-link/meta.sh", ""),
        ("{spool}/mail-1/../mail-1/meta.sh", ""),
        ("{elsewhere}/mail-1/meta.sh", ""),
    ],
)
def test_of_another_payload_the_file_alone_goes(
    spool: Spool, open_spool: Opener, tmp_path: Path, payload: str, goes: str
) -> None:
    """Only meta.sh in a folder of the mail spool itself stands for a whole mail."""
    root, elsewhere = Path(spool.mail_spool), tmp_path / "elsewhere"
    for folder in (root / "mail-1", root / "other", root / "deep" / "mail-1", elsewhere / "mail-1"):
        folder.mkdir(parents=True)
        (folder / "meta.sh").write_text("m")
        (folder / "body.txt").write_text("b")
    (root / "meta.sh").write_text("m")
    (root / "mail-link").symlink_to(elsewhere / "mail-1")
    before = {path for top in (root, elsewhere) for path in top.rglob("*")}
    store = open_spool()
    task = put(spool, store, payload.format(spool=root, elsewhere=elsewhere))

    store.swap(task, None)

    after = {path for top in (root, elsewhere) for path in top.rglob("*")}
    assert before - after == ({root / goes} if goes else set())


def test_a_body_that_is_gone_already_is_no_error(
    spool: Spool, open_spool: Opener, mail: Path
) -> None:
    """Whoever was there first, the task leaves all the same; so it does without a folder."""
    store = open_spool()
    for path in mail.iterdir():
        path.unlink()
    mail.rmdir()
    task = put(spool, store, mail / "meta.sh")

    store.swap(task, None)

    assert list(store.look()) == []


@pytest.mark.parametrize("state", [State.ACTIVE, State.DEAD, State.TRASH])
def test_a_task_weighs_what_would_go_with_it(
    spool: Spool, open_spool: Opener, mail: Path, tmp_path: Path, state: State
) -> None:
    """Its own file and the plain files of its mail; what would stay does not count."""
    (tmp_path / "big").write_bytes(b"x" * 100_000)
    (mail / "link").symlink_to(tmp_path / "big")
    (mail / "folder").mkdir()
    store = open_spool()
    task = put(spool, store, mail / "meta.sh", state)

    assert store.size(task) == len(store.read(task)) + len("mbobods")


def test_another_payload_weighs_itself(spool: Spool, open_spool: Opener, mail: Path) -> None:
    """What lies beside it is not counted, nor what is not there."""
    store = open_spool()
    task = put(spool, store, mail / "body.txt")
    assert store.size(task) == len(store.read(task)) + 3

    (mail / "body.txt").unlink()

    assert store.size(task) == len(store.read(task))
