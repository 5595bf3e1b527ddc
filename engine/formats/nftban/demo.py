"""NFTBan's demo places: a queue that drains and has dead tasks, and one behind a stuck lock.

The stuck lock was taken by the engine in a process that then hangs. Mail that the handler sends is
counted in the metrics of its place.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from engine import verbs
from engine.demo.keeper import ENDING_SIGNALS, HOUR, MAX_PENDING, MINUTE, DemoSettings
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.locks import queue_lock
from engine.mail.send.delivery_log import LAST_SUCCESS, DeliveryPaths, Ledger
from engine.model import Move, State, Task
from engine.monitor.prometheus import CounterFiles
from engine.monitor.throughput import HISTORY_SECONDS
from engine.store import Full
from engine.system import files
from engine.system.command_errors import print_error
from engine.values import NamedTuple

FLOWING, WEDGED = "flowing", "wedged"

WORK_ARGUMENTS = ("queue", "work", "--concurrency", "4")
"""Arguments of the command that works the draining queue."""

STUCK_AFTER_SECONDS = 3 * queue_lock.HEARTBEAT_SECONDS
"""Seconds without a heartbeat after which the demo's lock counts as stuck: the smallest value
allowed."""

STUCK_BACKLOG_SECONDS = 47 * MINUTE
"""Seconds before the demo's start over which the tasks behind the stuck lock were created."""


class TaskType(NamedTuple):
    """One type of task in the traffic, and how the demo's handler treats it."""

    kind: str
    description: str
    """`{n}` is a number; the error repeats it."""
    weight: int
    error: str = ""
    """Error text of the handler; "" if it never fails."""
    fails: str = ""
    """Shell condition for a failure now; `$here` is the demo's folder."""


REPAIRED_FILE = "geoip-updated"
"""A file in the demo's folder: once it exists, country lists can be applied again."""

_BUSY, _DOWN = '[ -e "$here/nft-busy" ]', '[ -e "$here/relay-down" ]'
_FIRST, _OLD = '[ "$TASK_RETRIES" -eq 0 ]', f'[ ! -e "$here/{REPAIRED_FILE}" ]'

TASK_TYPES = (
    TaskType("feeds_sync", "Feed enabled: spamhaus {n}", 30),
    TaskType("geoban_apply", "Apply country list {n}", 16),
    TaskType("mail_send", "Spooled mail to admin_ ok{n}", 14),
    TaskType("report", "Daily report {n}", 10),
    TaskType("feeds_sync", "Feed busy: dshield {n}", 6, "nft: set feed_{n} busy", _BUSY),
    TaskType(
        "mail_send", "Spooled mail to timeout{n}", 5, "connect_timeout mx{n}.example.net 25", _DOWN
    ),
    TaskType("mail_send", "Spooled mail to unknown{n}", 4, "550 5.1.1 user unknown u{n}", "true"),
    TaskType("mail_send", "Spooled mail to later{n}", 6, "421 4.7.0 try again later", _FIRST),
    TaskType("geoban_apply", "Apply outdated list {n}", 4, "geoip database is {n} days old", _OLD),
)
"""Task types. Five of them have failed, each with its own error. Two of these errors are over:
retried tasks succeed. One succeeds at its second attempt. One fails until an operator repairs its
cause, one always fails."""

_QUEUE_SECTION = """\
  backoff_base: 3
  backoff_max: 30
  max_pending: {max_pending}
  profile: contract
  stuck_threshold: {stuck:.0f}
  syslog: ""
"""

_HANDLERS_SECTION = """\
  # "geoip database is ... days old" ends with a file next to this one: touch {repaired}
  feeds_sync: {{command: [/bin/sh, {handler}], timeout: 30}}
  geoban_apply: {{command: [/bin/sh, {handler}], timeout: 30}}
  mail_send: {{command: [/bin/sh, {handler}], timeout: 30, rate: {{per_hour: 720, burst: 5}}}}
  report: {{command: [/bin/sh, {handler}], timeout: 30, concurrency: 2}}
"""

