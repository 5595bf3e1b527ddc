"""Demo places with live traffic: a queue that drains, one behind a stuck lock, and other formats.

Nothing is faked: the engine adds and claims the tasks, real workers run real programs, and the
stuck lock was taken by the engine in a process that then hangs. A keeper process controls it all
until the process that started it exits; when the keeper has ended, for any reason, its workers end
and the demo's folder is deleted.

The two queues are in the contract's format and made here; an `DemoPlace` is a place in another
format.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from engine import verbs
from engine.config.place_address import parse_address, places_folder
from engine.formats.nftban.store import NftbanStore, SpoolFolders, make_spool
from engine.locks import queue_lock
from engine.model import Move, State, Task
from engine.monitor.prometheus import CounterFiles
from engine.store import Full
from engine.system import files

FLOWING, WEDGED = "flowing", "wedged"
CONFIG_FILE = "spooldeck.yaml"
LOG_FILE = "demo.log"
"""In the demo's folder: what the keeper and the workers print, with the traceback of an error."""
READY, FAILED = "ready", "failed"
"""First words of a line of the keeper: followed by its places, or by the reason of a failure."""

WORK_ARGUMENTS = ("queue", "work", "--concurrency", "4")
"""Arguments of the command that works the draining queue."""

TASK_INTERVAL_SECONDS = 0.4
"""Seconds between two tasks added by the traffic."""

MAX_PENDING = 2000
"""Number of pending tasks at which the traffic pauses."""

STUCK_AFTER_SECONDS = 3 * queue_lock.HEARTBEAT_SECONDS
"""Seconds without a heartbeat after which the demo's lock counts as stuck: the smallest value
allowed.
"""

STUCK_BACKLOG_SECONDS = 47 * 60.0
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
"""Task types. Five of them have failed, each with its own error.

Two of these errors are over: retried tasks succeed. One succeeds at its second attempt. One fails
until an operator repairs its cause, one always fails.
"""

_CONFIG = """\
# Settings of the demo; delays are short, so that changes are visible soon.
# "geoip database is ... days old" ends with a file next to this one: touch {mended}
queue:
  backoff_base: 3
  backoff_max: 30
  max_pending: {most}
  profile: contract
  stuck_threshold: {stuck:.0f}
  syslog: ""
handlers:
  feeds_sync: {{command: [/bin/sh, {handle}], timeout: 30}}
  geoban_apply: {{command: [/bin/sh, {handle}], timeout: 30}}
  mail_send: {{command: [/bin/sh, {handle}], timeout: 30, rate: {{per_hour: 720, burst: 5}}}}
  report: {{command: [/bin/sh, {handle}], timeout: 30, concurrency: 2}}
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


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_MAX_MESSAGE_BYTES = 65536
"""Bytes of the keeper's lines that are read at a time: what a pipe holds."""

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent has ended."""

_MAIL_COUNTED = (
    ("attempts", rb"_ATTEMPT .* transport=(\w+)"),
    ("success", rb"status=success transport=(\w+)"),
    ("failures", rb"status=failed transport=(\w+)"),
)
"""Log pattern counted by each mail counter, by transport."""


class DemoPlace(Protocol):
    """A further demo place, in another format."""

    @property
    def name(self) -> str:
        """Path below the demo's folder, or URL, without blanks; may change in `make`."""
        ...

    @property
    def work(self) -> Sequence[str]:
        """Arguments of the command that works it."""
        ...

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """Create it in the demo's folder, with tasks from before `now` (epoch seconds UTC).

        Returns its configuration: lines of YAML by section.
        """
        ...

    def open(self) -> None:
        """Start its other activity; called when all other processes are running."""
        ...

    def add(self, now: float) -> None:
        """Add some traffic; called every `TASK_INTERVAL_SECONDS` seconds."""
        ...


