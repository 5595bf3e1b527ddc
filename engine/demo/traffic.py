"""Throw-away places with traffic: a queue that flows, one wedged behind a stuck lock, and more.

Nothing in them is painted: tasks are added and claimed by the engine, real workers handle them
with real programs, and the stuck lock was taken by the engine in a process that then hangs. A
keeper process holds it all together until whoever started it is gone; once it has ended, however
it did, its workers end, and what it made is cleared away.

The two queues are of the contract's format and made here; an `Exhibit` is a place in any other.
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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from engine import verbs
from engine.locks import queue_lock
from engine.model import Move, State, Task
from engine.monitor.prometheus import Counters
from engine.store import Full
from engine.stores.nftban import NftbanStore, SpoolFolders, make_spool
from engine.system import files

FLOWING, WEDGED = "flowing", "wedged"
CONFIG = "spooldeck.yaml"
READY, FAILED = "ready", "failed"
"""The first word of the keeper's last line: its places follow, or why there are none."""

WORK = ("queue", "work", "--concurrency", "4")
"""The words of the command that works the queue that flows."""

PACE = 0.4
"""Seconds between two tasks that the traffic adds."""

MOST = 2000
"""Pending tasks at which the traffic pauses."""

STUCK_AFTER = 90.0
"""Seconds without a heartbeat after which a lock of the demo is stuck: the least there is."""

WAITED = 47 * 60.0
"""Seconds over which the tasks behind the stuck lock came, before the demo starts."""


class Sort(NamedTuple):
    """One sort of task in the traffic: what it is, and what the demo's handler says to it."""

    kind: str
    description: str
    """`{n}` is a number; it comes back in the error."""
    weight: int
    error: str = ""
    """What the handler prints when it fails; "" when it never does."""
    fails: str = ""
    """What the shell is asked whether it fails now; `$here` is the demo's folder."""


MENDED = "geoip-updated"
"""A file in the demo's folder: once it is there, lists of countries can be applied again."""

_BUSY, _DOWN = '[ -e "$here/nft-busy" ]', '[ -e "$here/relay-down" ]'
_FIRST, _OLD = '[ "$TASK_RETRIES" -eq 0 ]', f'[ ! -e "$here/{MENDED}" ]'

SORTS = (
    Sort("feeds_sync", "Feed enabled: spamhaus {n}", 30),
    Sort("geoban_apply", "Apply country list {n}", 16),
    Sort("mail_send", "Spooled mail to admin_ ok{n}", 14),
    Sort("report", "Daily report {n}", 10),
    Sort("feeds_sync", "Feed busy: dshield {n}", 6, "nft: set feed_{n} busy", _BUSY),
    Sort(
        "mail_send", "Spooled mail to timeout{n}", 5, "connect_timeout mx{n}.example.net 25", _DOWN
    ),
    Sort("mail_send", "Spooled mail to unknown{n}", 4, "550 5.1.1 user unknown u{n}", "true"),
    Sort("mail_send", "Spooled mail to later{n}", 6, "421 4.7.0 try again later", _FIRST),
    Sort("geoban_apply", "Apply outdated list {n}", 4, "geoip database is {n} days old", _OLD),
)
"""Five of them have failed, each in words of its own.

What two of them failed of is over: run again, they succeed. One heals at its second attempt. One
fails until somebody mends what it needs, one whatever is done.
"""

_CONFIG = """\
# The demo's own settings; waits are short, so that there is something to see.
# What "geoip database is ... days old" needs is a file beside this one: touch {mended}
queue:
  backoff_base: 3
  backoff_max: 30
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
# What the demo runs for each task: it looks at the task's words and does as they say.
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

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when the one that started it has ended."""

_MAIL_COUNTED = (
    ("attempts", rb"_ATTEMPT .* transport=(\w+)"),
    ("success", rb"status=success transport=(\w+)"),
    ("failures", rb"status=failed transport=(\w+)"),
)
"""What each mail counter counts in the log, by transport."""


class Exhibit(Protocol):
    """A place in the demo besides the two queues, in a format of its own."""

    @property
    def name(self) -> str:
        """Its path below the demo's folder, without blanks."""
        ...

    @property
    def work(self) -> Sequence[str]:
        """The words of the command that works it."""
        ...

    def make(self, folder: str, now: float) -> Mapping[str, str]:
        """Make it in the demo's folder, with what was before `now` (epoch seconds UTC).

        What the configuration shall say: lines of YAML by the section that they stand in.
        """
        ...

    def open(self) -> None:
        """Begin what goes on beside its worker; every other process has been started by now."""
        ...

    def add(self, now: float) -> None:
        """Some traffic; called every `PACE` seconds."""
        ...


