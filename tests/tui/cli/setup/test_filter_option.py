"""Filters of mail on the command line: what they find, and what they did not search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.formats.base.memory import MemoryStore
from engine.index.filter_language import parse_filter
from engine.model import State, Task
from tests.mail_queue_commands import ALSO, FROM, TO, Spool
from tui.cli.setup.filter_option import note_searched


@pytest.fixture
def place(tmp_path: Path) -> Spool:
    """A spool with one mail to two recipients."""
    spool = Spool(tmp_path)
    spool.enqueue(TO, ALSO)
    return spool


FOUND: dict[str, set[str]] = {
    f"from={FROM}": {TO, ALSO},
    "from:@EXAMPLE.org": {TO, ALSO},
    "from:@ample.org": set(),
    "from_domain=example.org to:bar": {TO},
    "to:@example.org": {ALSO},
    "size>1": set(),
}


def test_mail_is_found_by_its_addresses(place: Spool) -> None:
    """By sender, its domain, and recipient; a size that is not known matches nothing."""
    for text, found in FOUND.items():
        ended = place.run("queue", "list", str(place.path), "--filter", text, "--json")
        rows = [json.loads(line) for line in ended.stdout.splitlines()]
        assert {row["destination"] for row in rows} == found, text
        for row in rows:
            assert (row["sender"], row["recipients"]) == (FROM, [row["destination"]])
            assert (row["account"], row["bytes"]) == ("", None)


def test_mail_is_grouped_by_its_sender(place: Spool) -> None:
    """The command has the groupings of mail, and by destination the number of recipients."""
    for by, name in (("sender", FROM), ("sender-domain", "example.org")):
        ended = place.run("groups", str(place.path), "--by", by)
        head, row, *_ = ended.stdout.splitlines()
        assert head.split()[:2] == [by.upper(), "ALL"]
        assert row.split()[:2] == [name, "2"]
        assert f"2 tasks by {by}, 1 group" in ended.stdout
    ended = place.run("groups", str(place.path), "--by", "destination", "--json")
    values = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {row["name"]: row["total"] for row in values} == {"example.net": 1, "example.org": 1}
    assert {row["unit"] for row in values} == {"recipients"}
    text = place.run("groups", str(place.path), "--by", "destination").stdout
    assert "2 recipients by destination, 2 groups" in text
    ended = place.run("groups", str(place.path), "--by", "account")
    assert ended.stdout.startswith("no task here has an account; expected --by kind or group or ")


def test_what_a_filter_did_not_search_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """The number of recipients or accounts that were not searched is on standard error."""
    many = tuple(f"user{number:05}@b.example" for number in range(5_240))
    mails = [
        Task(f"t{n}", "mail", State.PENDING, 1.0, sender="a@b", recipients=many[: 5_240 - n])
        for n in (0, 5_239)
    ]
    mails[1] = mails[1]._replace(account=None)
    accounts = "spooldeck: --filter: accounts of 1 of 2 read\n"
    line = "spooldeck: --filter: searched 3,276 of 5,240 recipients\n"
    for text, message in (("from=a@b", ""), ("to:x", line), ("x", line), ("account:x", accounts)):
        assert [*note_searched(MemoryStore(), mails, parse_filter(text))] == mails
        assert capsys.readouterr().err == message
