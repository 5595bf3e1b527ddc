"""What the console gets to know about mail transports: real settings, files and transports."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.config import queue_config
from engine.formats.base.mail_controls import make_place_mail
from engine.formats.known_formats import setup_for
from engine.mail.message.content import Content
from engine.mail.send import spool_entry
from engine.mail.send.mail_spool import MailSpool
from engine.monitor.transport_health import TransportUse
from engine.operations.journal import Journal
from engine.places.place import PlaceMail
from engine.store import Unavailable
from tests.console_places import make_spool
from tests.programs import needs
from tui.cli import main

CURL = {"NFTBAN_SMTP_HOST": "127.0.0.1", "NFTBAN_MAIL_RECIPIENT": "admin@example.com"}
CURL |= {"NFTBAN_MAIL_METHOD": "curl"}
MakeMail: TypeAlias = Callable[..., PlaceMail]


@pytest.fixture
def make_mail_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeMail:
    """The transports of a place where only curl may send, and other variables."""
    make_spool(tmp_path, [])

    def make(**environ: str) -> PlaceMail:
        for name, value in {**CURL, **environ}.items():
            monkeypatch.setenv(name, value)
        settings = queue_config.Config()
        setup = setup_for(settings, str(tmp_path), environ, (f"{tmp_path}",))
        return make_place_mail(setup, ["spooldeck"])

    return make


def test_suspend_is_recorded_for_every_sender(tmp_path: Path, make_mail_of: MakeMail) -> None:
    """In the file that each sender reads, in the mail log and in the journal: who, what and why."""
    needs("curl")
    operator = make_mail_of()
    before = operator.routes(operator.suspended())
    assert operator.suspend("curl", "relay \x1b[31m moves") == ""
    after = operator.routes(operator.suspended())
    assert (before.selected, after.selected, after.is_waiting) == ("curl", "", True)
    assert (after.use("curl"), after.use("mailx")) == (TransportUse.SUSPENDED, TransportUse.BARRED)
    assert after.recipient == "admin@example.com"
    log = (tmp_path / "log" / "mail.log").read_text()
    assert "[INFO] Transport curl suspended by " in log
    assert log.endswith(": relay \ufffd[31m moves\n")
    (operation,) = Journal(f"{tmp_path}/queue/.spooldeck/journal").operations()
    values = {"control": "transport", "target": "curl", "value": "suspended"}
    assert dict(operation.intent.values) == {**values, "before": "not suspended"}
    assert (operation.intent.reason, operation.is_interrupted) == ("relay \ufffd[31m moves", False)
    with pytest.raises(Unavailable, match="another operator suspended curl first"):
        operator.suspend("curl", "again")
    assert operator.resume("curl") == ""
    assert operator.routes(operator.suspended()).selected == "curl"
    with pytest.raises(Unavailable, match="another operator resumed curl first"):
        operator.resume("curl")


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, make_mail_of: MakeMail) -> None:
    """A log is a warning; a broken list of suspensions and a wrong setting are errors."""
    operator = make_mail_of()
    (tmp_path / "log" / "mail.log").mkdir()
    assert "not logged in " in operator.suspend("curl", "")
    assert [*operator.suspended()] == ["curl"]
    (tmp_path / "queue" / ".spooldeck" / "suspended").write_text("{")
    with pytest.raises(Unavailable, match="suspended: "):
        operator.suspended()
    with pytest.raises(Unavailable, match="pigeon"):
        make_mail_of(NFTBAN_MAIL_METHOD="pigeon").routes({})


def test_the_settings_of_the_commands_count(tmp_path: Path, make_mail_of: MakeMail) -> None:
    """Where the records are, how a test mail is sent, and why a transport could not send."""
    operator = make_mail_of(NFTBAN_MSMTP_BIN=str(tmp_path / "nowhere"))
    routes = operator.routes({})
    assert operator.records() == (f"{tmp_path}/mail/delivery.jsonl", 500)
    assert operator.test_command == ("spooldeck", "mail", "test")
    assert operator.uses_transports
    assert routes.use("msmtp") is TransportUse.BARRED
    assert "nowhere" in routes.why_not["msmtp"]


def test_spooled_mails_are_counted(
    tmp_path: Path, make_mail_of: MakeMail, capsys: pytest.CaptureFixture[str]
) -> None:
    """Again once a mail comes; `status` has number, age and suspensions, also as JSON."""
    operator = make_mail_of()
    assert operator.backlog() is None
    spool = MailSpool(str(tmp_path / "mailspool"), str(tmp_path), lambda: time.time() - 7200)
    backlogs = []
    for _ in range(2):
        ident = spool_entry.new_id(time.time() - 7200)
        spool.store_mail(ident, "ana@example.com", "hello", Content("text", html=False))
        backlogs.append(operator.backlog())
    assert [heap and heap.mails for heap in backlogs] == [1, 2]
    assert all(heap and 7199 <= heap.oldest <= 7300 for heap in backlogs)

    operator.suspend("curl", "the relay moves")
    capsys.readouterr()
    assert main(["--root", str(tmp_path), "status"]) == 1
    output = capsys.readouterr().out
    for text in (
        "mail      2 spooled, the oldest for 2h00m",
        "mail      curl suspended by ",
        "attention 2 spooled mails have no task: see `mail spool list`",
        ": the relay moves (spooldeck mail resume curl)",
    ):
        assert text in output
    main(["--root", str(tmp_path), "status", "--json"])
    mail = json.loads(capsys.readouterr().out)["mail"]
    assert (mail["spooled"], mail["without_task"]) == (2, 2)
    stops = [(stop["name"], stop["why"]) for stop in mail["suspended"]]
    assert stops == [("curl", "the relay moves")]
