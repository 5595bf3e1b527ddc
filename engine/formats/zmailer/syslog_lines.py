"""What the scheduler sends to syslog (facility mail, severity info), in the words of ZMailer 3.0.1.

Programs that read mail logs match these lines.
"""

from __future__ import annotations

from engine.system import syslog_handler

TAG = "scheduler"


def complete(spool_id: str, total: int, failed: int) -> str:
    """All recipients of a message have ended. The original program always has 0 failed."""
    return f"{spool_id}: complete (total {total} recipients, {failed} failed)"


def report_created(spool_id: str, form: str) -> str:
    """A report was given to the router."""
    return f"Created '{form}' report on spoolid: {spool_id}"


def nothing_to_report(ignored: int) -> str:
    """No sender asked for the diagnostics of a message."""
    return f"Nothing to report, ignorecount: {ignored}"


def killed(spool_id: str, name: str) -> str:
    """An operator has removed a message; `name` is its control file."""
    return f"{spool_id}: {name} killed"


def send(path: str, text: str, now: float) -> bool:
    """Send a line to the syslog socket at `path`; True if it was accepted. Never waits."""
    return syslog_handler.send_message(
        path, "INFO", text, now=now, tag=TAG, facility=syslog_handler.MAIL
    )
