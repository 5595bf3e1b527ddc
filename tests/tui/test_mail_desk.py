"""What the console is handed about the ways mail goes: real settings, files and transports."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from engine import config
from engine.journal import Journal
from engine.mail.content import Content
from engine.mail.spool import MailSpool
from engine.store import Unavailable
from engine.transports import Use
from tests.tui.spools import make_spool
from tui.cli import main
from tui.cli.maildesk import mail_desk
from tui.cli.wiring import Setup
from tui.place import MailDesk

CURL = {"NFTBAN_SMTP_HOST": "127.0.0.1", "NFTBAN_MAIL_RECIPIENT": "admin@example.com"}


def a_desk(root: Path, monkeypatch: pytest.MonkeyPatch, **environ: str) -> MailDesk:
    """The desk of a place where curl alone may send."""
    if not (root / "queue").exists():
        make_spool(root, [])
    for name, value in {**CURL, "NFTBAN_MAIL_METHOD": "curl", **environ}.items():
        monkeypatch.setenv(name, value)
    settings = config.Config()
    setup = Setup(settings, config.queue_for(settings, str(root), environ), (str(root),))
    return mail_desk(setup, ["spooldeck"])


def test_what_is_suspended_is_written_down_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file that each sender reads, and as a line of the mail log: who, what and why."""
    desk = a_desk(tmp_path, monkeypatch)
    before = desk.routes(desk.stopped())

    assert desk.suspend("curl", "relay \x1b[31m moves") == ""

    after = desk.routes(desk.stopped())
    assert (before.selected, after.selected) == ("curl", "")
    assert after.waits
    assert (after.use("curl"), after.use("mailx")) == (Use.SUSPENDED, Use.BARRED)
    assert after.recipient == "admin@example.com"
    log = (tmp_path / "log" / "mail.log").read_text()
    assert "[INFO] Transport curl suspended by " in log
    assert log.endswith(": relay \ufffd[31m moves\n")
    (told,) = Journal(f"{tmp_path}/queue/.spooldeck/journal").operations()
    values = {"control": "transport", "target": "curl", "value": "suspended"}
    assert dict(told.intent.values) == {**values, "before": "not suspended"}
    assert (told.intent.reason, told.interrupted) == ("relay \ufffd[31m moves", False)
    with pytest.raises(Unavailable, match="curl was suspended meanwhile, and stays so"):
        desk.suspend("curl", "again")
    assert desk.resume("curl") == ""
    assert desk.routes(desk.stopped()).selected == "curl"
    with pytest.raises(Unavailable, match="curl was resumed meanwhile"):
        desk.resume("curl")


def test_what_cannot_be_read_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that nobody understands, and settings that cannot be meant, are told with why."""
    desk = a_desk(tmp_path, monkeypatch)
    desk.suspend("curl", "")
    (tmp_path / "queue" / ".spooldeck" / "suspended").write_text("{")

    with pytest.raises(Unavailable, match="suspended: "):
        desk.stopped()
    odd = a_desk(tmp_path, monkeypatch, NFTBAN_MAIL_METHOD="pigeon")
    with pytest.raises(Unavailable, match="pigeon"):
        odd.routes({})


def test_a_log_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is suspended all the same: mail must not go by it because a log is full."""
    desk = a_desk(tmp_path, monkeypatch)
    (tmp_path / "log" / "mail.log").mkdir()

    said = desk.suspend("curl", "")

    assert "mail.log does not say so: " in said
    assert [*desk.stopped()] == ["curl"]


def test_it_knows_where_the_records_are_and_how_a_test_mail_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same settings as the commands."""
    desk = a_desk(tmp_path, monkeypatch)

    assert desk.records() == f"{tmp_path}/mail/delivery.jsonl"
    assert desk.test == ("spooldeck", "mail", "test")
    assert desk.delivers


def test_what_lies_in_the_spool_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many mails, anew once one comes or goes; None where there is no spool."""
    desk = a_desk(tmp_path, monkeypatch)
    assert desk.heap() is None

    spool = MailSpool(str(tmp_path / "mailspool"), str(tmp_path))
    found = []
    for _ in range(2):
        ident = spool.fresh_id(time.time() - 3600)
        spool.keep(ident, "ana@example.com", "hello", Content("text", html=False))
        found.append(desk.heap())

    assert [heap and heap.mails for heap in found] == [1, 2]
    assert all(heap and 3599 <= heap.oldest <= 3700 for heap in found)


def test_why_a_barred_transport_could_not_send_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test mail may go by each: that another one is forced does not say whether it would."""
    desk = a_desk(tmp_path, monkeypatch, NFTBAN_MSMTP_BIN=str(tmp_path / "nowhere"))

    routes = desk.routes({})

    assert routes.use("msmtp") is Use.BARRED
    assert "nowhere" in routes.why_not["msmtp"]


def test_status_tells_of_the_spool_and_of_what_is_suspended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many mails, for how long, and what no task sends; who suspended what, why, and how it is
    resumed; in words and for programs.
    """
    desk = a_desk(tmp_path, monkeypatch)
    desk.suspend("curl", "the relay moves")
    spool = MailSpool(str(tmp_path / "mailspool"), str(tmp_path), lambda: time.time() - 7200)
    spool.keep(
        spool.fresh_id(time.time() - 7200), "ana@example.com", "hello", Content("text", html=False)
    )
    capsys.readouterr()

    code = main(["--root", str(tmp_path), "status"])
    said = capsys.readouterr().out
    main(["--root", str(tmp_path), "status", "--json"])
    told = json.loads(capsys.readouterr().out)["mail"]

    assert code == 1
    assert "mail      1 spooled, the oldest for 2 h 0 min" in said
    assert "mail      curl suspended by " in said
    assert "attention 1 spooled mail has no task: see `mail spool list`" in said
    assert ": the relay moves (spooldeck mail resume curl)" in said
    assert (told["spooled"], told["without_task"]) == (1, 1)
    assert [(stop["name"], stop["why"]) for stop in told["suspended"]] == [
        ("curl", "the relay moves")
    ]
