"""What a power cut leaves of locks, journals, marks and notes, and the model of a disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from engine.formats.nftban.store import NftbanStore
from engine.locks import queue_lock
from engine.mail.message.content import Content
from engine.mail.send import spool_entry
from engine.mail.send.mail_spool import MailSpool
from engine.model import Task
from engine.operations import plans as engine_plans
from engine.operations import run_plan
from engine.operations.journal import Journal
from engine.operations.notes import Notes
from engine.system import files
from tests.crash import nftban, plans
from tests.crash.disk import (
    Answered,
    Disk,
    Recording,
    Written,
    read_in,
    recorded,
    remains,
    write_out,
)


@pytest.mark.parametrize("verb", ["retry", "purge"])
def test_a_power_cut_keeps_the_journal_of_what_moved(verb: str, tmp_path: Path) -> None:
    """On every disk that a power cut leaves, a task that has moved is in a whole intent."""
    root = tmp_path / "spool"
    end = {"retry": "pending", "purge": ".spooldeck/trash"}[verb]

    def carry_out(store: NftbanStore, tasks: list[Task]) -> Iterator[object]:
        journal = Journal(f"{root}/.spooldeck/journal")
        plan = engine_plans.freeze_plan(verb, tasks, nftban.NOW)
        plan = plan._replace(included_ids=frozenset(task.id for task in tasks))
        run = run_plan.run_journaled_plan(store, journal, plan, plans.US, lambda: nftban.NOW)
        return iter(run.done)

    cuts = nftban.record(nftban.Verb(nftban.D, nftban.Step(carry_out), tasks=2), root)
    before, after = cuts.stages
    left = list(nftban.disks(cuts.recording))

    for answered, contents in left:
        rows, done, images = _journal_of(contents)
        for ident, (folder, data) in before.items():
            there = contents.get(f"{folder}/{ident}.task")
            if there != data:
                assert ident in rows, "moved, and the intent is not durable"
                assert verb == "purge" or data in images, "moved, its content is not durable"
            if ident in done or answered:
                assert there is None, "recorded as done, and back where it was"
                moved = contents.get(f"{end}/{ident}.task")
                # A draft's name that is left is a second one, until recovery removes it.
                assert contents.get(str(moved), moved) == after[ident][1]

    assert len(left) > 15


def _journal_of(contents: Mapping[str, object]) -> tuple[set[str], set[str], bytes]:
    """Return rows and outcomes of whole lines in a journal on such a disk, and tasks' contents."""
    rows, done, images = set[str](), set[str](), b""
    for path, data in contents.items():
        if path.endswith(".before") and isinstance(data, bytes):
            images = data
        if path.endswith(".jsonl") and isinstance(data, bytes):
            for text in data.split(b"\n")[:-1]:
                line = json.loads(text) if text.startswith(b"{") else {}
                rows |= {ident for ident, *_ in line.get("rows", ())}
                done |= line["done"].keys() if line.get("line") == "ends" else set()
    return rows, done, images


def test_a_lock_that_a_power_cut_left_can_be_taken(tmp_path: Path) -> None:
    """After a power cut at any change of a lock the next process gets it."""
    now = time.time()
    (tmp_path / "run").mkdir()
    with recorded(Recording(f"{tmp_path}/run")) as recording:
        lock = queue_lock.acquire_lock(f"{tmp_path}/run/queue.lock", 1200, lambda: now)
        now += queue_lock.HEARTBEAT_SECONDS
        lock.renew()
        lock.release()
    left = list(nftban.disks(recording))
    for number, (_, contents) in enumerate(left):
        write_out(contents, f"{tmp_path}/{number}")
        queue_lock.acquire_lock(f"{tmp_path}/{number}/queue.lock", 1200, lambda: now + 10).release()
    assert len(left) > 10


def replacing(root: str) -> Callable[[], object]:
    """Return what replaces a file."""
    files.replace_file(f"{root}/mark", b"old")
    folder_fd = files.open_folder(root)

    def replace() -> None:
        files.replace_durably("mark", folder_fd, b"newer")
        os.close(folder_fd)

    return replace


def marking_sent(root: str) -> Callable[[], object]:
    """Return what marks a mail as sent for which a transport was asked."""
    spool = MailSpool(f"{root}/mailspool")
    ident = spool_entry.new_id(nftban.NOW)
    meta = spool.store_mail(ident, "ann@example.net", "a subject", Content("text", html=False))
    spooled = spool.read(meta)
    spool.mark_trying(spooled, "exim", nftban.NOW)
    return lambda: spool.mark_sent(spooled, "exim", nftban.NOW)


def adding_a_note(root: str) -> Callable[[], object]:
    """Return what adds a note after another one."""
    notes = Notes(root)
    notes.add("a-task", "the first", "ann")
    return lambda: notes.add("a-task", "the second", "ann")


@pytest.mark.parametrize("prepare", [replacing, marking_sent, adding_a_note])
def test_what_is_durable_on_return_survives_a_power_cut(
    prepare: Callable[[str], Callable[[], object]], tmp_path: Path
) -> None:
    """A power cut after the call leaves all that it wrote; one during the call may lose some."""
    root = f"{tmp_path}/root"
    files.make_folder(root)
    act = prepare(root)
    with recorded(Recording(root)) as recording:
        act()
        recording.events.append(Answered(1))
    written = recording.after().contents().items()
    left = list(nftban.disks(recording))
    assert all(written <= contents.items() for answered, contents in left if answered)
    assert not all(written <= contents.items() for _, contents in left)


def test_a_removed_mail_loses_its_mark_last(tmp_path: Path) -> None:
    """No power cut leaves a sent mail without its mark, or it would be sent again."""
    (tmp_path / "mail").mkdir()
    for name in ("sent", "meta.sh", "body.txt"):
        (tmp_path / "mail" / name).touch()
    folder_fd = files.open_folder(str(tmp_path))
    with recorded(Recording(str(tmp_path))) as recording:
        files.remove_folder("mail", folder_fd, ("meta.sh", "sent"))
    os.close(folder_fd)
    left = [contents for _, contents in nftban.disks(recording)]
    assert all("mail/sent" in each or "mail/meta.sh" not in each for each in left)
    assert any("mail/sent" not in each for each in left)


def test_a_disk_is_written_out_as_it_was_read_in(tmp_path: Path) -> None:
    """Data that no fsync followed may be whole, lost, half there or zeros."""
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "below" / "empty").mkdir(parents=True)
    (first / "a").write_bytes(b"one")
    (first / "below" / "b").hardlink_to(first / "a")
    disk = read_in(str(first))
    write_out(disk.contents(), str(second))
    assert read_in(str(second)).contents() == disk.contents()
    assert (second / "below" / "b").samefile(second / "a")

    before = Disk(1, {(1, "a"): 2}, {2: b"old"}, frozenset({1}))
    left = [disk.data[2] for disk in remains(before, [Written(2, b"newest")], frozenset({1}))]
    assert sorted(left) == sorted([b"old", b"newest", b"new", bytes(6)])
