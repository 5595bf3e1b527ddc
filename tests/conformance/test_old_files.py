"""Files of `tests/golden/old`, of versions before this one, are read and written byte by byte."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from engine.formats.bullmq.image import JobImage
from engine.formats.bullmq.image import parse_image as parse_job
from engine.formats.kannader import sidecar
from engine.formats.zmailer import submit
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.locks.token_buckets import BucketState
from engine.mail.send.suspensions import Suspension, Suspensions
from engine.model import State
from engine.monitor import sample_codec
from engine.monitor.sample_codec import RecordedSample, decode_sample, encode_sample, make_sample
from engine.monitor.transport_health import DeliveryCounts
from engine.operations.journal import Intent, Journal, Who
from engine.operations.notes import Note, Notes
from engine.operations.plans import RowResult
from engine.replay.settings import RemainderPolicy, ReplayPace, StopRules, parse_pace
from tests.recorder_samples import NOTHING_KNOWN, NOW, a_sample, a_way
from tests.tables import each

OLD = Path(__file__).parents[1] / "golden" / "old"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A copy of the folder of a journal: a replay that was interrupted, an edit, notes."""
    shutil.copytree(OLD / "journal", tmp_path / "journal")
    return Journal(f"{tmp_path}/journal", str(tmp_path))


def test_the_operations_of_an_old_journal(journal: Journal) -> None:
    """Who, why, filter, pace, values, rows, outcomes, notes and images are read."""
    edit, retry = journal.operations()
    who = Who("root", "ana", "192.0.2.7 50122 192.0.2.1 22", "mx1", 4243)
    assert retry.intent._replace(pace={}) == Intent(
        "retry",
        who,
        "mx7 is back",
        filter="kind=mail_send timeout",
        scope="all 4 that matched",
        follows="20261120T081502Z-0b5e77ed",
    )
    stops = StopRules(None, 0.25, 12, 500, RemainderPolicy.HOLD)
    assert parse_pace(retry.intent.pace) == ReplayPace(3.0, (1, 5), 60.0, stops, attended=False)
    assert (retry.started, retry.planned, retry.ended) == (NOW - 900, 4, None)
    assert retry.counts[RowResult.DONE] == 2
    assert [note["delivered"] for note in retry.notes] == [["t0"]]
    assert dict(journal.images(retry.op)) == {"t0": b"id=t0\nkind=mail_send\n", "t1": b"\xff\x00\n"}
    entries = [
        (entry.row.id, entry.outcome and entry.outcome[1:4]) for entry in journal.entries(retry.op)
    ]
    assert entries == [
        ("t3", (RowResult.DONE, "", "r9")),
        ("t2", (RowResult.FAILED, "disk full: ...@example.net", "")),
        ("t1", (RowResult.DONE, "", "r8")),
        ("t0", None),
    ]
    values = {"due": 5.0, "to": "...@example.net"}
    undone = "20261120T080931Z-51c0ffee"
    assert edit.intent == Intent("edit", Who("ben"), undoes=undone, values=values)
    assert edit.ended == NOW - 600


def test_the_notes_of_an_old_journal(journal: Journal) -> None:
    """With the creation time of their task or without; a line is written as it was."""
    notes = Notes(journal.folder, clock=lambda: NOW)
    text = "mx7 refuses all mail of ...@example.net"
    assert notes.read_all() == {
        "t1": (Note(NOW, "ana", text, NOW - 86400),),
        "t2": (Note(NOW, "ben", "ask carol"),),
    }
    file = Path(journal.folder, "notes.jsonl")
    before = file.read_bytes().splitlines(keepends=True)
    notes.add("t1", text, "ana", NOW - 86400)
    notes.add("t2", "ask carol", "ben")
    assert file.read_bytes().splitlines(keepends=True)[4:] == before[:2]
    notes.remove_notes({"t1"})
    assert file.read_bytes() == before[1] * 2


def test_old_suspensions(tmp_path: Path) -> None:
    """They are read, and a file with them is written as it was."""
    old = OLD / "suspended.json"
    assert Suspensions(str(shutil.copy(old, tmp_path))).read() == {
        "postfix": Suspension("postfix", NOW, "ana", "greylisted since 08:00"),
        "sendmail": Suspension("sendmail", NOW + 1, "root", ""),
    }
    again = Suspensions(f"{tmp_path}/again.json")
    again.suspend("postfix", NOW, "ana", "greylisted since 08:00")
    again.suspend("sendmail", NOW + 1, "root", "")
    assert (tmp_path / "again.json").read_bytes() == old.read_bytes()


def inflated(data: bytes) -> Any:
    """The JSON value of an encoded sample."""
    return json.loads(zlib.decompressobj(wbits=-15, zdict=sample_codec._USUAL).decompress(data))


LATER = a_sample(
    transports=(a_way("sendmail")._replace(totals=DeliveryCounts(17, 10, 7, 6)),),
    finer={"retry": (State.PENDING, 4), "chunk": (State.ACTIVE, 0)},
    lease_workers=2,
    gone_failures=3,
    kinds=None,
)
OLDER = a_sample(kinds=None)
UNREAD = make_sample(
    NOTHING_KNOWN._replace(name="x", unavailable="No such file"),
    RecordedSample(NOW, "a console", tokens="no limits file"),
)


@each(("at", "sample"), enumerate((LATER, OLDER, UNREAD, OLDER)))
def test_old_samples_of_the_recorder(at: int, sample: RecordedSample) -> None:
    """All that older versions wrote is read; what is still written is written as it was."""
    data = bytes.fromhex((OLD / "samples.hex").read_text().split()[at])
    again = decode_sample(data, "mail.out")
    assert again._replace(transports=()) == sample._replace(transports=())
    for transport, before in zip(again.transports, sample.transports, strict=True):
        assert transport[:2] == before[:2]
        assert [w.tally for w in transport.windows] == [w.tally for w in before.windows]
    if at < 3:
        assert inflated(encode_sample(sample)) == inflated(data)
    else:
        assert again.tokens == (BucketState("mail_send", 3, 5, NOW + 21, 60),)


def test_old_notes_images_and_staged_lines() -> None:
    """They are read, and written as they were."""
    note_data, job_data, lines_data = (
        (OLD / name).read_bytes() for name in ("kannader.note", "bullmq.image", "zmailer.lines")
    )
    note = sidecar.AttemptNote(
        3, "no\u2028way", "job", description="a note", start="inflight", since=1795167728123456789
    )
    assert (sidecar.parse_note(note_data), sidecar.render_note(note)) == (note, note_data)
    fields = {"data": '{"to":"bob"}', "name": "grüße", "raw": "\udcff"}
    long_fields = {"long": "62951f943c41cdd326e5ce2b53a779e7916a820d"}
    image = JobImage("mail 7", "failed", "1795167728000", fields, long_fields)
    assert (parse_job(job_data), image.encode()) == (image, job_data)
    changes = (LineChange(120, b"r   ", b"+   "), LineChange(180, b"\xff", b"\0"))
    commit = Commit("A/7-1", changes, 900, b"t\n")
    assert submit._parse_commit(lines_data) == commit
    assert submit._format_commit(commit) == lines_data
