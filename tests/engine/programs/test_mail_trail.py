"""The trail of a mail through rotated logs: requeue, bounce, reused ids, instances, bad lines."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pytest

from engine.formats.exim import log_lines as exim
from engine.formats.postfix import log_lines as postfix
from engine.programs import mail_trail
from engine.programs.mail_log import MailLog
from engine.programs.mail_trail import Trail, find_trail, word_pattern
from tests.engine.task_builders import GOLDEN

FIRST, SECOND, BOUNCE = "4D9752DA018", "5AABF2DA027", "65F752DA02F"
WRITTEN = 1795822072
"""When the newest file was last written: 2026-11-27 23:27:52 UTC."""


def line(stamp: str, program: str, text: str, name: str = "postfix") -> str:
    """A line of traditional syslog."""
    return f"{stamp} mx1 {name}/{program}[1]: {text}\n"


ACTIVE = "size=1, nrcpt=1 (queue active)"
ATTEMPT = "relay=none, delay=1, delays=1/0/0/0, dsn=4.4.1, status"

OLDEST = (
    line("Nov 25 10:00:00", "smtpd", f"{FIRST}: client=other[192.0.2.7]")
    + line("Nov 25 10:00:00", "qmgr", f"{FIRST}: from=<eve@x.test>, {ACTIVE}")
    + line("Nov 25 10:00:00", "smtp", f"{FIRST}: to=<zoe@x.test>, {ATTEMPT}=sent (ok)")
    + line("Nov 25 10:00:00", "qmgr", f"{FIRST}: removed")
    + line("Nov 25 10:00:01", "smtpd", f"{FIRST}: client=c[192.0.2.1], sasl_username=ann")
    + line("Nov 25 10:00:01", "cleanup", f"{FIRST}: message-id=<1@x.test>")
    + line("Nov 25 10:00:01", "qmgr", f"{FIRST}: from=<ann@x.test>, {ACTIVE}")
    + line("Nov 25 10:00:02", "smtp", f"{FIRST}: to=<Bob@y.test>, {ATTEMPT}=deferred (refused)")
)
MIDDLE = (
    line("Nov 26 10:00:00", "postsuper", f"{FIRST}: requeued")
    + line("Nov 26 10:00:09", "pickup", f"{SECOND}: uid=100 from=<ann@x.test> orig_id={FIRST}")
    + line("Nov 26 10:00:09", "cleanup", f"{SECOND}: message-id=<1@x.test>")
    + line("Nov 26 10:00:09", "smtp", f"{SECOND}: to=<bob@y.test>, {ATTEMPT}=bounced (no user)")
)
NEWEST = (
    line("Nov 27 10:00:00", "cleanup", f"{BOUNCE}: message-id=<2@mx1>")
    + line("Nov 27 10:00:00", "bounce", f"{SECOND}: sender non-delivery notification: {BOUNCE}")
    + line("Nov 27 10:00:00", "qmgr", f"{BOUNCE}: from=<>, size=9, nrcpt=1 (queue active)")
    + line("Nov 27 10:00:00", "qmgr", f"{SECOND}: removed")
    + line("Nov 27 10:00:01", "smtp", f"{BOUNCE}: to=<ann@x.test>, {ATTEMPT}=sent (ok)")
    + line("Nov 27 10:00:01", "qmgr", f"{BOUNCE}: removed")
    + line("Nov 27 11:00:00", "smtpd", f"{BOUNCE}: client=later[192.0.2.8]")
    + line("Nov 27 11:00:00", "smtp", f"{BOUNCE}: to=<zoe@x.test>, {ATTEMPT}=sent (ok)")
)

WHOLE = [
    *((FIRST, kind) for kind in ("arrived", "message-id", "queued", "deferred", "requeued")),
    *((SECOND, kind) for kind in ("requeued", "message-id", "failed")),
    *((BOUNCE, "message-id"), (SECOND, "bounced"), (BOUNCE, "queued"), (SECOND, "removed")),
    *((BOUNCE, "delivered"), (BOUNCE, "removed")),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The newest of three files; the oldest one is compressed."""
    path = tmp_path / "mail.log"
    path.write_text(NEWEST)
    (tmp_path / "mail.log.1").write_text(MIDDLE)
    (tmp_path / "mail.log.2.gz").write_bytes(gzip.compress(OLDEST.encode()))
    for days, name in enumerate(("mail.log", "mail.log.1", "mail.log.2.gz")):
        os.utime(tmp_path / name, (WRITTEN - days * 86400,) * 2)
    return path


