"""Write the mail log, counters, metrics and delivery records as the real program does."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.logs.log_line import parse_log_line
from engine.logs.task_events import parse_event
from engine.mail.send.delivery_log import DeliveryPaths, Ledger
from engine.monitor.prometheus import CounterFiles
from engine.system import files
from tests.programs import start_rivals
from tests.tables import each

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "nftban"
TASK = "20261120T094604Z-mail_send-2f72c807"
ADMIN = "admin@example.com"


class Book:
    """A ledger with a set clock, and the files that it wrote."""

    def __init__(self, root: Path, most: int | None = None) -> None:
        log, deliveries = f"{root}/log/mail.log", f"{root}/mail/delivery.jsonl"
        metrics, counters = f"{root}/metrics/mail.prom", f"{root}/metrics/counters"
        self.places = DeliveryPaths(log, metrics, counters, deliveries, root=str(root))
        if most is not None:
            self.places = self.places._replace(max_records=most)
        self.complaints: list[str] = []
        self.ledger = Ledger(self.places, self.complaints.append, lambda: self.now)
        self.counters = CounterFiles(counters, str(root), self.complaints.append)
        self.at("09:46:05")

    def at(self, clock: str) -> Ledger:
        """Its ledger at that time of 20 November 2026."""
        self.now = time.mktime(time.strptime(f"2026-11-20 {clock}", "%Y-%m-%d %H:%M:%S"))
        return self.ledger

    @property
    def log(self) -> list[str]:
        """The lines of mail.log."""
        return Path(self.places.log).read_text().splitlines()

    @property
    def path(self) -> Path:
        """Where delivery.jsonl is."""
        return Path(self.places.deliveries)

    @property
    def records(self) -> list[dict[str, str]]:
        """Those of delivery.jsonl."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """One of a data folder in which there is nothing yet."""
    return Book(tmp_path)


def first(book: Book) -> None:
    """The mail of the golden files that was accepted."""
    book.at("09:44:50").log_attempt("inline", 1, "sendmail", ADMIN)
    book.ledger.log_accepted("inline", 1, "sendmail", ADMIN)


def second(book: Book) -> None:
    """The one that failed three times, as the real program writes it down."""
    for n, (begins, fails, wait) in enumerate(
        [("09:44:50", "09:44:52", 5), ("09:44:57", "09:44:57", 15), ("09:45:16", "09:45:16", 45)], 1
    ):
        book.at(begins).log_attempt("inline", n, "sendmail", ADMIN)
        book.at(fails).log_failed_attempt(n, 3, "send_failed_rc_1")
        book.ledger.log_retry(wait)
    book.at("09:46:02").log_failure("inline", "sendmail", 3, "send_failed_rc_1", ADMIN)
    book.at("09:46:04").log_spooled(TASK, ADMIN, "after_3_retries", "sendmail")


def test_records_are_those_of_the_real_program(book: Book) -> None:
    """Each line of delivery.jsonl has its keys, their order, and its cut recipient."""
    first(book)
    book.at("09:46:03").log_failure("inline", "sendmail", 3, "send_failed_rc_1", ADMIN)
    book.at("09:46:04").log_spooled(TASK, ADMIN, "after_3_retries", "sendmail")
    book.at("09:46:06").log_spooled(TASK, "carol@example.com", "no_transport_available")
    golden = (GOLDEN / "delivery.jsonl").read_text().splitlines(keepends=True)
    assert book.path.read_text() == "".join(golden[:3] + golden[-1:])


def test_log_and_metrics_are_those_of_the_real_program(book: Book) -> None:
    """From the same mails come the same mail.log and mail.prom, to the byte."""
    for told, name in ((first, "success"), (second, "failure")):
        told(book)
        if name == "failure":
            book.counters.put("mail_last_failure_ts", "1795167962")
        book.ledger.publish("sendmail", 0, 0)
        golden = (GOLDEN / f"mail.after-{name}.prom").read_bytes()
        assert Path(book.places.metrics).read_bytes() == golden
    book.at("09:46:06").log_no_transport()
    book.ledger.log_spooled("20261120T094606Z-mail_send-21e184e1", "carol@example.com", "none")
    lines = (GOLDEN / "mail.log").read_text().splitlines()
    assert (book.log, book.complaints) == (lines[:13] + lines[-2:], [])


def test_metrics_have_a_line_for_each_transport(book: Book) -> None:
    """Each counter has a line for each of the six transports; the chosen one may be none."""
    for name, number in (("attempts_exim", 3), ("failures_curl", 2), ("failures_memory", 9)):
        book.counters.put(f"mail_{name}", str(number))
    book.ledger.publish("", 7, 61.9)
    text = Path(book.places.metrics).read_text()
    assert text.count("\n\n") == 7 and "memory" not in text
    for line in (
        'send_attempts_total{transport="exim"} 3', 'send_failures_total{transport="curl"} 2',
        "spool_depth 7", "spool_oldest_age_seconds 61",
    ):  # fmt: skip
        assert f"nftban_mail_{line}\n" in text
    assert text.endswith('nftban_mail_transport_selected{transport="none"} 1\n')


def test_queued_mail_is_logged_by_its_task(book: Book) -> None:
    """Lines have the task's id; a doubt and a mail already sent have a time."""
    book.ledger.log_unknown_result(TASK, "curl", 1_795_167_890.0)
    book.ledger.log_attempt(TASK, 2, "curl", ADMIN)
    book.ledger.log_already_sent(TASK, "", 1_795_167_890.0)
    book.ledger.log_unqueued("/var/lib/nftban/mailspool/mail-1")
    since = "since=2026-11-20T09:44:50Z: an earlier attempt"
    assert [line.removeprefix("[2026-11-20 09:46:05] ") for line in book.log] == [
        f"[WARN] MAIL_SEND_IN_DOUBT task_id={TASK} transport=curl {since} ended without a result, "
        "the mail may arrive twice",
        f"[INFO] MAIL_SEND_ATTEMPT task_id={TASK} attempt=2 transport=curl to=admin@...",
        f"[INFO] MAIL_SEND_ALREADY_SENT task_id={TASK} transport=? {since} was accepted, "
        "the mail is not sent again",
        "[WARN] Queue not available, mail saved to spool: /var/lib/nftban/mailspool/mail-1",
    ]