class Demo:
    """Starts the keeper, and with it everything; a context manager."""

    def __init__(
        self, tasks: int, keep: str, program: Sequence[str], keeper: str = "engine.demo.traffic"
    ) -> None:
        """`program` is what, with `--config F --root D` and a command put in, works a place.

        `keep` names a folder to make the places in and to leave; "" is one that goes away.
        `keeper` is the module that is run as the keeper: it calls `main`.
        """
        self.folder = os.path.abspath(keep) if keep else tempfile.mkdtemp(prefix="spooldeck-demo-")
        self._stays = bool(keep)
        self._argv = [
            *(sys.executable, "-P", "-m", keeper, self.folder, str(tasks)),
            *("keep" if keep else "leave-nothing", *program),
        ]
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def config_path(self) -> str:
        """The configuration for its places."""
        return f"{self.folder}/{CONFIG}"

    def places(self, say: Callable[[str], None] = lambda _: None) -> list[str]:
        """Its places, once all of them are there; `say` gets a line for each step until then.

        Raises:
            OSError: they could not be made.
        """
        keeper = self._keeper
        assert keeper is not None and keeper.stdout is not None
        for line in keeper.stdout:
            word, _, rest = line.decode().strip().partition(" ")
            if word == READY:
                return [f"{self.folder}/{name}" for name in rest.split()]
            if word == FAILED:
                raise OSError(f"the demo could not be set up in {self.folder}: {rest}")
            say(f"{word} {rest}")
        raise OSError(f"the demo could not be set up in {self.folder}: its process ended")

    def __enter__(self) -> Demo:
        self._keeper = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        keeper = self._keeper
        if keeper is not None:
            # Closes its standard input; its standard output ends with the last of its processes.
            keeper.communicate()
        if not self._stays:
            # Of a keeper that was killed; or the console wrote in it after that.
            shutil.rmtree(self.folder, ignore_errors=True)


# ---- the keeper, a process of its own


def main(exhibits: Sequence[Exhibit] = ()) -> None:
    """Be the keeper, as `Demo` asked for it."""
    folder, tasks, leave, *program = sys.argv[1:]
    try:
        keep(folder, int(tasks), leave == "keep", program, exhibits)
    except OSError as error:
        _say(FAILED, error.strerror or str(error))
        raise


def _say(*words: str) -> None:
    """Write a line to whoever started the demo."""
    os.write(1, f"{' '.join(words)}\n".encode())


