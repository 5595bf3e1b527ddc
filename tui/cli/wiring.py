"""From settings to working parts: the only place that puts stores, locks and handlers together."""

import os
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from engine import config, files, locks, metrics, policy
from engine.config import Config, Queue
from engine.handlers import Handler
from engine.logtail import contract_line
from engine.model import LockEvidence, State
from engine.store import Unavailable
from engine.stores.nftban import NftbanStore, Spool
from engine.worker import Limits, Services

EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_NOPERM, EX_CONFIG = 64, 69, 74, 77, 78
"""Exit codes beyond the contract's 0 to 3 (sysexits.h)."""


class Fail(Exception):
    """Ends the command with one line on standard error and an exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def fail(code: int, text: str) -> NoReturn:
    """End the command."""
    raise Fail(code, text)


class Setup(NamedTuple):
    """One queue as the command line and the configuration mean it."""

    config: Config
    queue: Queue

    @property
    def lock_path(self) -> str:
        """Contract: `${NFTBAN_RUN_DIR}/queue.lock`."""
        return f"{self.queue.run_dir}/queue.lock"

    @property
    def log_path(self) -> str:
        """The queue's own log."""
        return f"{self.queue.log_dir}/queue.log"

    def spool(self) -> Spool:
        """Where its task files lie."""
        queue = self.queue
        return Spool(
            queue.pending,
            queue.work,
            queue.dlq,
            mail_spool=queue.mail_spool,
            max_pending=queue.max_pending,
            durable=queue.durable,
        )

    def open(self) -> NftbanStore:
        """Its store.

        Raises:
            Unavailable: it cannot be reached.
        """
        queue = self.queue
        if not all(map(os.path.isdir, (queue.pending, queue.work, queue.dlq))):
            where = os.path.dirname(queue.pending)
            raise Unavailable(
                f"{queue.root}: no queue, expected the folders pending, work and dlq in {where} "
                f"(spooldeck init {queue.root} makes them)"
            )
        return NftbanStore(self.spool())

    def examine_lock(self) -> LockEvidence:
        """What its lock file says."""
        return locks.examine(self.lock_path, self.queue.stuck_threshold)

    def retry_policy(self) -> policy.RetryPolicy:
        """How it counts and waits."""
        return config.retry_policy(self.queue)

    def handled(self, kind: str) -> bool:
        """Whether a task of this kind would be claimed by a worker with this configuration."""
        from engine.handlers import CONTRACT_KINDS

        return kind in self.config.handlers or kind not in CONTRACT_KINDS

    def counters(self) -> metrics.Counters:
        """Its counter files."""
        return metrics.Counters(self.queue.counters)

    def limits(self) -> Limits | None:
        """Its token buckets; None where nothing is limited."""
        rates = {k: h.rate for k, h in self.config.handlers.items() if h.rate is not None}
        if self.queue.rate is not None:
            rates[""] = self.queue.rate
        if not rates:
            return None
        from engine.limits import Buckets

        return Buckets(f"{self.queue.run_dir}/queue.buckets", rates, time.time)

    def handlers(self) -> Mapping[str, Handler]:
        """What is run for each kind."""
        if not self.config.handlers:
            return {}
        from engine.handlers.command import Command

        # As root, what a task runs is run as the owner of the spool it came from.
        owner = files.owner_for(os.stat(self.queue.pending))
        return {
            kind: Command(handler.command, handler.timeout, owner)
            for kind, handler in self.config.handlers.items()
        }

    def make_folders(self) -> None:
        """Make what a worker writes into beside the spool.

        Raises:
            OSError: one could not be made.
        """
        for path in (
            self.queue.run_dir,
            self.queue.log_dir,
            self.queue.counters,
            os.path.dirname(self.queue.queue_metrics),
        ):
            files.make_folders(path)

    def log(self, level: str, text: str) -> None:
        """Add a line to the queue's log; a log that cannot be written stops nobody."""
        line = contract_line(level, text, time.time())
        try:
            files.append(self.log_path, line)
        except OSError as error:
            complain(f"{self.log_path}: {error.strerror}; not logged: {text}")

    def services(self, store: NftbanStore) -> Services:
        """What a worker on this queue is handed."""
        counters = self.counters()

        def publish() -> None:
            try:
                files.publish(self.queue.queue_metrics, self.metrics(store, time.time()))
            except OSError as error:
                complain(f"{self.queue.queue_metrics}: {error.strerror}")

        def tally(name: str) -> None:
            try:
                counters.add(name, 1)
            except OSError as error:
                complain(f"{self.queue.counters}/{name}: {error.strerror}; not counted")

        return Services(
            log=self.log,
            tally=tally,
            publish=publish,
            retire=lambda: self.retire(store),
            limits=self.limits(),
            slots={kind: h.concurrency for kind, h in self.config.handlers.items()},
            timeouts={kind: h.timeout for kind, h in self.config.handlers.items()},
        )

    def retire(self, store: NftbanStore) -> None:
        """Delete for good what has been dead for longer than the retention (contract)."""
        from engine.model import Move

        days = self.queue.retention_days
        dead = store.expired(time.time(), days, by_mtime=True)
        outcomes = store.swap_all(Move(task, None) for task in dead)
        gone = sum(outcome.error is None for outcome in outcomes)
        if gone:
            self.log("INFO", f"Auto-purged {gone} tasks from DLQ (older than {days:g} days)")

    def metrics(self, store: NftbanStore, now: float) -> bytes:
        """The text of queue.prom as of now."""
        counts, oldest = store.figures(now)
        gauges = metrics.QueueGauges(
            pending=counts[State.PENDING],
            working=counts[State.ACTIVE],
            dead=counts[State.DEAD],
            oldest_age=oldest,
        )
        counters = self.counters()
        totals = {name: counters.read(name) for name in metrics.QUEUE_COUNTERS}
        return metrics.render_queue(gauges, totals, now)


def complain(text: str) -> None:
    """One line for the operator, on standard error."""
    print(f"spooldeck: {text}", file=sys.stderr)