def test_failures_have_a_word_in_the_log_and_a_reason_in_the_records(book: Book) -> None:
    """A mail that cannot be sent at all counts as a failure of no transport."""
    counters, word = book.counters, Path(book.places.counters, "mail_last_failure_reason")
    why = {"to": ADMIN, "text": "550 no such user"}
    book.ledger.log_failure(TASK, "curl", 1, word="rejected_550", **why)
    assert book.records[0]["reason"] == "rejected_550: 550 no such user"
    assert word.read_text() == "rejected_550\n"
    assert counters.read("mail_last_failure_ts") == int(book.now)

    text = "Mail body file not found"
    book.at("09:46:06").log_unsendable(TASK, 2, "rejected_bad_mail", ADMIN, text)
    why_not = f"rejected_bad_mail: {text}"
    begin = f" [ERROR] MAIL_SEND_RESULT task_id={TASK} status=failed retries=2 last_error="
    assert book.log[-1].endswith(f"{begin}{why_not}")
    assert parse_event(parse_log_line(book.log[-1].encode(), "mail.log")) is None
    assert book.records[-1]["reason"] == why_not
    assert counters.read("mail_last_failure_ts") == int(book.now)
    assert word.read_text() == "rejected_bad_mail\n"


def test_addresses_are_cut_and_control_characters_removed(book: Book) -> None:
    """Log and records have no domain, no control character and no overlong text."""
    hostile = 'a"\\\n\x1b[2J\u202e\udce9' + "x" * 5000 + "@secret.example"
    book.ledger.log_attempt("inline", 1, "curl", hostile)
    why = {"to": hostile, "text": "\n\x9b" + "y" * 5000}
    book.ledger.log_failure("inline", "curl", 1, word="word", **why)
    (record,) = book.records
    assert "secret" not in "".join(book.log) + book.path.read_text()
    assert all(text.isprintable() for text in [*book.log, record["recipient"], record["reason"]])
    assert record["recipient"].startswith('a"\\\ufffd')
    assert (book.path.stat().st_size < 1024, len(book.log)) == (True, 2)


def test_a_shorter_value_leaves_nothing_of_the_longer_one(book: Book) -> None:
    """A counter file has the last value alone."""
    for value, text in (("a longer\nword", "a longer\ufffdword\n"), ("short", "short\n")):
        book.counters.put("word", value)
        assert Path(book.places.counters, "word").read_text() == text


def line(n: int) -> bytes:
    """A record of another program."""
    return b'{"ts":"2026-11-20T09:44:50Z","transport":"curl","reason":"%06d"}\n' % n


def test_the_newest_records_are_kept(tmp_path: Path) -> None:
    """There are never more than an eighth above the most, nor fewer than that; the last is last."""
    book = Book(tmp_path, 80)
    for n in range(180):
        book.ledger.log_accepted(f"task-{n}", 1, f"t{n}", ADMIN)
        names = [record["transport"] for record in book.records]
        assert min(n + 1, 80) <= len(names) <= 90
        assert names[-1] == f"t{n}"
    assert names == [f"t{n}" for n in range(180 - len(names), 180)]