def keep(
    folder: str, tasks: int, leave: bool, program: Sequence[str], exhibits: Sequence[Exhibit] = ()
) -> None:
    """Set the demo up, keep it moving until standard input ends, and end what was started."""
    for number in _ENDING:
        # The end of standard input is what ends it. Caught, not ignored: what it starts would
        # inherit a signal that is ignored.
        signal.signal(number, lambda *_: None)
    alive = -1 if leave else _clear_after(folder)
    now = time.time()
    said: list[Mapping[str, str]] = []
    for exhibit in exhibits:
        _say("making", exhibit.name)
        said.append(exhibit.make(folder, now))
    _say("making", FLOWING, "and", WEDGED)
    traffic = Traffic(folder, exhibits)
    traffic.begin(tasks, said)
    _say("starting workers")
    worked = ((FLOWING, WORK), *((exhibit.name, exhibit.work) for exhibit in exhibits))
    here = [*program, "--config", f"{folder}/{CONFIG}", "--root"]
    workers = [_start([*here, f"{folder}/{name}", *work], alive) for name, work in worked]
    hanging = _hang(f"{folder}/{WEDGED}")
    try:
        for exhibit in exhibits:
            exhibit.open()
        places = (FLOWING, WEDGED, *(exhibit.name for exhibit in exhibits))
        _say(READY, *places)
        traffic.go_on(hanging)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # ended and waited for
            signal.pidfd_send_signal(hanging, signal.SIGKILL)
            os.waitid(os.P_PIDFD, hanging, os.WEXITED)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def _clear_after(folder: str) -> int:
    """A process that clears the folder away once nobody has the descriptor any more: neither the
    keeper, which may be killed, nor a worker, which may be writing there still.
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


def _start(argv: Sequence[str], alive: int) -> subprocess.Popen[bytes]:
    """A worker, which is asked to end as soon as the keeper has."""
    prctl, keeper = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != keeper:  # it has ended already, and nobody will say so
            os._exit(1)

    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=() if alive < 0 else (alive,),
        preexec_fn=bind,
    )


def _hang(root: str) -> int:
    """A worker that took the lock and a task, and then never came back; its pidfd.

    Not even SIGTERM ends it: whoever frees the lock sees the whole ladder. The keeper's end does.
    """
    ready, said = os.pipe()
    kept, keeping = os.pipe()
    pid = os.fork()
    if pid:
        os.close(said)
        os.close(kept)
        os.read(ready, 1)
        os.close(ready)
        return os.pidfd_open(pid)
    try:
        os.close(keeping)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        queue_lock.acquire(f"{root}/run/queue.lock", STUCK_AFTER)
        store = NftbanStore(_spool(root))
        for _ in store.take(time.time(), str(os.getpid()), 1):
            pass
        os.write(said, b".")
        os.read(kept, 1)
    finally:
        os._exit(1)


def _spool(root: str) -> SpoolFolders:
    queue = f"{root}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", f"{root}/mailspool")


class Traffic:
    """Adds tasks, and writes down the id of each once it is in the queue (`added`)."""

    def __init__(self, folder: str, exhibits: Sequence[Exhibit] = ()) -> None:
        self._folder, self._exhibits = folder, exhibits
        self._random = random.Random(7)
        self._ledger = f"{folder}/added"

    def begin(self, tasks: int, said: Sequence[Mapping[str, str]] = ()) -> None:
        """Make both queues, the handler and the configuration, and fill in what was before.

        `said` is what the configuration says besides: lines of YAML by section.
        """
        for name in (FLOWING, WEDGED):
            root = f"{self._folder}/{name}"
            make_spool(_spool(root), exclusive=True)
            for folder in ("run", "log", "metrics", "mailspool"):
                files.make_folders(f"{root}/{folder}")
        handle = f"{self._folder}/handle.sh"
        files.publish(handle, _script(self._folder).encode())
        config = _CONFIG.format(handle=handle, mended=MENDED, stuck=STUCK_AFTER) + _sections(said)
        files.publish(f"{self._folder}/{CONFIG}", config.encode())
        self._stores = {
            name: NftbanStore(_spool(f"{self._folder}/{name}")) for name in (FLOWING, WEDGED)
        }
        now = time.time()
        failing = [sort for sort in SORTS if sort.error]
        for sort in failing:
            each = -(-tasks // 5 // len(failing))
            self._add(FLOWING, self._some(each, now - 6 * 3600, now, [sort]))
        self._bury(self._stores[FLOWING], now)
        self._add(FLOWING, self._some(tasks // 2, now - 6 * 3600, now))
        self._add(WEDGED, self._some(tasks * 3 // 10, now - WAITED, now))

    def go_on(self, hanging: int) -> None:
        """A task every moment, and the mail metrics, until standard input ends.

        `hanging` is a child's pidfd; when it is ended from outside, it is waited for.
        """
        import select

        poll = select.poll()
        poll.register(0, select.POLLIN | select.POLLHUP)
        poll.register(hanging, select.POLLIN)
        count = 0
        while 0 not in (ready := dict(poll.poll(1000 * PACE))):
            if hanging in ready:
                poll.unregister(hanging)
                os.waitid(os.P_PIDFD, hanging, os.WEXITED)
            count += 1
            name = WEDGED if count % 8 == 0 else FLOWING
            now = time.time()
            if self._stores[name].counts()[State.PENDING] < MOST:
                self._add(name, self._some(1, now, now))
            for exhibit in self._exhibits:
                exhibit.add(now)
            if count % 3 == 0:
                for place in (FLOWING, WEDGED):
                    publish_mail(f"{self._folder}/{place}")

    def _some(
        self, number: int, since: float, until: float, sorts: Sequence[Sort] = SORTS
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

    def _bury(self, store: NftbanStore, now: float) -> None:
        """All that is pending failed for good before the demo began."""
        taken = list(store.take(now, "demo", MOST))
        for outcome in store.swap_all(Move(task, _failed(task)) for task in taken):
            if outcome.error is not None:
                raise outcome.error


def publish_mail(root: str) -> None:
    """Write mail.prom and its counter files from mail.log, in the real program's form.

    Whatever else writes mail.prom, such as the command that suspends a transport, takes its
    numbers from the counter files.
    """
    try:
        with open(f"{root}/log/mail.log", "rb") as log:
            text = log.read()
    except FileNotFoundError:
        return
    sent = re.findall(rb"^\[(.{19})\].* status=success", text, re.MULTILINE)
    counters = Counters(f"{root}/metrics/counters")
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
    files.publish(f"{root}/metrics/mail.prom", ("\n".join(lines) + "\n").encode())


def _sections(said: Sequence[Mapping[str, str]]) -> str:
    """YAML of what each says, what stands in one section together."""
    found: dict[str, str] = {}
    for one in said:
        for section, lines in one.items():
            found[section] = found.get(section, "") + lines
    return "".join(f"{section}:\n{lines}" for section, lines in found.items())


def _failed(task: Task) -> Task:
    """The task after its last failure, with the error that the demo's handler gives it."""
    words = task.description.rstrip("0123456789")
    (error,) = (s.error for s in SORTS if s.description.partition("{n}")[0] == words)
    return verbs.bury(replace(task, attempts=3), error.format(n=task.description[len(words) :]))


def _script(here: str) -> str:
    cases = [
        _FAILS.format(
            pattern=sort.description.partition("{n}")[0].replace(" ", "\\ "),
            error=sort.error.replace("{n}", "$n"),
            fails=sort.fails,
        )
        for sort in SORTS
        if sort.error
    ]
    return _HANDLE.format(
        here=shlex.quote(here), flowing=FLOWING, wedged=WEDGED, cases="\n".join(cases)
    )


if __name__ == "__main__":
    main()
