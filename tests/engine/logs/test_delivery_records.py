"""What delivery records say of failures: written by either program, cut, replaced, or hostile."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.logs import delivery_records
from engine.logs.delivery_records import FAILED, RETRIED, SPOOLED, SUCCESS, Delivery
from engine.monitor import delivery_reader
from engine.monitor.delivery_reader import DeliveryReader, parse_failures, parse_refusals
from engine.monitor.mail_monitor import MAX_FAILURES, merge_failures
from engine.monitor.transport_health import Failure, Refusals
from tests.engine.task_builders import GOLDEN
from tests.examples import examples

NOON = 1_795_176_000.0
"""2026-11-20T12:00:00Z."""


def record(second: int, reason: str, transport: str = "curl", result: str = "failed") -> bytes:
    """A line as both programs write it."""
    fields = {"ts": f"2026-11-20T12:00:{second:02}Z", "transport": transport}
    told = {"recipient": "a@\u2026", "result": result, "reason": reason}
    return json.dumps(fields | told).encode() + b"\n"


ANY = st.text(max_size=300)
ANY |= st.text(st.characters(categories=["Cs", "Cc", "Cf", "Po"]), max_size=300)
"""Any text: controls, quotes and lone surrogates are in it, and it may be too long."""


OUTCOMES = st.sampled_from([SUCCESS, FAILED, SPOOLED]) | ANY


@given(st.builds(Delivery, st.floats(0, 4e9), ANY, ANY, OUTCOMES, ANY))
def test_what_is_written_is_what_is_read(told: Delivery) -> None:
    """With any outcome of a mail, its line is one, safe to show, and says the same when read."""
    line = delivery_records.format_record(told)
    assert delivery_records.parse_record(line) == delivery_records.normalize_delivery(told)
    assert delivery_records.format_record(delivery_records.normalize_delivery(told)) == line
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert line[:-1].decode().isprintable()


@examples(40)
@given(
    st.binary(max_size=300)
    | st.recursive(ANY | st.none() | st.integers(), st.lists).map(
        lambda text: json.dumps(text).encode()
    )
)
def test_any_other_line_is_no_record(raw: bytes) -> None:
    """Noise, or JSON of another kind: nothing is raised."""
    assert delivery_records.parse_record(raw) is None


def test_the_real_programs_records_are_read() -> None:
    """Written again, each of them is the same to the byte."""
    for raw in (GOLDEN / "delivery.jsonl").read_bytes().splitlines(keepends=True):
        delivery = delivery_records.parse_record(raw)
        assert delivery is not None
        assert delivery_records.format_record(delivery) == raw


def test_only_failures_are_listed_the_latest_first() -> None:
    """Each has its word, and the transport's own words if recorded; odd lines hide no others."""
    data = record(1, "send_failed_rc_1") + record(2, "rejected_550: 5.1.1 user unknown: x")
    data += record(3, "", result="success") + record(4, "after_3_retries", result="spooled")
    rejected = Failure(NOON + 2, "rejected_550", "5.1.1 user unknown: x")
    assert parse_failures(data + record(5, "421 4.7.0 try later", "postfix")) == {
        "postfix": (Failure(NOON + 5, "421 4.7.0 try later"),),
        "curl": (rejected, Failure(NOON + 1, "send_failed_rc_1")),
    }
    data = b'{"ts":"2026\n[1,2]\n\xff\xfe\n' + record(1, "x" * 5000) + record(2, "torn")[:-4]
    ((failure,),) = parse_failures(data).values()
    assert failure.word == "x" * 200
    many = parse_failures(b"".join(record(n % 60, f"e{n}") for n in range(500)))
    assert (len(many["curl"]), many["curl"][0].word) == (MAX_FAILURES, "e499")


def test_the_file_is_followed_by_its_name(tmp_path: Path) -> None:
    """The end of a file that is replaced, cut or gone is read again; another kind is an error."""
    path = tmp_path / "delivery.jsonl"
    deliveries = DeliveryReader(str(path))
    assert deliveries.read() == {}
    old = record(1, "old") + b" " * delivery_reader.TAIL_BYTES + b"\n"
    for data, words in (
        (record(1, "a"), ["a"]), (record(1, "a") + record(2, "b"), ["b", "a"]),
        (old + record(2, "new"), ["new"]),
    ):  # fmt: skip
        (tmp_path / "new").write_bytes(data)
        (tmp_path / "new").rename(path)
        assert [failure.word for failure in deliveries.read()["curl"]] == words
    path.write_bytes(record(1, "rewritten"))
    assert [failure.word for failure in deliveries.read()["curl"]] == ["rewritten"]
    path.unlink()
    assert deliveries.read() == {}
    os.mkfifo(path)
    for other in (path, tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            DeliveryReader(str(other)).read()


def test_a_failure_in_log_and_records_counts_once() -> None:
    """The log has the word and the records the words, within a second or two of each other."""
    logged = (Failure(100.0, "rejected_550"), Failure(90.0, "connect_refused"))
    alone = (Failure(50.0, "connect_refused", "port 25"), Failure(None, "auth_535"))
    recorded = (Failure(101.0, "rejected_550", "user unknown"), *alone)
    both = Failure(100.0, "rejected_550", "user unknown")
    assert merge_failures(logged, recorded) == (both, logged[1], *alone)


def test_only_a_refusal_for_good_or_a_loss_is_a_refusal(tmp_path: Path) -> None:
    """Of all failures those are counted that no attempt follows; a cut file is read again."""
    reasons = ("rejected_550: 550 no", "connect_refused", "lost: disk full", "rejected_bad_mail: x")
    data = b"".join(record(n, reason, "none") for n, reason in enumerate(reasons))
    data += record(9, "rejected_550", result="spooled")
    failures = [(each.when, each.word, each.text) for each in parse_refusals(data).failures]
    assert failures == [
        (NOON + 3, "rejected_bad_mail", "x"), (NOON + 2, "lost", "disk full"),
        (NOON, "rejected_550", "550 no"),
    ]  # fmt: skip
    reader = DeliveryReader(str(path := tmp_path / "delivery.jsonl"))
    path.write_bytes(data)
    reader.read()
    assert (len(reader.refusals.failures), reader.refusals.since) == (3, 0.0)
    path.unlink()
    reader.read()
    assert reader.refusals == Refusals()


def test_a_refusal_that_an_operator_retried_is_none() -> None:
    """One less, the latest before the retry; what is before the kept records is unknown."""
    retry = record(5, RETRIED, "none", "spooled")
    lines = [record(1, "rejected_a: x"), record(2, "rejected_b: x"), retry, record(6, "lost: y")]
    failures = parse_refusals(b"".join(lines)).failures
    assert [each.word for each in failures] == ["lost", "rejected_a"]

    data = record(1, "rejected_a: x") + record(2, "rejected_b: x")
    assert parse_refusals(data, record_limit=3).since == 0.0
    assert parse_refusals(data, record_limit=2).since == NOON + 1
    assert parse_refusals(b"torn\n" + data, torn=True, record_limit=9).since == NOON + 1