class Demo:
    """Context manager that starts the keeper process, and with it the whole demo."""

    def __init__(
        self,
        tasks: int,
        keep: str,
        program: Sequence[str],
        keeper: str = "engine.formats.nftban.demo",
    ) -> None:
        """`program` is the command line that works a place, after `--config F --root D` and a
        subcommand are added.

        `keep` names a folder for the places that is not deleted; "": a temporary one. `keeper` is
        the module run as the keeper: it calls `main`.
        """
        self.folder = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix="spooldeck-demo-")
        self._stays = bool(keep)
        self._argv = [
            *(sys.executable, "-P", "-m", keeper, self.folder, str(tasks)),
            *("keep" if keep else "leave-nothing", *program),
        ]
        self._keeper: subprocess.Popen[bytes] | None = None
        self._urls: list[str] = []
        self._messages = b""

    @property
    def config_path(self) -> str:
        """Path of the configuration file."""
        return f"{self.folder}/{CONFIG_FILE}"

    def wait_for_places(self, say: Callable[[str], None] = lambda _: None) -> list[str]:
        """Wait for the places and return their paths; `say` gets a line for each step until then.

        Raises:
            OSError: they could not be created.
        """
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        for line in keeper.stdout:
            word, _, rest = line.decode().strip().partition(" ")
            if word == READY:
                os.set_blocking(keeper.stdout.fileno(), False)
                self._urls = [name for name in rest.split() if "://" in name]
                return [_address(self.folder, name) for name in rest.split()]
            if word == FAILED:
                raise self._failure(rest)
            say(f"{word} {rest}")
        raise self._failure("its process ended")

    def _failure(self, reason: str) -> OSError:
        return OSError(f"the demo could not be set up in {self.folder}: {reason}")

    def trouble(self) -> str:
        """What failed last, or how the keeper ended by itself; "" for nothing. Does not block."""
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        code = keeper.poll()  # before the pipe: its last words are there once it has ended
        with contextlib.suppress(BlockingIOError):
            self._messages += os.read(keeper.stdout.fileno(), _MAX_MESSAGE_BYTES)
        whole = self._messages.rpartition(b"\n")[0]
        self._messages = self._messages[whole.rfind(b"\n") + 1 :]  # from the last whole line on
        last = whole.rpartition(b"\n")[2].decode("utf-8", "replace").partition(" ")[2]
        if code is None:
            return f"the demo: {last} ({self.folder}/{LOG_FILE})" if last else ""
        reason = last if code > 0 else ""  # an error's; a signal leaves no words
        return f"the demo's keeper ended: {reason or _describe_exit(keeper)}"

    def last_log_lines(self, most: int = 20) -> list[str]:
        """The last lines of the log, which is deleted with the folder; [] if it is gone."""
        try:
            with open(f"{self.folder}/{LOG_FILE}", encoding="utf-8", errors="replace") as log:
                return log.read().splitlines()[-most:]
        except OSError:
            return []

    def __enter__(self) -> Demo:
        try:
            files.make_folders(self.folder)
            log = open(f"{self.folder}/{LOG_FILE}", "ab")
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error
        with log:
            self._keeper = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # `trouble` reads what comes after the lines that are read here
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        keeper = self._keeper
        if keeper is not None:
            assert keeper.stdout is not None
            os.set_blocking(keeper.stdout.fileno(), True)
            # Closes its standard input; its standard output ends with the last of its processes.
            keeper.communicate()
        for url in self._urls:
            # What our workers keep for a server that ends with the demo, below the user's state.
            place = places_folder(parse_address(url), os.environ, os.geteuid())
            shutil.rmtree(place, ignore_errors=True)
        if not self._stays:
            # Remains of a killed keeper, or files that the console wrote later.
            shutil.rmtree(self.folder, ignore_errors=True)


# ---- the keeper, a process of its own


def main(exhibits: Sequence[DemoPlace] = ()) -> None:
    """Run as the keeper process, with the arguments from `Demo`."""
    folder, tasks, leave, *program = sys.argv[1:]
    try:
        run_keeper(folder, int(tasks), leave == "keep", program, exhibits)
    except BaseException as error:
        _say(FAILED, _describe(error))
        raise


