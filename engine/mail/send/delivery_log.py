"""Record what happens to mail: log lines, counters, metrics and delivery records.

A write error here never stops a mail: it is passed to `complain`.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.logs.delivery_records import (
    FAILED,
    RETRIED,
    SPOOLED,
    SUCCESS,
    Delivery,
    DeliveryRecords,
)
from engine.logs.log_line import format_log_line
from engine.monitor.prometheus import CounterFiles, add_place
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import hide_domain, safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

INLINE_TASK_ID = "inline"
"""The task id in log lines for a mail that has no task (contract, "Logging Format")."""

METRIC_TRANSPORTS = ("sendmail", "postfix", "curl", "msmtp", "mailx", "exim")
"""The transports in the metrics of the real program, in its order, installed or not."""

NONE_LABEL = "none"
"""The label of a missing transport."""

_METRICS = (
    ("send_attempts_total", "counter", "Total mail send attempts"),
    ("send_success_total", "counter", "Total successful mail sends"),
    ("send_failures_total", "counter", "Total failed mail sends"),
    ("spool_depth", "gauge", "Number of mails in retry spool"),
    ("last_success_timestamp", "gauge", "Unix timestamp of last successful send"),
    ("last_failure_timestamp", "gauge", "Unix timestamp of last failed send (A2a)"),
    ("spool_oldest_age_seconds", "gauge", "Age of the oldest spooled mail in seconds (A2a)"),
    ("transport_selected", "gauge", "Currently selected mail transport (1=selected) (A2a)"),
)
"""Name, type and description of the metrics of the real program in `mail.prom`."""

LAST_SUCCESS, LAST_FAILURE = "mail_last_success_ts", "mail_last_failure_ts"
LAST_REASON = "mail_last_failure_reason"
"""Counter files with other values: epoch seconds, and the word of a reason."""


class DeliveryPaths(NamedTuple):
    """Paths of the files that record deliveries; all absolute."""

    log: str
    """mail.log"""
    metrics: str
    """mail.prom"""
    counters: str
    """The folder of the counter files, shared with the real program."""
    deliveries: str
    """delivery.jsonl"""
    max_records: int = 500
    """Number of delivery records to keep."""
    root: str = ""
    """The data folder; below it no symbolic link is followed."""
    place_label: str = ""
    """The value of a label `place` in the metrics; "" for none."""


class Ledger:
    """Records each event of a mail: its log line, counters and delivery record; writes the metrics.
    Reports each error once."""

    def __init__(
        self,
        places: DeliveryPaths,
        complain: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`complain` receives each write error once."""
        self._places, self._complain, self._clock = places, complain, clock
        self._counters = CounterFiles(places.counters, places.root, self._report_once)
        self._deliveries = DeliveryRecords(places.deliveries, places.max_records, places.root)
        self._complaints: set[str] = set()

    def publish(self, selected: str, depth: int, oldest: float) -> None:
        """Write the metrics file. `selected` is the transport for the next mail, "" for none.
        `depth` is the number of mails in the spool, `oldest` the age of the oldest in seconds."""
        with self._reporting_errors(self._places.metrics):
            values: tuple[int | Mapping[str, int], ...] = (
                *(self._totals(what) for what in ("attempts", "success", "failures")),
                depth,
                self._total(LAST_SUCCESS),
                self._total(LAST_FAILURE),
                max(0, int(oldest)),
                {selected or NONE_LABEL: 1},
            )
            self._make_folder_of(self._places.metrics)
            text = add_place(_render_metrics(values), self._places.place_label)
            files.replace_file(self._places.metrics, text, root=self._places.root)

    def _log(self, level: str, text: str) -> None:
        path = self._places.log
        with self._reporting_errors(path):
            self._make_folder_of(path)
            files.append(path, format_log_line(level, text, self._clock()), root=self._places.root)

    def _count(self, name: str) -> None:
        with self._reporting_errors(f"{self._places.counters}/{name}"):
            self._counters.add(name)

    def _store_value(self, name: str, value: str) -> None:
        with self._reporting_errors(f"{self._places.counters}/{name}"):
            self._counters.put(name, value)

    def _totals(self, what: str) -> dict[str, int]:
        return {t: self._total(f"mail_{what}_{t}") for t in METRIC_TRANSPORTS}

    def _total(self, name: str) -> int:
        with self._reporting_errors(f"{self._places.counters}/{name}"):
            return self._counters.read(name)
        return 0  # the other figures are still worth publishing

    def _record(self, transport: str, to: str, result: str, reason: str = "") -> None:
        with self._reporting_errors(self._places.deliveries):
            delivery = Delivery(self._clock(), transport or NONE_LABEL, to, result, reason)
            self._deliveries.add(delivery)

    def _make_folder_of(self, path: str) -> None:
        os.close(files.open_dir_path(os.path.dirname(path), self._places.root, make=True))

    @contextmanager
    def _reporting_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._report_once(f"{path}: {error_text(error)}")

    def _report_once(self, text: str) -> None:
        # If the disk is full, each log line of a mail fails with the same text.
        if text not in self._complaints:
            self._complaints.add(text)
            self._complain(safe_line(text))

    def log_attempt(self, task_id: str, n: int, transport: str, to: str) -> None:
        """Record the start of the n-th attempt."""
        self._count(f"mail_attempts_{transport}")
        whom = f"transport={transport} to={hide_domain(to)}"
        self._log("INFO", f"MAIL_SEND_ATTEMPT task_id={task_id} attempt={n} {whom}")

    def log_accepted(self, task_id: str, n: int, transport: str, to: str, after: str = "") -> None:
        """Record that the transport accepted the mail. `after` is the error of the previous
        attempt, safe to show; "" for none."""
        result = f"status=success transport={transport} attempt={n}"
        self._log("INFO", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._count(f"mail_success_{transport}")
        self._store_value(LAST_SUCCESS, str(int(self._clock())))
        self._record(transport, to, SUCCESS, f"after {after}" if after else "")

    def log_failed_attempt(self, n: int, of: int, word: str) -> None:
        """Record that attempt `n` of at most `of` failed, with a reason of one word."""
        self._log("WARN", f"MAIL_SEND_ATTEMPT failed attempt={n}/{of} error={word}")

    def log_retry(self, seconds: float) -> None:
        """Record that the next attempt follows after so many seconds."""
        self._log("DEBUG", f"Retrying in {seconds:g}s...")

    def log_failure(
        self, task_id: str, transport: str, n: int, word: str, to: str, text: str = ""
    ) -> None:
        """Record that no further attempt follows after `n` attempts. `text` is the answer of the
        transport, safe to show."""
        result = f"status=failed transport={transport} retries={n} last_error={word}"
        self._log("ERROR", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._count(f"mail_failures_{transport}")
        self._store_value(LAST_FAILURE, str(int(self._clock())))
        self._store_value(LAST_REASON, word)
        self._record(transport, to, FAILED, f"{word}: {text}" if text else word)

    def log_unsendable(
        self, task_id: str, n: int, word: str, to: str, text: str, *, is_repeated: bool = False
    ) -> None:
        """Record a failure that no transport caused and that is not retried; `n` attempts came
        before. If it `is_repeated`, its delivery record exists.

        `to` is "" if the recipient is unknown. The line differs on purpose from that of a transport
        that failed: it has no `transport=`, as readers take `none` for a missing one, and none is
        missing; and in the last field the text follows the word, as it is stored nowhere else if
        the mail is not kept.
        """
        result = f"status=failed retries={n} last_error={word}: {text}"
        self._log("ERROR", f"MAIL_SEND_RESULT task_id={task_id} {result}")
        self._store_value(LAST_FAILURE, str(int(self._clock())))
        self._store_value(LAST_REASON, word)
        if not is_repeated:
            self._record(NONE_LABEL, to, FAILED, f"{word}: {text}")

    def log_spooled(self, task_id: str, to: str, why: str, transport: str = "") -> None:
        """Record that the mail is in the spool and has a task."""
        self._log("INFO", f"Mail spooled to queue: {task_id} (recipient: {hide_domain(to)})")
        self._record(transport, to, SPOOLED, why)

    def record_retry(self, to: str) -> None:
        """Record that an operator retries a mail that was refused to this recipient."""
        self._record(NONE_LABEL, to, SPOOLED, RETRIED)

    def log_unqueued(self, folder: str) -> None:
        """Record that the mail is in this spool folder, but no task could be made for it."""
        self._log("WARN", f"Queue not available, mail saved to spool: {folder}")

    def log_no_transport(self, why: str = "") -> None:
        """Record that no transport can be used and nothing was attempted. `why` is logged in a
        second line if there is more to it than a missing setup; safe to show."""
        self._log("ERROR", "No mail system available, spooling for later")
        if why:
            self._log("WARN", f"Nothing was attempted: {why}")

    def log_unknown_result(
        self, task_id: str, transport: str = "", since: float | None = None
    ) -> None:
        """Record that an earlier attempt has an unknown result and another one follows. `since` is
        when the earlier one began, epoch seconds UTC."""
        start = "?" if since is None else _utc(since)
        began = f"task_id={task_id} transport={transport or '?'} since={start}"
        why = "an earlier attempt ended without a result, the mail may arrive twice"
        self._log("WARN", f"MAIL_SEND_IN_DOUBT {began}: {why}")

    def log_already_sent(self, task_id: str, transport: str, when: float) -> None:
        """Record that the mail is not sent again: an attempt that began at `when` was accepted."""
        began = f"task_id={task_id} transport={transport or '?'} since={_utc(when)}"
        why = "an earlier attempt was accepted, the mail is not sent again"
        self._log("INFO", f"MAIL_SEND_ALREADY_SENT {began}: {why}")


def _render_metrics(values: Sequence[int | Mapping[str, int]]) -> bytes:
    """The text of `mail.prom`: a value of each row of `_METRICS`, or one for each transport."""
    blocks = []
    for (name, kind, summary), value in zip(_METRICS, values, strict=True):
        name = f"nftban_mail_{name}"
        lines = [f"{name} {value}\n"]
        if not isinstance(value, int):
            lines = [f'{name}{{transport="{label}"}} {value[label]}\n' for label in value]
        blocks.append(f"# HELP {name} {summary}\n# TYPE {name} {kind}\n{''.join(lines)}")
    return "\n".join(blocks).encode("ascii")


def _utc(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
