"""Report the diagnostics of a message to its sender: a mail in router/, and `+` on their d lines.

The mail is staged with the lines that it reports; after a kill the tags of those lines decide
whether it is sent (`submit.Router`), so each diagnostic is reported once.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.formats.zmailer import diagnostics
from engine.formats.zmailer.diagnostics import Unreported
from engine.formats.zmailer.reports import (
    MAX_ENVELOPE_BYTES,
    ReportedMessage,
    ReportForm,
    ReportSettings,
    compose_report,
)
from engine.formats.zmailer.scheduler.message_outcomes import ReportRequest
from engine.formats.zmailer.spool import marks
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.spool.marks import Commit, LineChange
from engine.formats.zmailer.submit import POSTMAN, Router
from engine.system import files


class SenderReports:
    """Writes the reports of one spool."""

    def __init__(
        self,
        folders: PostofficeFolders,
        settings: ReportSettings,
        form: Callable[[str], ReportForm],
        form_name: Callable[[Unreported], str],
        log: Callable[[str], None],
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`form` reads the form with a name, when a report is made; `form_name` gives that for the
        first diagnostic of the report; `log` gets the lines for syslog, `note` those for the log
        of the scheduler."""
        self._folders, self._settings, self._log = folders, settings, log
        self._note = note
        self._form, self._form_name = form, form_name
        self._router = Router(folders.fd)

    def report(self, request: ReportRequest, now: float) -> None:
        """Report what no report has yet; durable on return.

        Raises:
            Unavailable: the mail cannot be written or sent now.
            Refused: there is no message file.
            OSError: it cannot be read now, or the lines cannot be marked.
        """
        opened, control = request.opened, request.control
        rows = list(diagnostics.find_unreported(request.data, control.recipients))
        if not rows:
            return
        with self._folders.open_message(opened.name) as message:
            facts = ReportedMessage(
                opened.name,
                request.data,
                control.sender,
                request.modified_ns,
                message.read(MAX_ENVELOPE_BYTES),
            )
            name = self._form_name(rows[0])
            report = compose_report(facts, rows, self._form(name), self._settings, now)
            if report is None:
                self._log(f"Nothing to report, ignorecount: {len(rows)}")
                if not facts.sender:
                    self._note(f"{opened.name}: a report could not be delivered, and is dropped")
                return
            lines = tuple(
                LineChange(at, diagnostics.UNREPORTED, diagnostics.REPORTED) for at in report.lines
            )
            commit = Commit(opened.name, lines, len(request.data))
            chunks = report.chunks(message)
            if report.folder == POSTMAN:
                self._router.submit(chunks, report.folder, report.suffix)
                _mark(opened.fd, lines)
            else:
                with self._router.stage(commit, chunks) as send:
                    _mark(opened.fd, lines)
                    send()
        self._log(f"Created '{name}' report on spoolid: {facts.spool_id}")


def _mark(fd: int, lines: tuple[LineChange, ...]) -> None:
    for one in lines:
        marks.write_mark(fd, one.offset, one.after)
    files.fsync(fd)
