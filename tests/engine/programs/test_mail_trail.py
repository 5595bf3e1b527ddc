"""The trail of a mail through rotated logs: requeue, bounce, reused ids, instances, bad lines."""

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
from tests.tables import each

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

WHOLE = [(FIRST, kind) for kind in ("arrived", "message-id", "queued", "deferred", "requeued")]
WHOLE += [(SECOND, kind) for kind in ("requeued", "message-id", "failed")]
WHOLE += [(BOUNCE, "message-id"), (SECOND, "bounced"), (BOUNCE, "queued"), (SECOND, "removed")]
WHOLE += [(BOUNCE, "delivered"), (BOUNCE, "removed")]
AGAIN = [(BOUNCE, kind) for kind in ("arrived", "delivered", "delivered")]
"""What the newest file has of the later message with that id."""


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
    """From any word of it, without the former or later messages with the same id."""
    trail = find_trail(log, word)
    assert steps(trail) == WHOLE
    assert {one.chain for one in trail.events} == {0}
    assert trail.events[0].event.account == "ann"
    assert trail.events[0].event.when == 1795600801.0
    assert (trail.files, trail.since, trail.is_cut) == (3, 1795600800.0, False)
    assert not trail.problems


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


REFUSED = "NOQUEUE: reject: RCPT from c[192.0.2.1]: 554 no; from=<q@x.test> to=<b@y.test>"
LATE = "Nov 27 12:00:00"
GARBAGE = b"\xff\xfe\x00 bob@y.test\x1b[2J\n\xe2\x80\xae bob@y.test\n" + b"x" * (3 << 20)
CUT = line(LATE, "smtp", f"{SECOND}: to=<bob@y.test>, rel")[:-1]


@pytest.mark.parametrize(
    ("before", "after", "word", "expected"),
    [
        # NUL bytes, a line longer than a chunk, and a cut last line that names the id
        (GARBAGE + b" bob@y.test\n", CUT, "bob@y.test", [*WHOLE, (SECOND, "noted")]),
        (b"", line(LATE, "smtpd", REFUSED) * 2, "q@x.test", [("", "refused")] * 2),
        # its bytes cannot be searched in any case, so each line is compared
        (b"", line(LATE, "smtp", f"{BOUNCE}: to=<äöü@x>, {ATTEMPT}=sent (ok)"), "äöü", AGAIN),
        (b"", "", "日本語", []),
    ],
    ids=["bad lines", "refused", "no ASCII letters", "no match"],
)
def test_lines_of_each_kind_have_their_trail(
    path: Path, log: MailLog, before: bytes, after: str, word: str, expected: list[tuple[str, str]]
) -> None:
    """Garbage breaks nothing, and each refusal that names the word is a chain of its own."""
    path.write_bytes(before + NEWEST.encode() + after.encode())
    assert steps(find_trail(log, word)) == expected


def test_an_unreadable_file_and_a_gap_are_said(path: Path, log: MailLog) -> None:
    """What is left is searched."""
    (path.parent / "mail.log.2.gz").write_bytes(b"\x1f\x8bgarbage")
    (path.parent / "mail.log.4").mkdir()
    trail = find_trail(log, "bob@y.test")
    assert steps(trail) == WHOLE[5:] or steps(trail) == WHOLE[4:]
    assert any("mail.log.2.gz" in problem for problem in trail.problems)
    assert any("mail.log.3: missing" in problem for problem in trail.problems)


def test_the_arrival_far_before_is_found(log: MailLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not shortly before, the log is searched again from its begin; of too many messages
    the first ones are followed."""
    monkeypatch.setattr(mail_trail, "_BACK_BYTES", 64)
    monkeypatch.setattr(mail_trail, "_CHUNK_BYTES", 160)
    assert steps(find_trail(log, "bob@y.test")) == WHOLE
    assert steps(find_trail(log, BOUNCE))[: len(WHOLE)] == WHOLE
    monkeypatch.setattr(mail_trail, "MAX_MESSAGES", 1)
    trail = find_trail(log, "x.test")
    assert (trail.is_cut, {one.event.id for one in trail.events}) == (True, {FIRST})


def test_a_bounce_of_the_other_server_is_followed() -> None:
    """`R=` of an arrival names the message that it is the bounce of."""
    trail = find_trail(exim.mail_log(f"{GOLDEN.parent}/exim/mainlog"), "1xX5UH-0003M4-02")
    assert [one.event.id[-5:] for one in trail.events] == ["Lg-2i"] * 4 + ["M4-02"] * 3


BOB, OTHERS = (
    ("to=<bob@x.test>", "sasl_username=BOB@x.test,", "said: bob@x.test."),
    ("<jim.bob@x.test>", "<a+bob@x.test>", "<bob@x.test.org>", "<bob@x.test-2>"),
)


@each(
    ("word", "text", "expected"),
    [
        *(("bob@x.test", text, True) for text in BOB),
        *(("bob@x.test", text, False) for text in OTHERS),
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