@pytest.fixture
def log(path: Path) -> MailLog:
    """The log of the instance `postfix`."""
    return postfix.mail_log(str(path))


def steps(trail: Trail) -> list[tuple[str, str]]:
    """Id and kind of each line."""
    return [(one.event.id, one.event.what.value) for one in trail.events]


@pytest.mark.parametrize(
    "word", ["bob@y.test", "BOB@Y.TEST", "ann@x.test", "1@x.test", SECOND, "c[192.0.2.1]"]
)
def test_a_mail_is_followed_over_three_files(log: MailLog, word: str) -> None:
    """From any word of it: the id of a former or a later message with the same id is not taken for
    it, the compressed file is read, and times without a year are of the year of their file."""
    trail = find_trail(log, word)
    assert steps(trail) == WHOLE
    assert {one.chain for one in trail.events} == {0}
    assert trail.events[0].event.account == "ann"
    assert trail.events[0].event.when == 1795600801.0
    assert (trail.files, trail.since, trail.is_cut) == (3, 1795600800.0, False)
    assert not trail.problems


def test_a_word_without_ascii_letters_is_searched_for_in_all_lines(
    path: Path, log: MailLog
) -> None:
    """Its bytes cannot be searched in any case, so each line is compared."""
    text = f"77F752DA03A: to=<äöü@x.test>, {ATTEMPT}=sent (ok)"
    path.write_text(NEWEST + line("Nov 27 12:00:00", "smtp", text))
    assert len(find_trail(log, "äöü").events) == 1
    assert find_trail(log, "日本語").events == []


@pytest.mark.parametrize("word", [FIRST, BOUNCE, "zoe@x.test"])
def test_a_reused_id_is_several_messages(log: MailLog, word: str) -> None:
    """Each message that had the id is a chain of its own."""
    trail = find_trail(log, word)
    assert {one.chain for one in trail.events} == {0, 1}
    chains = ([e for e in trail.events if e.chain == n] for n in (0, 1))
    kinds = [steps(trail._replace(events=events)) for events in chains]
    assert (WHOLE in kinds) == (word != "zoe@x.test")


def test_since_leaves_out_earlier_lines_and_files(log: MailLog) -> None:
    """Files that end before are not opened, and the trail says how far back it goes."""
    trail = find_trail(log, "bob@y.test", since=1795687205.0)
    assert steps(trail) == WHOLE[5:]
    assert trail.since == 1795687209.0
    assert find_trail(log, "bob@y.test", since=WRITTEN + 99).events == []


def test_two_instances_in_one_log_have_two_trails(path: Path) -> None:
    """The lines of the other instance with the same id are not of the message."""
    text = f"{BOUNCE}: to=<a@x>, {ATTEMPT}=sent (ok)"
    path.write_text(line("Nov 27 10:00:00", "smtp", text, "postfix-out") + NEWEST)
    first, second = (
        find_trail(postfix.mail_log(str(path), name), BOUNCE) for name in ("postfix", "postfix-out")
    )
    assert "a@x" not in {one.event.address for one in first.events}
    assert [one.event.address for one in second.events] == ["a@x"]


def test_bad_lines_break_nothing(path: Path, log: MailLog) -> None:
    """Garbage, NUL bytes, a line longer than a chunk, and a cut last line that names the id."""
    long = b"\n" + b"x" * (3 << 20) + b" bob@y.test\n"
    bad = b"\xff\xfe\x00 bob@y.test\x1b[2J\n" + "\u202e bob@y.test".encode() + long
    cut = line("Nov 27 12:00:00", "smtp", f"{SECOND}: to=<bob@y.test>, rel")[:-1].encode()
    path.write_bytes(bad + NEWEST.encode() + cut)
    assert steps(find_trail(log, "bob@y.test")) == [*WHOLE, (SECOND, "noted")]


