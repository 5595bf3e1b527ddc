"""Writes down what becomes of mail: log lines, counters, metrics, delivery records.

Nothing of it may stop a mail: what cannot be written is told to whoever looks after us.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from engine.logs.delivery_records import FAILED, SPOOLED, SUCCESS, Delivery, Records
from engine.logs.log_tail import contract_line
from engine.mail.send.mail_metrics import NONE, SHOWN, MailFigures, render
from engine.monitor.prometheus import Counters
from engine.system import files
from engine.text.safe import private, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INLINE = "inline"
"""The task of a mail that none has (contract, "Logging Format")."""

_LAST_SUCCESS, _LAST_FAILURE = "mail_last_success_ts", "mail_last_failure_ts"
_LAST_REASON = "mail_last_failure_reason"


class Places(NamedTuple):
    """Where what becomes of mail is written down. Paths are absolute."""

    log: str
    """mail.log"""
    metrics: str
    """mail.prom"""
    counters: str
    """The folder of the counter files, which the real program shares."""
    deliveries: str
    """delivery.jsonl"""
    most: int = 500
    """Delivery records that are kept."""
    root: str = ""
    """The data folder, below which no symbolic link is followed."""


class Ledger:
    """What becomes of mail, as it is written down for operators and for other programs."""

    def __init__(
        self,
        places: Places,
        complain: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`complain` is told, once each, what cannot be written."""
        self._places, self._complain, self._clock = places, complain, clock
        self._counters = Counters(places.counters, places.root, self._say)
        self._deliveries = Records(places.deliveries, places.most, places.root)
        self._said: set[str] = set()

    # ---- one mail

    def attempt(self, task_id: str, n: int, transport: str, to: str) -> None:
        """A transport is being asked, for the n-th time."""
        self._count(f"mail_attempts_{transport}")
        whom = f"transport={transport} to={private(to)}"
        self._log("INFO", f"MAIL_SEND_ATTEMPT task_id={task_id} attempt={n} {whom}")

    def accepted(self, task_id: str, n: int, transport: str, to: str, after: str = "") -> None:
        """The transport has the mail; `after` is what was said to the attempt before, made safe."""
        result = f"status=success transport={transport} attempt={n}"
        self._log("INFO", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._count(f"mail_success_{transport}")
        self._put(_LAST_SUCCESS, str(int(self._clock())))
        self._record(transport, to, SUCCESS, f"after {after}" if after else "")

    def attempt_failed(self, n: int, of: int, word: str) -> None:
        """The n-th of so many attempts failed, for a reason in one word."""
        self._log("WARN", f"MAIL_SEND_ATTEMPT failed attempt={n}/{of} error={word}")

    def retrying(self, seconds: float) -> None:
        """Another attempt follows after so many seconds."""
        self._log("DEBUG", f"Retrying in {seconds:g}s...")

    def gave_up(
        self, task_id: str, transport: str, n: int, word: str, to: str, text: str = ""
    ) -> None:
        """After n attempts no other follows now; `text` is what the transport said, made safe."""
        result = f"status=failed transport={transport} retries={n} last_error={word}"
        self._log("ERROR", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._count(f"mail_failures_{transport}")
        self._put(_LAST_FAILURE, str(int(self._clock())))
        self._put(_LAST_REASON, word)
        self._record(transport, to, FAILED, f"{word}: {text}" if text else word)

    def unsendable(self, task_id: str, n: int, word: str, to: str, text: str) -> None:
        """A mail is given up on without being tried again; n attempts were made before.

        `to` is "" where nobody knows whom it was for. The line names no transport: none was asked,
        and none is missing, which is what a reader takes `none` for.
        """
        result = f"status=failed retries={n} last_error={word}: {text}"
        self._log("ERROR", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._put(_LAST_FAILURE, str(int(self._clock())))
        self._put(_LAST_REASON, word)
        self._record(NONE, to, FAILED, f"{word}: {text}")

    def spooled(self, task_id: str, to: str, why: str, transport: str = "") -> None:
        """The mail lies in the spool and has a task."""
        self._log("INFO", f"Mail spooled to queue: {task_id} (recipient: {private(to)})")
        self._record(transport, to, SPOOLED, why)

    def unqueued(self, folder: str) -> None:
        """The mail lies in the spool, in that folder, and no task could be made for it."""
        self._log("WARN", f"Queue not available, mail saved to spool: {folder}")

    def no_transport(self, why: str = "") -> None:
        """Nothing was attempted: there is no way to send by; `why` where that is not as it always
        was, made safe.
        """
        self._log("ERROR", "No mail system available, spooling for later")
        if why:
            self._log("WARN", f"Nothing was attempted: {why}")

    def in_doubt(self, task_id: str, transport: str = "", since: float | None = None) -> None:
        """Log that an attempt has no known end, and another follows; `since` is when it began."""
        start = "?" if since is None else _utc(since)
        began = f"task_id={task_id} transport={transport or '?'} since={start}"
        why = "an earlier attempt ended without a result, the mail may arrive twice"
        self._log("WARN", f"MAIL_SEND_IN_DOUBT {began}: {why}")

    def already_sent(self, task_id: str, transport: str, when: float) -> None:
        """The mail was accepted by an attempt that began then, and is not sent again."""
        began = f"task_id={task_id} transport={transport or '?'} since={_utc(when)}"
        why = "an earlier attempt was accepted, the mail is not sent again"
        self._log("INFO", f"MAIL_SEND_ALREADY_SENT {began}: {why}")

    # ---- all together

    def publish(self, selected: str, depth: int, oldest: float) -> None:
        """Write the metrics: by which transport mail goes now, "" for none, how many mails wait in
        the spool, and for how many seconds the oldest does.
        """
        with self._told(self._places.metrics):
            figures = MailFigures(
                attempts=self._totals("attempts"),
                success=self._totals("success"),
                failures=self._totals("failures"),
                depth=depth,
                last_success=self._total(_LAST_SUCCESS),
                last_failure=self._total(_LAST_FAILURE),
                oldest_age=oldest,
                selected=selected,
            )
            self._make_folder_of(self._places.metrics)
            files.publish(self._places.metrics, render(figures), root=self._places.root)

    # ---- writing

    def _log(self, level: str, text: str) -> None:
        path = self._places.log
        with self._told(path):
            self._make_folder_of(path)
            files.append(path, contract_line(level, text, self._clock()), root=self._places.root)

    def _count(self, name: str) -> None:
        with self._told(f"{self._places.counters}/{name}"):
            self._counters.add(name)

    def _put(self, name: str, value: str) -> None:
        with self._told(f"{self._places.counters}/{name}"):
            self._counters.put(name, value)

    def _totals(self, what: str) -> dict[str, int]:
        return {t: self._total(f"mail_{what}_{t}") for t in SHOWN}

    def _total(self, name: str) -> int:
        with self._told(f"{self._places.counters}/{name}"):
            return self._counters.read(name)
        return 0  # the others are worth telling

    def _record(self, transport: str, to: str, result: str, reason: str = "") -> None:
        with self._told(self._places.deliveries):
            delivery = Delivery(self._clock(), transport or NONE, to, result, reason)
            self._deliveries.add(delivery)

    def _make_folder_of(self, path: str) -> None:
        os.close(files.reach(os.path.dirname(path), self._places.root, make=True))

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._say(f"{path}: {error.strerror or error}")

    def _say(self, text: str) -> None:
        # A log that is full is full for each of the lines of a mail.
        if text not in self._said:
            self._said.add(text)
            self._complain(shown(text))


def _utc(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