def _describe(error: BaseException) -> str:
    """One line about an error."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else repr(error)
    return " ".join(text.split())


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    """How a process ended."""
    code = process.returncode
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _say(*words: str) -> None:
    """Write a line to the process that started the demo."""
    os.write(1, f"{' '.join(words)}\n".encode("utf-8", "replace"))


def run_keeper(
    folder: str, tasks: int, leave: bool, program: Sequence[str], exhibits: Sequence[DemoPlace] = ()
) -> None:
    """Set the demo up, add traffic until standard input ends, then end all processes."""
    for number in _ENDING:
        # Only the end of standard input ends the keeper. The signals are caught, not ignored:
        # child processes would inherit ignored signals.
        signal.signal(number, lambda *_: None)
    alive = -1 if leave else _clear_after(folder)
    now = time.time()
    configuration: list[Mapping[str, str]] = []
    for exhibit in exhibits:
        _say("making", exhibit.name)
        configuration.append(exhibit.make(folder, now))
    _say("making", FLOWING, "and", WEDGED)
    traffic = TrafficGenerator(folder, exhibits)
    traffic.create(tasks, configuration)
    hanging = _hang(f"{folder}/{WEDGED}")  # first: its lock is stuck after a while
    _say("starting workers")
    working = ((exhibit.name, exhibit.work) for exhibit in exhibits if exhibit.work)
    worked = ((FLOWING, WORK_ARGUMENTS), *working)
    here = [*program, "--config", f"{folder}/{CONFIG_FILE}", "--root"]
    workers = {
        name: start_process([*here, _address(folder, name), *work], alive) for name, work in worked
    }
    try:
        for exhibit in exhibits:
            exhibit.open()
        places = (FLOWING, WEDGED, *(exhibit.name for exhibit in exhibits))
        _say(READY, *places)
        traffic.run(hanging, workers)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # ended and waited for
            signal.pidfd_send_signal(hanging, signal.SIGKILL)
            os.waitid(os.P_PIDFD, hanging, os.WEXITED)
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _clear_after(folder: str) -> int:
    """Fork a process that deletes the folder once all copies of the descriptor are closed: by the
    keeper, which may be killed, and by the workers, which may still be writing there.
    """
    ended, alive = os.pipe()
    if os.fork():
        os.close(ended)
        return alive
    try:
        os.close(alive)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        os.read(ended, 1)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _address(folder: str, name: str) -> str:
    """A place of the demo: below its folder, unless its name is a URL."""
    return name if "://" in name else f"{folder}/{name}"


def start_process(argv: Sequence[str], alive: int = -1) -> subprocess.Popen[bytes]:
    """Start a worker or server that gets SIGTERM when the keeper ends."""
    prctl, keeper = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:  # it has ended already: no signal will come
            os._exit(1)

    # It writes to the log, and keeps the keeper's standard output open: that ends with the last of
    # all processes.
    output = os.dup(1)
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            pass_fds=(output,) if alive < 0 else (output, alive),
            preexec_fn=bind,
        )
    finally:
        os.close(output)


def _hang(root: str) -> int:
    """Fork a process that takes the lock and a task, then hangs; return its pidfd.

    It ignores SIGTERM, so that freeing the lock needs every recovery step. It ends with the keeper.
    """
    ready, report_ready = os.pipe()
    keeper_open, keeper_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(report_ready)
        os.close(keeper_open)
        os.read(ready, 1)
        os.close(ready)
        return os.pidfd_open(pid)
    try:
        os.close(keeper_end)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        queue_lock.acquire_lock(f"{root}/run/queue.lock", STUCK_AFTER_SECONDS)
        store = NftbanStore(_spool(root))
        for _ in store.take(time.time(), str(os.getpid()), 1):
            pass
        os.write(report_ready, b".")
        os.read(keeper_open, 1)

    finally:
        os._exit(1)


def _spool(root: str) -> SpoolFolders:
    queue = f"{root}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")


class TrafficGenerator:
    """Adds tasks, and appends the id of each queued task to the file `added`."""

    def __init__(self, folder: str, exhibits: Sequence[DemoPlace] = ()) -> None:
        self._folder, self._exhibits = folder, exhibits
        self._random = random.Random(7)
        self._ledger = f"{folder}/added"

    def create(self, tasks: int, said: Sequence[Mapping[str, str]] = ()) -> None:
        """Create both queues, the handler and the configuration, and the tasks from before the
        start.

        `said` is further configuration: lines of YAML by section.
        """
        for name in (FLOWING, WEDGED):
            root = f"{self._folder}/{name}"
            make_spool(_spool(root), exclusive=True)
            for folder in ("run", "log", "metrics", "mailspool"):
                files.make_folders(f"{root}/{folder}")
        handle, most = f"{self._folder}/handle.sh", max(_spool("").max_pending, tasks)
        files.replace_file(handle, _script(self._folder).encode())
        config = _CONFIG.format(
            handle=handle, mended=REPAIRED_FILE, stuck=STUCK_AFTER_SECONDS, most=most
        ) + _sections(said)
        files.replace_file(f"{self._folder}/{CONFIG_FILE}", config.encode())
        self._stores = {
            # Not durable: the demo need not survive a power cut, and a million fsyncs take minutes.
            name: NftbanStore(
                _spool(f"{self._folder}/{name}")._replace(max_pending=most, durable=False)
            )
            for name in (FLOWING, WEDGED)
        }
        now = time.time()
        failing = [sort for sort in TASK_TYPES if sort.error]
        for sort in failing:
            each = -(-tasks // 5 // len(failing))
            self._add(FLOWING, self._some(each, now - 6 * 3600, now, [sort]))
        self._bury(self._stores[FLOWING], now, tasks)
        self._add(FLOWING, self._some(tasks // 2, now - 6 * 3600, now))
        self._add(WEDGED, self._some(tasks * 3 // 10, now - STUCK_BACKLOG_SECONDS, now))

    def run(self, hanging: int, workers: Mapping[str, subprocess.Popen[bytes]]) -> None:
        """Add a task every `TASK_INTERVAL_SECONDS` seconds and write the mail metrics, until
        standard input ends.

        `hanging` is a child's pidfd; if it is ended from outside, it is reaped. `workers` are those
        of the places; the end of one is reported.
        """
        import select

        poll = select.poll()
        poll.register(0, select.POLLIN | select.POLLHUP)
        poll.register(hanging, select.POLLIN)
        count, reported = 0, set[str]()
        while 0 not in (ready := dict(poll.poll(1000 * TASK_INTERVAL_SECONDS))):
            if hanging in ready:
                poll.unregister(hanging)
                os.waitid(os.P_PIDFD, hanging, os.WEXITED)
            count += 1
            now = time.time()
            for name, worker in workers.items():
                if worker.poll() is not None and name not in reported:
                    reported.add(name)
                    _say(FAILED, f"the worker of {name} ended: {_describe_exit(worker)}")
            _try("traffic of the queues", self._add_one, count, now)
            for exhibit in self._exhibits:
                _try(f"traffic of {exhibit.name}", exhibit.add, now)
            if count % 3 == 0:
                for place in (FLOWING, WEDGED):
                    _try("mail metrics", publish_mail_metrics, f"{self._folder}/{place}")

    def _add_one(self, count: int, now: float) -> None:
        name = WEDGED if count % 8 == 0 else FLOWING
        if self._stores[name].count_tasks()[State.PENDING] < MAX_PENDING:
            self._add(name, self._some(1, now, now))

    def _some(
        self, number: int, since: float, until: float, sorts: Sequence[TaskType] = TASK_TYPES
    ) -> Iterator[Task]:
        weights = [sort.weight for sort in sorts]
        for sort in self._random.choices(sorts, weights, k=number):
            created = self._random.uniform(since, until)
            description = sort.description.format(n=self._random.randrange(10, 99))
            token = f"{self._random.getrandbits(32):08x}"
            yield verbs.enqueue(sort.kind, created, token, description)

    def _add(self, name: str, tasks: Iterator[Task]) -> None:
        for outcome in self._stores[name].swap_all(Move(None, task) for task in tasks):
            if isinstance(outcome.error, Full):
                return
            if outcome.error is not None:
                raise outcome.error
            assert outcome.move.new is not None
            files.append(self._ledger, f"{outcome.move.new.id}\n".encode())

    def _bury(self, store: NftbanStore, now: float, limit: int) -> None:
        """Move up to `limit` pending tasks to the dead-letter queue, as if they had failed before
        the demo.
        """
        taken = list(store.take(now, "demo", limit))
        for outcome in store.swap_all(Move(task, _failed(task)) for task in taken):
            if outcome.error is not None:
                raise outcome.error


def _try(name: str, act: Callable[..., None], *arguments: object) -> None:
    """Do one act of the traffic; if it fails, report it, log the traceback, and go on.

    Any error: it must not end the other places and their workers.
    """
    try:
        act(*arguments)
    except Exception as error:
        _say(FAILED, f"{name}: {_describe(error)}")
        with contextlib.suppress(OSError):  # the disk is full: the line above is shown
            sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {name}\n")
            traceback.print_exc()


def publish_mail_metrics(root: str) -> None:
    """Write mail.prom and its counter files from mail.log, in the real program's format.

    Other writers of mail.prom, such as the command that suspends a transport, read the counter
    files.
    """
    try:
        with open(f"{root}/log/mail.log", "rb") as log:
            text = log.read()
    except FileNotFoundError:
        return
    sent = re.findall(rb"^\[(.{19})\].* status=success", text, re.MULTILINE)
    counters = CounterFiles(f"{root}/metrics/counters")
    form = "%Y-%m-%d %H:%M:%S"
    last = time.mktime(time.strptime(sent[-1].decode(), form)) if sent else 0
    lines = []
    for name, sign in _MAIL_COUNTED:
        metric = f"nftban_mail_send_{name}_total"
        lines += [f"# HELP {metric} Mail send {name}", f"# TYPE {metric} counter"]
        found = Counter(re.findall(sign, text))
        for transport in ("sendmail", "postfix", "curl", "msmtp", "mailx", "exim"):
            amount = found[transport.encode()]
            lines.append(f'{metric}{{transport="{transport}"}} {amount}')
            if amount != counters.read(f"mail_{name}_{transport}"):
                counters.put(f"mail_{name}_{transport}", str(amount))
        lines.append("")
    stamp = "nftban_mail_last_success_timestamp"
    lines += [f"# HELP {stamp} Last successful send", f"# TYPE {stamp} gauge"]
    lines.append(f"{stamp} {last:.0f}")
    files.replace_file(f"{root}/metrics/mail.prom", ("\n".join(lines) + "\n").encode())


def _sections(said: Sequence[Mapping[str, str]]) -> str:
    """Render YAML, with the lines of each section merged."""
    found: dict[str, str] = {}
    for one in said:
        for section, lines in one.items():
            found[section] = found.get(section, "") + lines
    handlers = found.pop("handlers", "")  # the last section of `_CONFIG`
    return handlers + "".join(f"{section}:\n{lines}" for section, lines in found.items())


def _failed(task: Task) -> Task:
    """Return the task after its last failure, with the error of the demo's handler."""
    words = task.description.rstrip("0123456789")
    (error,) = (s.error for s in TASK_TYPES if s.description.partition("{n}")[0] == words)
    return verbs.give_up_task(
        task._replace(attempts=3), error.format(n=task.description[len(words) :])
    )


def _script(here: str) -> str:
    cases = [
        _FAILS.format(
            pattern=sort.description.partition("{n}")[0].replace(" ", "\\ "),
            error=sort.error.replace("{n}", "$n"),
            fails=sort.fails,
        )
        for sort in TASK_TYPES
        if sort.error
    ]
    return _HANDLE.format(
        here=shlex.quote(here), flowing=FLOWING, wedged=WEDGED, cases="\n".join(cases)
    )


if __name__ == "__main__":
    main()
