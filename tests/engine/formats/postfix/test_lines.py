"""What Postfix printed: listings and envelopes, compared field by field with samples."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.formats.postfix import lines
from engine.formats.postfix.lines import NO_ACCOUNTS, SUSPENDED_PREFIX, FileTimes, parse_line
from engine.model import Problem, State, Task
from engine.operations.trash import SINCE_KEY
from engine.programs.mail_accounts import MailAccounts
from engine.programs.mail_server import ListedMail
from engine.text.safe import clean_error
from tests.tables import each

SAMPLES = Path(__file__).parent / "samples"


def no_trash(ident: str, identity: str, ctime: float | None) -> bool:
    """There is no mark."""
    return False


def lines_of(name: str) -> list[bytes]:
    """The lines of a listing."""
    return (SAMPLES / name).read_bytes().splitlines()


def printed(name: str) -> list[bytes]:
    """What a transcript has of standard output."""
    return [line[2:] for line in (SAMPLES / name).read_bytes().splitlines() if line[:2] == b"1 "]


def record_of(line: bytes, detail: bytes = b"") -> tuple[str, bytes]:
    """Id and record of a line of a listing."""
    mail = parse_line(1, line)
    assert isinstance(mail, ListedMail)
    return mail.id, mail.record + (b"\n" + detail if detail else b"")


def read(line: bytes, detail: bytes = b"") -> Task | Problem:
    """The task of a line of a listing."""
    ident, record = record_of(line, detail)
    task = lines.parse_task(ident, record, no_trash, None, NO_ACCOUNTS, has_times=True)
    if isinstance(task, Task):
        summary = lines.summarize(ident, record, no_trash, NO_ACCOUNTS, has_times=True)
        assert (task.state, task.word, task.rev) == summary
    return task


def identity_in(line: bytes) -> str:
    """The identity of a line of a listing."""
    summary = lines.summarize(*record_of(line), no_trash, NO_ACCOUNTS, has_times=True)
    return summary.rev.partition(".")[0]


def assert_agree(
    line: bytes, detail: bytes, accounts: MailAccounts, *, is_trash: bool
) -> Task | None:
    """The pattern of most lines makes the same task as the parser of all, or none."""
    ident, record = record_of(line, detail)
    assert lines.line_of(ident, record) == line
    task = lines.usual_task(ident, record, lambda *mark: is_trash, accounts)
    other = lines.parse_task(ident, record, lambda *mark: is_trash, 5.0, accounts, has_times=True)
    assert task in (None, other)
    return task


def line_with(**fields: object) -> bytes:
    """A line of a listing with these fields besides the usual ones, in the usual order."""
    usual = {"queue_name": "deferred", "queue_id": "3C6592DA4DC", "arrival_time": 1795822512}
    usual |= {"message_size": 1787, "forced_expire": False, "sender": "a@b", "recipients": []}
    return json.dumps(usual | fields, ensure_ascii=False).encode()


@each("name", ["postqueue-j.deferred.jsonl", "postqueue-j.stopped.jsonl"])
def test_each_line_of_a_listing_is_a_task(name: str) -> None:
    """With each field, in any order; each open recipient has a line with its reason."""
    for line in lines_of(name):
        fields, task = json.loads(line), read(line, b"1795822400.5_1795822100.0_700")
        assert isinstance(task, Task)
        queue, sender = fields["queue_name"], fields["sender"]
        addresses = tuple(one["address"] for one in fields["recipients"])
        reasons = [one["delay_reason"] for one in fields["recipients"] if "delay_reason" in one]
        first = (reasons or [""])[0]
        states = {"deferred": State.PENDING, "hold": State.HELD}
        assert (task.id, task.kind, task.queue) == (fields["queue_id"], "mail", "")
        assert (task.state, task.created) == (states[queue], fields["arrival_time"])
        assert (task.due, task.attempts, task.bytes) == (1795822400, None, fields["message_size"])
        assert task.sender == ("<>" if sender == "MAILER-DAEMON" else sender)
        assert (task.recipients, task.destination) == (addresses, (addresses or ("",))[0])
        assert task.group == lines.domain_of(task.destination)
        assert task.error == clean_error(first.removeprefix(SUSPENDED_PREFIX))
        assert (lines.SUSPENDED_KEY in task.extra) == first.startswith(SUSPENDED_PREFIX)
        assert task.word == ("delivered" if queue == "hold" and not addresses else "")
        assert task.rev.endswith(f".{queue}.1795822400")
        other = json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode()
        assert read(other, b"1795822400.5_1795822100.0_700") == task
        rows = lines.format_recipients(line).decode().splitlines()
        assert [row.partition(": ")[::2] for row in rows] == [
            (one["address"], one.get("delay_reason", "")) for one in fields["recipients"]
        ]


@pytest.mark.parametrize("is_trash", [False, True])
@pytest.mark.parametrize("detail", [b"", b"5.1_6.2_700", b"15.0_16.2_710"])
def test_a_usual_line_is_read_as_any_other(detail: bytes, *, is_trash: bool) -> None:
    """Most recorded ones by the pattern, if they have the times of their files."""
    usual = 0
    for line in [line for path in SAMPLES.glob("*.jsonl") for line in lines_of(path.name)]:
        accounts = MailAccounts()
        if usual % 2:
            accounts.note(record_of(line)[0], "", "ann")
        usual += assert_agree(line, detail, accounts, is_trash=is_trash) is not None
    assert (usual > 10) == bool(detail)


TEXTS = st.text(st.sampled_from("aB@.<> 7\x7f\u00e9\u202e{}[]:,'"), max_size=12) | st.text(
    st.sampled_from('a@\\"\x00\x1b\t\ud800'), max_size=12
)
REASONS = st.builds(str.__add__, st.sampled_from(["", SUSPENDED_PREFIX]), TEXTS)
RECIPIENTS = st.fixed_dictionaries({"address": TEXTS}, optional={"delay_reason": REASONS})


@given(
    fields=st.fixed_dictionaries(
        {
            "queue_name": st.sampled_from(["deferred", "deferred", "hold", "active", "maildrop"]),
            "arrival_time": st.integers(0, 10**12 - 1),
            "message_size": st.integers(0, 10**18 - 1),
            "forced_expire": st.sampled_from([False, False, True]),
            "sender": TEXTS | st.just("MAILER-DAEMON"),
            "recipients": st.tuples(RECIPIENTS) | st.lists(RECIPIENTS, max_size=2),
        }
    ),
    detail=st.sampled_from([b"1795822400.9_1795822100.2_700", b"4711", b""]),
    is_ascii=st.booleans(),
    is_trash=st.booleans(),
)
def test_the_pattern_agrees_with_json(
    fields: dict[str, object], detail: bytes, *, is_ascii: bool, is_trash: bool
) -> None:
    """The pattern makes no other task of it than the JSON parser."""
    ordered = json.loads(line_with()) | fields
    line = json.dumps(ordered, ensure_ascii=is_ascii).encode("utf-8", "replace")
    assert_agree(line, detail, NO_ACCOUNTS, is_trash=is_trash)


GARBAGE = [b"", b"garbage", b"{", b"[]", b"[" * 100_000, b"\xff\xfe\x1b[31m"]
WRONG = [line_with()[:70], line_with(queue_name="nowhere"), line_with(queue_id="../../etc")]


@each("line", [*GARBAGE, *WRONG])
def test_a_line_that_cannot_be_read_is_a_problem(line: bytes) -> None:
    """It is named by its number, with its first bytes made safe."""
    problem = parse_line(7, line)
    assert isinstance(problem, Problem)
    assert problem.where == "postqueue line 7"
    assert problem.what.isprintable() and len(problem.what) < 300


def test_a_damaged_tail_is_a_problem_of_its_message() -> None:
    """A line whose recipients cannot be read names the id."""
    line = lines_of("postqueue-j.deferred.jsonl")[0]
    head, _, _ = line.partition(b'"address"')
    task = read(head + b"]}")
    assert isinstance(task, Problem)
    assert task.where == json.loads(line)["queue_id"]


def test_odd_addresses_do_no_harm() -> None:
    """An escaped half of a pair is kept as it is; text that looks like a recipient is text."""
    line = line_with(queue_name="hold", sender='a!"b@c', recipients=[{"address": "!"}])
    task = read(line.replace(b"!", rb"\ud800"))
    assert isinstance(task, Task)
    assert (task.sender, task.recipients) == ('a\ud800"b@c', ("\ud800",))
    one = {"address": '{"address": "x"}', "delay_reason": '{"address": '}
    sender = 'me", "recipients": ['
    task = read(line_with(sender=sender, recipients=[one]))
    assert isinstance(task, Task)
    assert task.rev.split("-")[2] == "1"
    assert (task.sender, task.recipients) == (sender, (one["address"],))


def test_an_envelope_has_the_identity_of_its_line() -> None:
    """postcat and postqueue give a message the same identity, also in another time zone."""
    (envelope,) = lines.parse_envelopes(printed("postcat.txt")[:30], ["3C6592DA4DC"])
    recipients = [{"address": "user68454@d014.example.test"}]
    line = line_with(sender="newsletter@shop.example.test", recipients=recipients)
    assert (envelope.path, envelope.queue) == ("deferred/3/3C6592DA4DC", "deferred")
    assert lines.size_in(envelope.fields) == 1787
    assert lines.time_in(envelope.fields[b"create_time"]) == 1795822512
    assert envelope.values(b"recipient") == ["user68454@d014.example.test"]
    assert envelope.attribute("client_address") == "127.0.0.1"
    assert not envelope.attribute("sasl_username")
    there = [line.replace(b"23:35:12", b"19:05:12") for line in envelope.lines]
    elsewhere = lines.make_envelope(envelope.id, envelope.path, there)
    assert envelope.identity == elsewhere.identity == identity_in(line)
    assert envelope.image.startswith(b"id: 3C6592DA4DC\nmessage_size: ")
    assert b"deferred" not in envelope.image


@each(
    ("sender", "printed_sender"),
    [
        ("MAILER-DAEMON", ""),
        ('"a b"@c', '"a b"@c'),
        ("jos\u00e9@c", "jos\u00e9@c"),
        ("a?b@c", "a\x1bb@c"),
        ("we\\ird@c", "we\\ird@c"),
    ],
)
def test_a_sender_is_compared_as_both_programs_print_it(sender: str, printed_sender: str) -> None:
    """Control bytes, quotes and the null sender give the same identity in line and envelope."""
    envelope_lines = [
        b"message_size:            1787             726 ",
        b"message_arrival_time: Fri Nov 27 23:35:12 2026",
        f"sender: {printed_sender}".encode(),
    ]
    envelope = lines.make_envelope("3C6592DA4DC", "hold/3C6592DA4DC", envelope_lines)
    assert envelope.identity == identity_in(line_with(queue_name="hold", sender=sender))


@each(
    ("text", "seconds"),
    [
        (b"Thu Jan  1 00:01:00 1970", 60),
        (b"Fri Nov 27 23:35:12 2026", 1795822512),
        *((text, None) for text in (b"Fri Foo 27 23:35:12 2026", b"today", b"")),
    ],
)
def test_a_time_of_an_envelope(text: bytes, seconds: int | None) -> None:
    """It is read as if its zone were UTC."""
    assert lines.time_in([text]) == seconds
    assert lines.time_in([]) is None


def test_an_envelope_of_another_message_is_not_taken() -> None:
    """Only the messages that were asked for, in their order, are read."""
    printout = printed("postcat.txt")[:30]
    assert lines.parse_envelopes(printout, ["AAAAAAAAAAA"]) == []
    both = lines.parse_envelopes([*printout, *printout], ["3C6592DA4DC", "AAAAAAAAAAA"])
    assert [one.id for one in both] == ["3C6592DA4DC"]


def test_times_of_a_file() -> None:
    """Fractions are cut; the group-execute bit is the mark of an expired message."""
    assert lines.parse_times(b"1795822400.91_1795822100.2_710") == FileTimes(
        1795822400, 1795822100, 0o710
    )
    assert [FileTimes(0, 0, mode).is_expired for mode in (0o700, 0o710)] == [False, True]
    assert [lines.parse_times(text) for text in (b"", b"a_b_c", b"1_2", b"26872")] == [None] * 4


def test_trash_has_the_time_of_its_mark() -> None:
    """A message on hold that a mark fits is trash, since the time of the mark."""
    line = next(x for x in lines_of("postqueue-j.stopped.jsonl") if b'"hold"' in x)
    name, record = record_of(line, b"5.1_6.2_700")

    def is_trash(ident: str, identity: str, ctime: float | None) -> bool:
        return ident == name and ctime == 6

    task = lines.parse_task(name, record, is_trash, 7.0, NO_ACCOUNTS, has_times=True)
    assert isinstance(task, Task)
    assert lines.summarize(name, record, is_trash, NO_ACCOUNTS, has_times=True).rev == task.rev
    assert (task.state, task.extra[SINCE_KEY]) == (State.TRASH, "7")


@each(
    ("ident", "inode", "when"),
    [
        ("7DB7F2DA00C", 0x2DA00C, None),
        ("4jcgVf4PJHzJFCP", 2156811, 1795941402),
        ("aaaaaaaaaazJFCP", 2156811, None),
        ("????", None, None),
        ("12345", None, None),
    ],
)
def test_an_id_has_the_inode_and_time(ident: str, inode: int | None, when: int | None) -> None:
    """Short ids have the inode in hexadecimal; long ones behind a z, after their seconds."""
    assert (lines.inode_of(ident), lines.made_at(ident)) == (inode, when)


@each("text", ["", "ALL", "4D9752DA018 ", "4D9752DA018\r", "no/such", "-d", "é" * 8])
def test_what_is_no_id(text: str) -> None:
    """Nothing but letters and digits is given to a program as an id."""
    assert lines.is_queue_id(text) is None