_HANDLE = """\
# Handler of the demo: the task's description decides the result.
here={here} place={flowing}
[ ! -e "$here/{wedged}/queue/work/$TASK_ID.task" ] || place={wedged}
log=$here/$place/log/mail.log
d=$TASK_DESCRIPTION n=$(printf %s "$TASK_DESCRIPTION" | tr -cd 0-9)
mail() {{
  [ "$TASK_TYPE" = mail_send ] || return 0
  printf '[%s] [%s] %s\\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$1" "$2" >> "$log"
}}
try=$((TASK_RETRIES + 1))
case $d in
  *timeout*|*ok*[05]) by=curl ;;
  *unknown*|*ok*[1379]) by=sendmail ;;
  *later*) by=msmtp ;;
  *) by=postfix ;;
esac
# Mail goes by no transport that an operator has suspended.
if [ "$TASK_TYPE" = mail_send ]; then
  for by in $by postfix sendmail curl msmtp none; do
    grep -qs '^ "'$by'":' "$here/$place/queue/.spooldeck/suspended" || break
  done
  if [ "$by" = none ]; then echo "421 every transport is suspended"; exit 1; fi
fi
mail INFO "MAIL_SEND_ATTEMPT task_id=$TASK_ID attempt=$try transport=$by to=admin@..."
sleep 0.2
case $d in
{cases}
esac
mail INFO "MAIL_SEND_RESULT task_id=$TASK_ID status=success transport=$by attempt=$try"
"""

_FAILS = """\
  {pattern}*) if {fails}; then echo "{error}"; mail ERROR "MAIL_SEND_RESULT task_id=$TASK_ID \
status=failed transport=$by retries=$try last_error={error}"; exit 1; fi;;"""

_MAIL_COUNTED = (
    ("attempts", rb"_ATTEMPT .* transport=(\w+)"),
    ("success", rb"status=success transport=(\w+)"),
    ("failures", rb"status=failed transport=(\w+)"),
)
"""Log pattern counted by each mail counter, by transport."""


def _spool(root: str) -> SpoolFolders:
    queue = f"{root}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")


DEATHS = 100
"""Most moments at which tasks died before the demo."""

RETRIED_SECONDS = 120.0
"""Seconds until a task of then was given up."""


