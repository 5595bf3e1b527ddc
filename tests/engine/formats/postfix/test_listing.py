"""Lines of a listing get the times of their files, which find(1) prints beside it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from engine.formats.postfix.instance import SETTING_NAMES, Instance
from engine.formats.postfix.listing import FileSearch, Listing
from engine.model import Problem
from engine.programs.prefix import HERE

IDS = ["0A1B2C0001", "0A1B2C0002", "0A1B2C0003"]


@pytest.fixture
def search(tmp_path: Path) -> FileSearch:
    """A search of a queue with messages due 15, 16 and 17 s after the epoch, and a damaged file."""
    for folder in ("deferred/0", "hold", "corrupt"):
        (tmp_path / folder).mkdir(parents=True)
    names = [*(f"deferred/0/{ident}" for ident in IDS), "corrupt/0A1B2CFFFF"]
    for number, name in enumerate(names):
        (tmp_path / name).touch(0o700)
        os.utime(tmp_path / name, (0, 15 + number))
    settings = dict.fromkeys(SETTING_NAMES, "") | {"queue_directory": str(tmp_path)}
    return FileSearch(Instance("/etc/mta", HERE, "/usr/sbin/", settings, uid=0, device=None))


def line_of(ident: str, queue: str = "deferred", reason: str = "lost") -> bytes:
    """A line of a listing."""
    return (
        f'{{"queue_name": "{queue}", "queue_id": "{ident}", "arrival_time": 5, "message_size": 1, '
        f'"sender": "", "recipients": [{{"address": "a@b.test", "delay_reason": "{reason}"}}]}}'
    ).encode()


def records_of(listing: Listing, lines: Iterable[bytes]) -> dict[str, bytes]:
    """The records of a whole listing."""
    mails = [mail for mail in listing.read(iter(lines)) if not isinstance(mail, Problem)]
    return {mail.id: mail.record for mail in mails}


def due_in(records: dict[str, bytes]) -> list[bytes]:
    """The time of each record's file; empty if it has none."""
    return [record.partition(b"\n")[2].partition(b".")[0] for record in records.values()]


def test_early_and_late_lines_get_the_times_of_their_files(search: FileSearch) -> None:
    """Also those printed before find has ended, in place of a time that was known."""

    def lines() -> Iterator[bytes]:
        yield line_of(IDS[0])
        yield line_of(IDS[1]).replace(b", ", b",")
        search.lines()
        yield line_of(IDS[2], reason="delivery temporarily suspended: lost")

    listing = Listing(search)
    records = records_of(listing, lines())
    records[IDS[0]] += b"\n9.5_9.5_700"
    (problem,) = listing.complete(records)
    assert due_in(records) == [b"15", b"16", b"17"]
    assert problem.where == "corrupt/0A1B2CFFFF"
    assert (listing.first_due, listing.has_times) == (15.0, True)
    assert (listing.others, [*listing.suspended]) == ([], IDS[2:])


@pytest.mark.parametrize(
    ("lines", "due", "others"),
    [
        # listed as active before: its file is the one of its last line
        ([line_of(IDS[0], "active"), line_of(IDS[0])], b"15", []),
        ([line_of(IDS[0], "hold")], b"", IDS[:1]),
        ([line_of(IDS[2], "active")], b"", IDS[2:]),
        ([line_of(IDS[1]), line_of(IDS[1], reason="lost again")], b"", []),
        ([line_of("0A1B2C0009")], b"", []),
    ],
)
def test_a_message_that_moved_meanwhile_has_no_time(
    search: FileSearch, lines: list[bytes], due: bytes, others: list[str]
) -> None:
    """Nor has one that is listed twice, in another queue than its file, or without a file."""

    def printed() -> Iterator[bytes]:
        search.lines()
        yield from lines

    listing = Listing(search)
    records = records_of(listing, printed())
    listing.complete(records)
    assert (due_in(records), listing.others) == ([due], others)
