"""What Exim's programs print, compared with recorded samples field by field."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.formats.exim import lines
from engine.formats.exim.lines import DamagedMail, QueuedMail, RetryRecord, SpoolLock
from engine.model import State, Task
from tests.tables import each

SAMPLES = Path(__file__).parent / "samples"
ID, LONG_ID = "1xX5UH-0003Mq-0b", "1xX5vI-000000008F7-2KwE"
CUT_HEADER = b"1xX5ow-0004MW-0W-H\nweb 1000 1000\n<a@b>\n1 0\n"


def transcript(name: str) -> Iterator[tuple[str, list[bytes]]]:
    """Each call of a transcript: its words, and the lines of its standard output."""
    for block in (SAMPLES / name).read_bytes().split(b"\n$ "):
        first, *rest = block.removeprefix(b"$ ").split(b"\n")
        if first.startswith(b"exim4"):
            yield first.decode(), [one[2:] for one in rest if one[:2] == b"1 "]


def listed(data: bytes) -> list[QueuedMail | DamagedMail | bytes]:
    """The items of a listing."""
    return [*lines.parse_listing(data.split(b"\n")[:-1])]


def test_a_listing_has_all_fields() -> None:
    """Each message of a listing has its id, size, sender, flag and open addresses."""
    mails = listed((SAMPLES / "bpru.txt").read_bytes())
    assert len(mails) == 20
    ana, news = b"ana@mx2.example.test", b"newsletter@shop.example.test"
    odd = rb'"we\"ird\\"@refused.example.test'
    five = tuple(b"u%d@blocked.example.test" % number for number in range(5))
    assert [mails[0], mails[1], mails[4]] == [
        QueuedMail("1xX5UH-0003NW-1h", b"1.8K", b"", is_frozen=True, recipients=(ana,)),
        QueuedMail("1xX5UI-0003P1-0V", b"345", ana, recipients=(odd,)),
        QueuedMail("1xX5UF-0003IK-0Y", b"323", news, recipients=five),
    ]
    frozen = [one for one in mails if isinstance(one, QueuedMail) and one.is_frozen]
    assert [one.sender for one in frozen] == [b""] * 4


@each(
    ("line", "mail"),
    [
        (" 0m   358 ID <b@mx2.test> (web) *** frozen ***", ("358", "b@mx2.test", "web", True)),
        ("37d       ID <a@b.test>", ("", "a@b.test", "", False)),
        ("100d  1.2M 1xX5vI-000000008F7-2KwE <>", ("1.2M", "", "", False)),
        (
            ' 2h   1.9K ID <"> (web) *** frozen ***"@b.test> (ann)',
            ("1.9K", '"> (web) *** frozen ***"@b.test', "ann", False),
        ),
        (" 2h   19 ID <jürgen@b\u202e.test>", ("19", "jürgen@b\u202e.test", "", False)),
    ],
)
def test_a_first_line_is_read(line: str, mail: tuple[str, str, str, bool]) -> None:
    """Login, flag, missing size, ids of both lengths and quotes in a sender are read."""
    line = line.replace("ID", ID)
    (made,) = listed(f"{line}\n          x@y.test\n\n".encode())
    assert isinstance(made, QueuedMail)
    fields = (made.size.decode(), made.sender.decode(), made.login.decode(), made.is_frozen)
    assert (fields, made.recipients) == (mail, (b"x@y.test",))
    assert f" {made.id} <" in line


def test_damaged_messages_are_told_from_missing_ones() -> None:
    """A message that is not there has no reason; one that cannot be read has Exim's words. Neither
    a cut line nor garbage hides the messages around it."""
    data = (
        b"      1xX5px-00054H-37\n    *** spool read error: No such file or directory ***\n\n"
        b"      1xX5px-00054I-37\n    *** spool format error: size=60 ***\n\n"
    )
    assert listed(data) == [
        DamagedMail("1xX5px-00054H-37", ""),
        DamagedMail("1xX5px-00054I-37", "spool format error: size=60"),
    ]
    good = b" 0m   358 1xX5rT-0006fH-2B <a@b.test>\n"
    data = b" 0m 12 1xX5rT-000\n%b          c@d.test\n\n\xff\xfe junk\n%b" % (good, good)
    assert [type(one) for one in listed(data)] == [bytes, QueuedMail, bytes, QueuedMail]


def test_a_very_long_first_line_is_yielded_as_it_is() -> None:
    """A first line with a sender of 60 KB is no message; one of 8 KB is."""
    start, end = b" 1m  1.0K 1xX5UE-0003Hr-2I <", b">\n          bob@a.test\n\n"
    sender = b"> (" * 2721
    (mail,) = listed(start + sender + end)
    assert isinstance(mail, QueuedMail) and mail.sender == sender
    line, *_ = listed(start + sender * 8 + end)
    assert line == start + sender * 8 + b">"


ACTS, RACES, NAMED = "acts.txt", "races.txt", "named-queue.txt"
NO_MAIL, NONE = "1xX5ZZ-000000-00", "does not exist"
ONE, TWO, THREE = "1xX5UE-0003IA-34", "1xX5UE-0003Hr-2I", "1xX5px-00054H-37 1xX5py-00054I-1C"


@each(
    ("name", "act", "ids", "answers"),
    [
        (ACTS, "-Mf", f"{ONE} {NO_MAIL} {TWO}", ["is now frozen", NONE, "is already frozen"]),
        (ACTS, "-Mt", f"{ONE} {NO_MAIL}", ["is no longer frozen", NONE]),
        (ACTS, "-Mrm", NO_MAIL, [NONE]),
        (ACTS, "-Mg", "1xX5UF-0003IK-0Y", []),
        (RACES, "-Mf", "1xX5nP-0002Ql-24", ["is locked"]),
        (NAMED, "-MG sd-trash", f"{THREE} {NO_MAIL} 1xX5UH-0003NW-1h", ["", "", NONE, ""]),
        (NAMED, "-MG sd-trash", "1xX5uZ-0006IO-0H", ["is locked"]),
        (NAMED, "-qGsd-trash -Mrm", "1xX5py-00054I-1C", ["has been removed"]),
    ],
)
def test_answers_of_acts(name: str, act: str, ids: str, answers: list[str]) -> None:
    """Each message has its own answer; `-MG` prints several on one line, and no word for done."""
    out, *_ = (out for call, out in transcript(name) if call == f"exim4 {act} {ids}")
    assert lines.parse_answers(out) == dict(zip(ids.split(), answers, strict=bool(answers)))


def test_the_header_file_of_a_message_by_smtp() -> None:
    """The header file has the envelope; deliveries are a tree, whose addresses are found."""
    first, _, changed = (
        lines.parse_header_file(b"\n".join(out))
        for call, out in transcript(ACTS)
        if call.startswith("exim4 -Mvh") and out and out[0].endswith(b"-H")
    )
    assert first is not None and changed is not None
    assert (first.login, first.sender) == ("Debian-exim", "newsletter@shop.example.test")
    assert first.arrived == 1795822574
    expected = {"host_address": "[127.0.0.1]:34938", "helo_name": "client.example.test"}
    assert first.options.items() >= {**expected, "manual_thaw": ""}.items()
    assert (first.delivered, first.recipients) == ((), ("ann@refused.example.test",))
    assert first.headers.startswith("Received: from [127.0.0.1]")
    assert "\nSubject: report\nFrom: newsletter@shop.example.test\nTo: x\n" in first.headers
    assert changed.sender == "billing2@shop.example.test"
    assert {*changed.delivered} == {f"u{number}@full.example.test" for number in (0, 1, 3)}
    assert changed.recipients[-1] == "new@ok.example.test"


def test_accounts_of_header_files() -> None:
    """The account is the SMTP login, also with two dashes, or the local user."""
    files = [lines.parse_header_file(b"\n".join(out)) for _, out in transcript("header-files.txt")]
    assert [one and one.account for one in files] == ["web", "ann@shop.example.test"]


def test_settings() -> None:
    """Values, switches and the bare path of the configuration are read."""
    printed = (
        b"/etc/exim4/exim4.conf\nspool_directory = /var/spool/exim4\ntimeout_frozen_after = 1w2d\n"
        b"no_queue_only\nmessage_logs\nqueue_only_load =\n"
    )
    assert lines.parse_settings(printed.split(b"\n")) == {
        "configure_file": "/etc/exim4/exim4.conf",
        "spool_directory": "/var/spool/exim4",
        "timeout_frozen_after": "1w2d",
        "queue_only": "false",
        "message_logs": "true",
        "queue_only_load": "",
    }


@each(
    ("parse", "values"),
    [
        (lines.parse_time, {"1w2d": 777600.0, "0s": 0.0, "1h30m": 5400.0}),
        (lines.parse_time, {"": None, "3": None, "x1d": None}),
        (lines.parse_size, {"349": 349, "1.9K": 1946, "12M": 12 << 20, "": None, ".": None}),
        (lines.arrival_time, {"1xX5UE-0003Hr-2I": 1795822574, LONG_ID: 1795824252}),
        (lines.parse_header_file, {b"": None, b"x": None, CUT_HEADER: None}),
    ],
)
def test_values_are_read(parse: Callable[[Any], object], values: dict[Any, object]) -> None:
    """A time has units, a size may be rounded, an id begins with its arrival; others are none."""
    assert {text: parse(text) for text in values} == values


@each(
    "text",
    ["", "ALL", "1xX5UE-0003Hr-2I\n", " 1xX5UE-0003Hr-2I", "-Mrm", "1xX5UE-0003Hr-2", "x" * 16],
)
def test_other_texts_are_no_ids(text: str) -> None:
    """Only the two forms of ids are given to a program."""
    assert not lines.is_id(text)


def test_retry_records() -> None:
    """A retry record has host or address, error and its times."""
    text = (
        "Transport: 127.0.0.1 [127.0.0.1]:12603 error 0: H=127.0.0.1 [127.0.0.1]: 421 later\n"
        "  first failed: 27-Nov-2026 23:36:15\n"
        "  last tried:   27-Nov-2026 23:36:15\n"
        "  next try at:  27-Nov-2026 23:38:15\n"
        "No retry data found for x.test\n"
    )
    (record,) = lines.parse_retries(text)
    what, error = "Transport: 127.0.0.1 [127.0.0.1]:12603", "H=127.0.0.1 [127.0.0.1]: 421 later"
    tried = "27-Nov-2026 23:36:15"
    assert record == RetryRecord(what, error, tried, tried, next_try="27-Nov-2026 23:38:15")
    assert record.is_for(_mail("any@x.test"))


def _mail(*recipients: str, sender: str = "eve@x.test") -> Task:
    task = Task("1xX5UI-0003P1-0V", "mail", State.PENDING, 0.0)
    return task._replace(sender=sender, recipients=recipients)


@each(
    ("what", "task", "delays"),
    [
        ("Route: Ann@x.test:<bob@y.test>", _mail("a@x.test", "ann@x.test", sender="bob@y.test"), 1),
        ("Route: Ann@x.test:<bob@y.test>", _mail("eve@x.test", sender="bob@y.test"), 0),
        ("Route: Ann@x.test:<bob@y.test>", _mail("ann@x.test", sender="<>"), 0),
        ("Route: a@x.test:<Bob@y.test>", _mail("a@x.test", sender="Bob@Y.test"), 1),
        ("Transport: bob@x.test", _mail("bob@x.test"), 1),
        ("Transport: bob@x.test", _mail("ann@x.test"), 0),
        ("Route: x.test", _mail("ann@x.test"), 1),
        ("Route: myx.test", _mail("ann@x.test"), 0),
        ("Transport: mx.x.test [192.0.2.1]:25 1xX5UI-0003P1-0V", _mail("ann@x.test"), 1),
        ("Transport: mx.x.test [192.0.2.1]:25 1xX5UI-0003P1-0W", _mail("ann@x.test"), 0),
    ],
)
def test_a_retry_record_delays_the_mail_that_it_names(what: str, task: Task, delays: int) -> None:
    """Of an address, of a domain, or one message; `exinext` finds others by parts of a name."""
    (record,) = lines.parse_retries(f"{what} error -44: H=127.0.0.9 [127.0.0.9]: 450 later\n")
    assert record.is_for(task) == bool(delays)


def test_the_dump_of_the_retry_database() -> None:
    """Each record has its host, or the domain of its address; other lines are none."""
    times = b"27-Nov-2026 23:36:15  27-Nov-2026 23:40:15  27-Nov-2026 23:42:15"
    dump = [
        b"  T:mx.far.test:192.0.2.7:25:1xX5UE-0003IA-34 111 77 Connection refused",
        times + b" ",
        b'  R:"a b"@grey.test:<n@s.test> -44 12865 H=mx [192.0.2.8]: 450 try: later',
        times + b" *",
        b"  R:down.test -1 0 no answer",
        b"garbage \xff",
        times,
    ]
    records = [*lines.parse_retry_dump(dump)]
    assert [one.what for one in records] == ["mx.far.test", "grey.test"]
    assert {one.next_try for one in records} == {"27-Nov-2026 23:42:15"}
    assert records[0].error == "Connection refused"


def test_locks_of_deliveries() -> None:
    """Only a lock on the first line of a data file is one of a delivery."""
    printed = [
        b"1: POSIX  ADVISORY  READ 2138 00:1b:153310 128 128",
        b"3: FLOCK  ADVISORY  WRITE 29632 fe:00:2156779 0 EOF",
        b"6: POSIX  ADVISORY  WRITE 3718 00:28:463 0 18",
        b"7: POSIX  ADVISORY  WRITE 3719 00:28:464 0 25",
    ]
    assert lines.parse_locks(printed) == [SpoolLock(3718, 463), SpoolLock(3719, 464)]