def test_the_records_are_rewritten_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 600 records at most 12 rewrite the file."""
    book, written = Book(tmp_path, 400), list[str]()
    replace = files.replace_durably

    def counted(name: str, *args: Any, **options: Any) -> None:
        written.append(name)
        replace(name, *args, **options)

    monkeypatch.setattr(files, "replace_durably", counted)
    for _ in range(600):
        book.ledger.log_spooled(TASK, ADMIN, "after_3_retries", "curl")
    assert 1 <= len(written) <= 12


def test_a_huge_file_is_cut_to_its_end(tmp_path: Path) -> None:
    """A file of a gigabyte is cut to the newest records, without reading it all."""
    book = Book(tmp_path, 20)
    book.path.parent.mkdir()
    with book.path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(line(n) for n in range(40)))
    for _ in range(10):
        book.ledger.log_accepted("inline", 1, "curl", ADMIN)
    assert 20 <= len(book.records) <= 30


def test_mode_and_owner_of_the_records_stay(tmp_path: Path) -> None:
    """A trimmed file has the mode and owner that it had before."""
    book = Book(tmp_path, 4)
    book.path.parent.mkdir()
    book.path.write_bytes(b"".join(line(n) for n in range(40)))
    book.path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(book.path, 12345, 12346)
    before = book.path.stat()
    for _ in range(20):
        book.ledger.log_accepted("inline", 1, "curl", ADMIN)
    after = book.path.stat()
    assert len(book.records) <= 14
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, *before[4:6])


RIVAL = """
import sys
from engine.logs.delivery_records import Delivery, DeliveryRecords
records = DeliveryRecords(sys.argv[1], 20)
sys.stdin.readline()
for n in range(100):
    records.add(Delivery(n, sys.argv[2], "a@example.com", "success"))
"""


def test_a_reader_never_sees_half_a_record(book: Book) -> None:
    """While two processes write and trim, a reader finds whole lines."""
    rivals = start_rivals(RIVAL, str(book.path), ("one", "two"))
    reads = 0
    while any(rival.poll() is None for rival in rivals):
        lines = book.path.read_text().splitlines(keepends=True) if book.path.exists() else []
        assert all(json.loads(line) and line.endswith("\n") for line in lines)
        reads += bool(lines)
    assert [rival.wait() for rival in rivals] == [0, 0]
    assert reads > 0
    assert 20 <= len(book.records) <= 30
    last = {record["transport"]: record["ts"] for record in book.records}
    assert "1970-01-01T00:01:39Z" in last.values()


@each("kind", ["log", "counters", "deliveries", "metrics"])
@each("make", [Path.mkdir, lambda path: path.symlink_to("/dev/full"), os.mkfifo], book=Book)
def test_a_bad_file_stops_no_mail(book: Book, kind: str, make: Callable[[Path], None]) -> None:
    """A FIFO, a folder or a link in place of a file is complained of once; the rest is written."""
    path = Path(getattr(book.places, kind), *["mail_attempts_sendmail"] * (kind == "counters"))
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    first(book)
    second(book)
    book.ledger.publish("sendmail", 0, 0)
    replaced = kind == "metrics" and make is not Path.mkdir
    assert bool(book.complaints) is not replaced
    assert all(str(path) in said and said.isprintable() for said in book.complaints[:1])
    assert len(set(book.complaints)) == len(book.complaints) <= 2
    assert kind == "log" or len(book.log) == 13
    assert kind == "deliveries" or len(book.records) == 3
    assert kind == "metrics" or Path(book.places.metrics).exists()


FULL = """
import resource, signal, sys
from engine.mail.send.delivery_log import Ledger, DeliveryPaths
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
root = sys.argv[1]
names = ("mail.log", "mail.prom", "counters", "d.jsonl")
places = DeliveryPaths(*(f"{root}/{name}" for name in names))
ledger = Ledger(places, lambda text: print(text))
ledger.log_attempt("inline", 1, "curl", "a@example.com")
ledger.log_accepted("inline", 1, "curl", "a@example.com")
ledger.publish("curl", 0, 0)
"""


@each("room", [0, 50, 150])
def test_a_full_disk_is_complained_of(tmp_path: Path, room: int) -> None:
    """With a limit of file sizes nothing is raised, and half a record is removed."""
    argv = [sys.executable, "-c", FULL, str(tmp_path), str(room)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    for name in ("mail.log", "mail.prom"):
        assert f"{tmp_path}/{name}: File too large" in ran.stdout
    assert (tmp_path / "d.jsonl").read_bytes()[-2:] in (b"", b"}\n")
    assert not list(tmp_path.glob("*.tmp")) and not (tmp_path / "mail.prom").exists()