class DemoQueues:
    """Both queues; the id of each task that is added is appended to the file `added`."""

    name, interval = f"{FLOWING} and {WEDGED}", 0.0
    work: Mapping[str, Sequence[str]] = {FLOWING: WORK_ARGUMENTS, WEDGED: ()}

    def make(self, settings: DemoSettings) -> Mapping[str, str]:
        """Create both queues with their tasks, the handler, and the process with the stuck lock."""
        folder, tasks, now = settings.folder, settings.tasks, settings.now
        self._roots = {name: f"{folder}/{name}" for name in (FLOWING, WEDGED)}
        self._random, self._count = random.Random(7), 0
        self._ledger, handler = f"{folder}/added", f"{folder}/handle.sh"
        for root in self._roots.values():
            make_spool(_spool(root), exclusive=True)
            for name in ("run", "log", "metrics", "mailspool"):
                files.make_folders(f"{root}/{name}")
        files.replace_file(handler, _script(folder).encode())
        max_pending = max(_spool("").max_pending, tasks)
        self._stores = {
            # Not durable: the demo need not survive a power cut, and a million fsyncs take minutes.
            name: NftbanStore(_spool(root)._replace(max_pending=max_pending, durable=False))
            for name, root in self._roots.items()
        }
        failing = [task_type for task_type in TASK_TYPES if task_type.error]
        for task_type in failing:
            each = -(-tasks // 5 // len(failing))
            until = now - RETRIED_SECONDS - HISTORY_SECONDS
            self._add(FLOWING, self._make_tasks(each, now - 6 * HOUR, until, [task_type]))
        self._bury(max_pending, now, tasks)
        self._add(FLOWING, self._make_tasks(tasks // 2, now - 6 * HOUR, now))
        self._add(WEDGED, self._make_tasks(tasks * 3 // 10, now - STUCK_BACKLOG_SECONDS, now))
        self._hanging = _hang(self._roots[WEDGED])
        return {
            "queue": _QUEUE_SECTION.format(max_pending=max_pending, stuck=STUCK_AFTER_SECONDS),
            "handlers": _HANDLERS_SECTION.format(handler=handler, repaired=REPAIRED_FILE),
        }

    def open(self) -> None:
        """Wait for the hanging process in a thread: it is reaped when an operator has ended it."""
        threading.Thread(target=os.waitpid, args=(self._hanging, 0), daemon=True).start()

    def add(self, now: float) -> None:
        """Add a task, each eighth behind the stuck lock; each third time write the mail metrics."""
        self._count += 1
        if self._count % 3 == 0:
            for root in self._roots.values():
                publish_mail_metrics(root)
        name = WEDGED if self._count % 8 == 0 else FLOWING
        if self._stores[name].count_tasks()[State.PENDING] < MAX_PENDING:
            self._add(name, self._make_tasks(1, now, now))

    def _make_tasks(
        self, number: int, since: float, until: float, types: Sequence[TaskType] = TASK_TYPES
    ) -> Iterator[Task]:
        weights = [task_type.weight for task_type in types]
        for task_type in self._random.choices(types, weights, k=number):
            created = self._random.uniform(since, until)
            description = task_type.description.format(n=self._random.randrange(10, 99))
            token = f"{self._random.getrandbits(32):08x}"
            yield verbs.enqueue(task_type.kind, created, token, description)

    def _add(self, name: str, tasks: Iterator[Task]) -> None:
        for outcome in self._stores[name].swap_all(Move(None, task) for task in tasks):
            if isinstance(outcome.error, Full):
                return
            if outcome.error is not None:
                raise outcome.error
            assert outcome.move.new is not None
            files.append(self._ledger, f"{outcome.move.new.id}\n".encode())

    def _bury(self, max_pending: int, now: float, limit: int) -> None:
        """Move up to `limit` pending tasks to the dead-letter queue, as if they had failed before
        the demo: some minutes after they were made, in up to `DEATHS` moments."""
        moment = [now]
        folders = _spool(self._roots[FLOWING])._replace(max_pending=max_pending, durable=False)
        store = NftbanStore(folders, clock=lambda: moment[0])
        taken = sorted(store.take(now, "demo", limit), key=attrgetter("created"))
        size = -(-len(taken) // DEATHS) or 1
        for some in (taken[at : at + size] for at in range(0, len(taken), size)):
            moment[0] = some[-1].created + RETRIED_SECONDS
            for outcome in store.swap_all(Move(task, _failed(task)) for task in some):
                if outcome.error is not None:
                    raise outcome.error


def _hang(root: str) -> int:
    """Fork a process that takes the lock and a task, then hangs; return its PID. It ignores
    SIGTERM, so that freeing the lock needs every recovery step. It ends with the keeper."""
    ready, report_ready = os.pipe()
    keeper_open, keeper_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(report_ready)
        os.close(keeper_open)
        os.read(ready, 1)
        os.close(ready)
        return pid
    try:
        os.close(keeper_end)
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        queue_lock.acquire_lock(f"{root}/run/queue.lock", STUCK_AFTER_SECONDS)
        store = NftbanStore(_spool(root))
        for _ in store.take(time.time(), str(os.getpid()), 1):
            pass
        os.write(report_ready, b".")
        os.read(keeper_open, 1)
    finally:
        os._exit(1)


def publish_mail_metrics(root: str) -> None:
    """Write mail.prom and its counter files from mail.log."""
    try:
        with open(f"{root}/log/mail.log", "rb") as log:
            text = log.read()
    except FileNotFoundError:
        return
    counters = CounterFiles(f"{root}/metrics/counters")
    for name, pattern in _MAIL_COUNTED:
        for transport, number in Counter(re.findall(pattern, text)).items():
            counter = f"mail_{name}_{transport.decode()}"
            if number != counters.read(counter):
                counters.put(counter, str(number))
    if sent := re.findall(rb"^\[(.{19})\].* status=success", text, re.MULTILINE):
        last = time.strptime(sent[-1].decode(), "%Y-%m-%d %H:%M:%S")
        counters.put(LAST_SUCCESS, f"{time.mktime(last):.0f}")
    metrics, counted = f"{root}/metrics/mail.prom", f"{root}/metrics/counters"
    places = DeliveryPaths(f"{root}/log/mail.log", metrics, counted, f"{root}/mail/delivery.jsonl")
    Ledger(places, print_error).publish("", 0, 0.0)


def _failed(task: Task) -> Task:
    words = task.description.rstrip("0123456789")
    (error,) = (s.error for s in TASK_TYPES if s.description.partition("{n}")[0] == words)
    return verbs.give_up_task(
        task._replace(attempts=3), error.format(n=task.description[len(words) :])
    )


def _script(here: str) -> str:
    cases = [
        _FAILS.format(
            pattern=task_type.description.partition("{n}")[0].replace(" ", "\\ "),
            error=task_type.error.replace("{n}", "$n"),
            fails=task_type.fails,
        )
        for task_type in TASK_TYPES
        if task_type.error
    ]
    return _HANDLE.format(
        here=shlex.quote(here), flowing=FLOWING, wedged=WEDGED, cases="\n".join(cases)
    )
