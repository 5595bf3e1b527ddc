"""Delivery reports: who gets one, and that programs can read it."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import NamedTuple, cast

from engine.formats.zmailer import reports
from engine.formats.zmailer.diagnostics import (
    Unreported,
    find_unreported,
    format_diagnostic,
    is_wanted,
    timeout,
)
from engine.formats.zmailer.reports import ReportForm, ReportSettings
from engine.formats.zmailer.scheduler.clauses import ClauseTable, find_form
from engine.formats.zmailer.spool.control_file import ControlFile, Diagnostic, parse_control_file
from engine.formats.zmailer.spool.scheduler_conf import parse_conf
from tests.tables import each
from tests.zmailer_spool import FIRST, Spool, recipient

NOW = 1_795_170_900.0
SETTINGS = ReportSettings("mta.example")
FORM = reports.parse_form(
    b"HDR From: The Post Office <postmaster>\nADR Cc: Managers <postoffice>\n"
    b"SUB Subject: Delivery reports\n\nThis is a form.\n"
)
BODY = b"external\nFrom: a@b.example\nSubject: x\n\nall of it\n"


class ReadMessage(NamedTuple):
    """A control file with a recipient that failed."""

    data: bytes
    control: ControlFile

    def unreported(self, more: bytes = b"") -> list[Unreported]:
        """Its rows to report, with further lines."""
        return list(find_unreported(self.data + more, self.control.recipients))

    def compose(
        self,
        form: ReportForm = FORM,
        settings: ReportSettings = SETTINGS,
        rows: list[Unreported] | None = None,
    ) -> reports.DeliveryReport | None:
        """The report of all that is unreported, or of some rows."""
        message = reports.ReportedMessage(
            "1001", self.data, self.control.sender, FIRST * 10**9, BODY
        )
        return reports.compose_report(message, rows or self.unreported(), form, settings, NOW)


def entry_of(root: Path, dsn: str = "", more: str = "", sender: str = "a@b.example") -> ReadMessage:
    """A message with a recipient that failed."""
    spool = Spool(root).make()
    path = spool.put(1001, recipient(), dsn)
    text = path.read_text().replace("o 10", "o 39").replace("s local", f"{more}s local")
    if not sender:
        text = text.replace("s local", "s error")
    at = text.index("\nr ") + 1
    notary = "c@d.example\1failed\0015.1.1\1smtp; 550 no\1dns; mx.example\1smtp[7]"
    path.write_text(f"{text}d {at}:-1:-1::{NOW:.0f}\t{notary}\t\r<<- RCPT\r->> 550 no\x1b[2J\n")
    data = path.read_bytes()
    return ReadMessage(data, parse_control_file(data))


def parsed(report: reports.DeliveryReport | None) -> tuple[str, EmailMessage[str, str]]:
    """The envelope, and the mail as a program reads it."""
    assert report is not None
    envelope, _, head = report.head.partition(b"env-end\n")
    body = b"" if report.body_offset is None else BODY[report.body_offset :]
    message = email.message_from_bytes(head + body + report.tail, policy=email.policy.default)
    assert isinstance(message, EmailMessage) and not message.defects
    return envelope.decode(), message


def test_a_report_is_what_rfc_3464_describes(tmp_path: Path) -> None:
    """Sender and form in the envelope; text, status with all fields, and the whole message."""
    dsn = "N NOTIFY=FAILURE ORCPT=rfc822;c+2Bx@d.example\n"
    envelope, message = parsed(entry_of(tmp_path, dsn, more="n ENVID=a+2Bb\n").compose())
    assert envelope == (
        "channel error\nerrormsg\ntodsn ORCPT=rfc822;a@b.example\nto <a@b.example>\n"
        "todsn ORCPT=rfc822;postoffice\nto <postoffice>\n"
    )
    subject = "Delivery reports [FAILED(1)]"
    assert (message["To"], message["Subject"]) == ("a@b.example", subject)
    assert message.get_content_type() == "multipart/report"
    assert message.get_param("report-type") == "delivery-status"
    text, status, original = cast(Iterator[EmailMessage], message.iter_parts())
    assert "This is a form." in text.get_content()
    answer = "<c@d.example>: ...\n        <<- RCPT\n        ->> 550 no\ufffd[2J"
    assert answer in text.get_content()
    of_message, of_recipient = cast(list[EmailMessage], status.get_payload())
    names = of_message["Reporting-MTA"], of_message["Original-Envelope-Id"]
    assert names == ("dns; mta.example", "a+b")
    assert dict(of_recipient.items()) == {
        "Original-Recipient": "rfc822;c+x@d.example",
        "Final-Recipient": "rfc822; c@d.example",
        "Action": "failed",
        "Status": "5.1.1",
        "Remote-MTA": "dns; mx.example",
        "Diagnostic-Code": "smtp; 550 no",
        "Last-Attempt-Date": "Fri, 20 Nov 2026 10:35:00 +0000",
        "X-ZTAID": "smtp[7]",
    }
    assert original.get_content_type() == "message/rfc822"
    assert b"Subject: a report\n\nall of it\n" in original.as_bytes()


def test_each_report_of_a_second_has_its_own_message_id(tmp_path: Path) -> None:
    """One that is made again after a kill has the same, so that readers drop the second."""
    entry = entry_of(tmp_path)
    (row,) = entry.unreported()
    other = row._replace(recipient=row.recipient._replace(offset=row.recipient.offset + 1))
    made = [entry.compose(rows=[one]) for one in (row, other, row)]
    heads = [one.head for one in made if one is not None]
    ids = [re.findall(rb'Message-ID: (\S+)|boundary="(\S+)"', head) for head in heads]
    assert ids[0] == ids[2]
    assert not {*ids[0]} & {*ids[1]}
    assert [len(group) for group in ids] == [2, 2, 2]


@each(
    ("dsn", "action", "expected"),
    [
        ("", "failed", True),
        ("", "delayed", False),
        ("", "delivered", False),
        ("NOTIFY=NEVER", "failed", False),
        ("NOTIFY=FAILURE,NEVER", "failed", False),
        ("notify=success,delay", "failed", False),
        ("NOTIFY=SUCCESS,DELAY", "delayed", True),
        ("ORCPT=x NOTIFY=SUCCESS", "relayed", True),
        ("NOTIFY=FAILURE", "no such action", True),
    ],
)
def test_the_sender_decides_what_is_reported(
    dsn: str, action: str, expected: bool, tmp_path: Path
) -> None:
    """NOTIFY of each recipient; failures by default. What has no action counts as failed."""
    (row,) = entry_of(tmp_path, f"N {dsn}\n").unreported()
    row = row._replace(diagnostic=Diagnostic(NOW, (b"", action.encode(), b"4.2.2 x"), b""))
    assert (is_wanted(row), row.address) == (expected, b"c@d.example")
    assert row.status[0] == {"failed": "5", "delayed": "4"}.get(row.action, "2")


def test_the_sender_decides_how_much_is_returned(tmp_path: Path) -> None:
    """RET first, then option -n of the scheduler."""
    for number, (more, returns_body, kind) in enumerate(
        (
            ("R RET=HDRS\n", True, "text/rfc822-headers"),
            ("R FULL\n", False, "message/rfc822"),
            ("", False, "text/rfc822-headers"),
        )
    ):
        settings = SETTINGS._replace(returns_body=returns_body)
        report = entry_of(tmp_path / str(number), more=more).compose(settings=settings)
        _, message = parsed(report)
        assert [part.get_content_type() for part in message.iter_parts()][2] == kind
        assert report and (report.body_offset is not None) == (kind == "message/rfc822")


def test_a_report_about_a_report_goes_to_the_form_s_recipients_only(tmp_path: Path) -> None:
    """Without any it is kept in postman/ if that is set, else dropped; no NOTIFY stops it."""
    entry = entry_of(tmp_path, "N NOTIFY=NEVER\n", sender="")
    double = entry.compose()
    kept = entry.compose(ReportForm(), SETTINGS._replace(keeps_double_faults=True))
    assert double is not None and double.recipients == (b"postoffice",)
    assert parsed(double)[1]["Subject"] == "Double-fault: Delivery reports [FAILED(1)]"
    assert kept is not None and (kept.folder, kept.suffix) == ("postman", ":error-on-error")
    assert entry.compose(ReportForm()) is None


def test_the_clause_names_the_form_of_a_report(tmp_path: Path) -> None:
    """Its deliveryform, or its expiryform if the recipient is too old; `delivery` without them."""
    (row,) = entry_of(tmp_path).unreported()
    late = row._replace(diagnostic=timeout(row.recipient, None, "3 days", NOW, is_final=True))
    for words, delivery, expiry in (
        ("", "delivery", "delivery"),
        ("deliveryform=no", "no", "no"),
        ("expiryform=late", "delivery", "late"),
        ("deliveryform=no expiryform=late", "no", "late"),
    ):
        table = ClauseTable(parse_conf(f"smtp/* command=smtp {words}\n", {}))
        assert (find_form(table, row), find_form(table, late)) == (delivery, expiry)


def test_an_expired_recipient_is_reported_as_failed_after_any_notice(tmp_path: Path) -> None:
    """The last diagnostic said delayed: the new one says failed, 5.4.7, and keeps its host and its
    text. It can be written as a d line and read again, with the offsets of headers and DSN."""
    entry = entry_of(tmp_path, "N NOTIFY=FAILURE\n")
    (row,) = entry.unreported()
    last = Diagnostic(1.0, (b"c@d.example", b"delayed", b"4.4.1", b"", b"dns; mx"), b"try\nlater")
    final = timeout(row.recipient, last, "20 secs", NOW, is_final=True)
    line = format_diagnostic(entry.data, row.recipient.offset, final)
    (_, again) = entry.unreported(line)
    assert (is_wanted(again), again.action, again.status) == (True, "failed", "5.4.7")
    assert again.diagnostic.notary[4] == b"dns; mx"
    assert b"expired after 20 secs, problem was:\rtry later" in again.diagnostic.message
    _, headers, dsn = line[2:].split(b":")[:3]
    assert entry.data[int(headers) :].startswith(b"From:")
    assert entry.data[int(dsn) :].startswith(b"NOTIFY=")
    assert timeout(row.recipient, None, "1h", NOW, is_final=False).notary[1] == b"delayed"


def test_reported_lines_are_not_reported_again(tmp_path: Path) -> None:
    """The tag of a d line decides; the report names the lines that it has."""
    entry = entry_of(tmp_path)
    report = entry.compose()
    assert report is not None
    (line,) = report.lines
    again = bytearray(entry.data)
    again[line + 1 : line + 2] = b"+"
    assert entry._replace(data=bytes(again)).unreported() == []
    unknown = Unreported(-1, entry.control.recipients[0], Diagnostic(0, (), b""))
    assert unknown.status == "5.0.0"