def test_an_unreadable_file_and_a_gap_are_said(path: Path, log: MailLog) -> None:
    """What is left is searched."""
    (path.parent / "mail.log.2.gz").write_bytes(b"\x1f\x8bgarbage")
    (path.parent / "mail.log.4").mkdir()
    trail = find_trail(log, "bob@y.test")
    assert steps(trail) == WHOLE[5:] or steps(trail) == WHOLE[4:]
    assert any("mail.log.2.gz" in problem for problem in trail.problems)
    assert any("mail.log.3: missing" in problem for problem in trail.problems)


def test_the_arrival_far_before_the_first_match_is_found(
    log: MailLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is not shortly before, the log is searched again from its begin."""
    monkeypatch.setattr(mail_trail, "_BACK_BYTES", 64)
    monkeypatch.setattr(mail_trail, "_CHUNK_BYTES", 160)
    assert steps(find_trail(log, "bob@y.test")) == WHOLE
    assert steps(find_trail(log, BOUNCE))[: len(WHOLE)] == WHOLE


def test_more_messages_than_are_followed_are_said(
    log: MailLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones are followed."""
    monkeypatch.setattr(mail_trail, "MAX_MESSAGES", 1)
    trail = find_trail(log, "x.test")
    assert (trail.is_cut, {one.event.id for one in trail.events}) == (True, {FIRST})


def test_refused_mail_has_a_trail_without_an_id(path: Path, log: MailLog) -> None:
    """Each refusal that names the word is a chain of its own."""
    text = "NOQUEUE: reject: RCPT from c[192.0.2.1]: 554 no; from=<q@x.test> to=<b@y.test>"
    path.write_text(line("Nov 27 09:00:00", "smtpd", text) * 2)
    assert steps(find_trail(log, "q@x.test")) == [("", "refused")] * 2


def test_a_bounce_of_the_other_server_is_followed() -> None:
    """`R=` of an arrival names the message that it is the bounce of."""
    trail = find_trail(exim.mail_log(f"{GOLDEN.parent}/exim/mainlog"), "1xX5UH-0003M4-02")
    assert [one.event.id[-5:] for one in trail.events] == ["Lg-2i"] * 4 + ["M4-02"] * 3


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("bob@x.test", "to=<bob@x.test>", True),
        ("bob@x.test", "sasl_username=BOB@x.test,", True),
        ("bob@x.test", "said: bob@x.test.", True),
        ("bob@x.test", "<jim.bob@x.test>", False),
        ("bob@x.test", "<a+bob@x.test>", False),
        ("bob@x.test", "<bob@x.test.org>", False),
        ("bob@x.test", "<bob@x.test-2>", False),
        ("@x.test", "<bob@x.test>", True),
        ("josé@x", "<JOSÉ@x>", True),
    ],
)
def test_a_word_is_no_part_of_a_longer_address(word: str, text: str, expected: bool) -> None:
    """Letters, digits and the characters that join names count as a part."""
    assert (word_pattern(word).search(text) is not None) is expected


def test_a_log_of_several_years_has_the_year_of_each_line(tmp_path: Path) -> None:
    """Where times have no year, lines behind a line show that it is of an earlier one."""
    path = tmp_path / "mail.log"
    months = ("Feb", "Jun", "Oct")
    texts = [line(f"{month} 10 10:00:00", "qmgr", f"{FIRST}: x") for month in months * 3]
    path.write_text("".join(texts))
    os.utime(path, (WRITTEN, WRITTEN))
    trail = find_trail(postfix.mail_log(str(path)), FIRST)
    years = [time.gmtime(one.event.when or 0.0).tm_year for one in trail.events]
    assert years == [2024] * 3 + [2025] * 3 + [2026] * 3
    assert trail.since == 1707559200.0
