"""The demo: real spools, a real worker, and nothing lost however it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from engine.config import queue_config
from engine.config.place_address import Address, parse_address
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.bullmq import demo as demo_formats_redis
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.nftban import demo as traffic
from engine.formats.nftban.demo import (
    CONFIG_FILE,
    REPAIRED_FILE,
    STUCK_AFTER_SECONDS,
    Demo,
    publish_mail_metrics,
)
from engine.live.folder_events import FolderEventSource
from engine.locks import queue_lock
from engine.mail import failure_reasons
from engine.mail.send.delivery_log import DeliveryPaths, Ledger
from engine.mail.send.suspensions import Suspensions
from engine.model import Problem, State, Task, Verdict
from engine.monitor import prometheus, transport_health
from engine.store import Store, Unavailable
from engine.system.supervisor import ProgramResult
from tests import command
from tests.lock_processes import later
from tui.cli import open_console
from tui.cli.setup.errors import CommandError
from tui.cli.setup.place_formats import detect_format, setup_for

PROGRAM = [sys.executable, "-m", "tui.cli"]
KEEPER = "engine.formats.zgb.demo"

START = f"""
import sys
from engine.formats.nftban.demo import Demo
with Demo(40, sys.argv[1], {PROGRAM!r}, {KEEPER!r}) as demo:
    print(*demo.wait_for_places(), flush=True)
    sys.stdin.read()
"""


def start(folder: str) -> tuple[subprocess.Popen[bytes], list[Path]]:
    """A demo in a process of its own, as in the command; and its places, once they are there."""
    argv, pipe = [sys.executable, "-c", START, folder], subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    return process, [Path(place) for place in process.stdout.readline().decode().split()]


def end(process: subprocess.Popen[bytes]) -> None:
    """Let it end as it does when the operator leaves the console."""
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, psutil.Process]]:
    """The folder and the process of a demo that the tests look at one after another."""
    folder = tmp_path_factory.mktemp("running") / "demo"
    process, places = start(str(folder))
    assert [place.parent for place in places] == [folder] * 4
    yield folder, psutil.Process(process.pid)
    end(process)


@pytest.fixture
def demo(running: tuple[Path, psutil.Process]) -> Path:
    """The folder of the running demo."""
    return running[0]


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for something to happen in a folder, however long it takes."""
    with closing(FolderEventSource(path for path, _, _ in os.walk(folder))) as events:
        while not condition():
            events.wait(0.5)


def ended(process: psutil.Process) -> bool:
    """Whether a process is gone, though perhaps not yet waited for by its parent."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def completed(flowing: Path) -> set[str]:
    """Ids that the queue's log calls completed."""
    log = flowing / "log" / "queue.log"
    return set(re.findall(r"Task completed: (\S+)", log.read_text() if log.exists() else ""))


def names(root: Path) -> Counter[str]:
    """Number of files of each task id anywhere in a spool, withdrawn files included."""
    found: Counter[str] = Counter()
    for path in (root / "queue").rglob("*"):
        if path.suffix == ".task":
            found[path.stem] += 1
        elif path.name.startswith("D."):
            found[path.name.split(".")[1]] += 1
    return found


@pytest.mark.deep
def test_killed_at_any_moment_it_has_every_task_under_one_name_or_done(tmp_path: Path) -> None:
    """SIGKILL to all of it: each task that was added is done, or has exactly one name."""
    demo = tmp_path / "demo"
    process, _ = start(str(demo))
    flowing, wedged = demo / "flowing", demo / "wedged"
    until(lambda: len(completed(flowing)) >= 10, flowing / "log")
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):  # of a handler, which ended by itself meanwhile
            child.kill()
    until(lambda: all(map(ended, children)), flowing)

    added = set((demo / "added").read_text().split())
    present = names(flowing) + names(wedged)
    assert max(present.values()) == 1
    claimed = added - set(present) - completed(flowing)
    # The last acknowledgement of each of four threads may not have reached the log.
    log = (flowing / "log" / "queue.log").read_text()
    assert len(claimed) <= 4
    assert all(f"Processing task: {ident} " in log for ident in claimed)

    words = ("--root", str(flowing), "--config", str(demo / "spooldeck.yaml"))
    again = command.run([*words, "queue", "process-next"])
    assert again.returncode in (0, 1, 3)
    assert max(names(flowing).values()) == 1
    assert list((flowing / "queue" / "work").iterdir()) == []
    assert set(names(flowing)) | completed(flowing) | claimed >= added - set(names(wedged))
    end(process)


def test_more_tasks_than_a_queue_usually_takes_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of pending tasks of the demo's queues is at least the wanted number of tasks."""
    spool = traffic._spool
    monkeypatch.setattr(traffic, "_spool", lambda root: spool(root)._replace(max_pending=3))
    traffic.TrafficGenerator(str(tmp_path)).create(40)
    made = [
        len([*(tmp_path / name / "queue/pending").glob("*.task")])
        for name in (traffic.FLOWING, traffic.WEDGED)
    ]
    assert made == [20, 12]
    assert len([*(tmp_path / traffic.FLOWING / "queue/dlq").glob("*.task")]) >= 8
    assert "max_pending: 40" in (tmp_path / CONFIG_FILE).read_text()


def test_one_spool_flows_and_one_is_stuck(running: tuple[Path, psutil.Process]) -> None:
    """Failures, successes and mail move in one; in the other a live process has the lock, which is
    stuck without a doubt after a minute and a half. Mail goes to the demo's own server and its own
    program, independent of the programs installed here."""
    demo, process = running
    flowing, wedged = demo / "flowing", demo / "wedged"
    until(lambda: (flowing / "metrics" / "mail.prom").exists(), flowing / "metrics")
    evidence = queue_lock.examine_lock(
        str(wedged / "run" / "queue.lock"), STUCK_AFTER_SECONDS, **later(STUCK_AFTER_SECONDS)
    )
    assert (evidence.verdict, evidence.signal_refusal) == (Verdict.STUCK, "")
    assert evidence.pid in {child.pid for child in process.children(recursive=True)}
    assert len(list((wedged / "queue" / "work").iterdir())) == 1
    dead = [p.read_text() for p in (flowing / "queue" / "dlq").iterdir()]
    errors = {re.sub(r"\d+", "#", re.findall('LAST_ERROR="(.*)"', text)[0]) for text in dead}
    assert len(errors) == 5
    assert (
        queue_lock.examine_lock(str(flowing / "run" / "queue.lock"), 1200.0).verdict is Verdict.HELD
    )

    loaded = queue_config.load_config(str(demo / CONFIG_FILE), os.environ)
    assert loaded.mail["method"] == "sendmail"
    assert loaded.mail["programs"] == {"sendmail": str(demo / "sendmail")}
    assert setup_for(loaded, str(demo / "kannader"), {}).settings.host == "127.0.0.1"
    # The queues' mail is sent by a program of theirs, as before.
    assert loaded.handlers["mail_send"].command[0] == "/bin/sh"


def test_a_test_mail_has_a_recipient(demo: Path) -> None:
    """A test mail without a named recipient goes to the one of the demo's configuration."""
    config = ("--config", str(demo / CONFIG_FILE), "--root", str(demo / "flowing"))
    ended = command.run([*config, "mail", "test"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    mails = [path.read_text() for path in (demo / "sent").iterdir()]
    assert any("\nTo: operator@example.com\n" in mail for mail in mails)


def test_the_mail_counters_agree_with_the_metrics(tmp_path: Path) -> None:
    """Another program that writes mail.prom from the counters writes the numbers of the demo."""
    (tmp_path / "log").mkdir()
    (tmp_path / "metrics").mkdir()
    (tmp_path / "log" / "mail.log").write_text(
        "[2026-11-20 09:00:00] [INFO] MAIL_SEND_ATTEMPT task_id=a attempt=1 transport=curl to=x\n"
        "[2026-11-20 09:00:01] [INFO] MAIL_SEND_RESULT task_id=a status=success transport=curl\n"
    )
    metrics_path = str(tmp_path / "metrics" / "mail.prom")
    publish_mail_metrics(str(tmp_path))
    first = prometheus.read_metrics(metrics_path)
    counters, records = str(tmp_path / "metrics" / "counters"), str(tmp_path / "delivery.jsonl")
    places = DeliveryPaths(str(tmp_path / "log" / "mail.log"), metrics_path, counters, records)
    Ledger(places, pytest.fail).publish("curl", 0, 0.0)
    assert transport_health.read_totals(
        prometheus.read_metrics(metrics_path)
    ) == transport_health.read_totals(first)
    assert transport_health.read_totals(first)["curl"][:3] == (1, 1, 0)


ENDS = {
    **dict.fromkeys(("Feed busy", "to timeout"), (0, 0, 0)),
    **{"to later": (1, 0, 0), "Apply outdated": (1, 1, 0), "to unknown": (1, 1, 1)},
}
"""Exit codes of dead tasks in the demo: run again, once more, and after the cause was repaired."""


def handle(demo: Path, task: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the demo's handler on a task."""
    environment = {**task, "PATH": os.environ["PATH"]}
    argv = ["/bin/sh", str(demo / "handle.sh")]
    return subprocess.run(argv, env=environment, capture_output=True, text=True)


@pytest.mark.deep
def test_dead_tasks_end_in_five_ways(demo: Path) -> None:
    """Two groups succeed in the next run, one in the second, one after a repair, one never."""
    dead = [path.read_text() for path in (demo / "flowing" / "queue" / "dlq").iterdir()]
    fields = [dict(re.findall(r'^(TASK_\w+)="(.*)"$', text, re.MULTILINE)) for text in dead]

    def run(words: str, retries: int) -> int:
        task = next(task for task in fields if words in task["TASK_DESCRIPTION"])
        ended = handle(demo, {**task, "TASK_RETRIES": str(retries)})
        assert ended.stdout.strip() == (task["TASK_LAST_ERROR"] if ended.returncode else "")
        return ended.returncode

    found = {words: (run(words, 0), run(words, 1)) for words in ENDS}
    (demo / REPAIRED_FILE).touch()
    assert {words: (*codes, run(words, 2)) for words, codes in found.items()} == ENDS


def test_its_mail_obeys_suspensions_and_is_logged_in_its_place(demo: Path) -> None:
    """A handler sends by no suspended transport, and writes into the log of its own place."""
    wedged = demo / "wedged"
    Suspensions(f"{wedged}/queue/.spooldeck/suspended").suspend("sendmail", 1.0, "ana", "why")
    task = {"TASK_ID": "1-of-mine", "TASK_TYPE": "mail_send", "TASK_RETRIES": "0"}
    (wedged / "queue" / "work" / "1-of-mine.task").touch()
    assert not handle(demo, {**task, "TASK_DESCRIPTION": "Spooled mail to admin_ ok11"}).returncode
    said = (wedged / "log" / "mail.log").read_text()
    assert re.findall(r"(\w+) task_id=1-of-mine .*transport=(\w+)", said) == [
        *(("MAIL_SEND_ATTEMPT", "postfix"), ("MAIL_SEND_RESULT", "postfix"))
    ]
    log = demo / "flowing" / "log" / "mail.log"
    assert not log.exists() or "1-of-mine" not in log.read_text()


def open_in(place: Path) -> Store:
    """The store of a place of the demo, as its own configuration says."""
    loaded = queue_config.load_config(str(place.parent / CONFIG_FILE), os.environ)
    return setup_for(loaded, str(place), {}).open_store()


def tasks_in(store: Store) -> list[Task]:
    """All tasks; of one that moved meanwhile, its later state."""
    return [*{item.id: item for item in store.scan() if isinstance(item, Task)}.values()]


@pytest.mark.deep
def test_all_places_can_be_read(demo: Path) -> None:
    """Four places in three formats; `status` reads each."""
    places = [demo / name for name in ("flowing", "wedged", "kannader", "zgb.db")]
    for place in places:
        argv = ["--config", str(demo / CONFIG_FILE), "status", str(place)]
        said = command.run(argv, capture_output=True, text=True)
        assert said.returncode in (0, 1), said.stderr
        assert str(place) in said.stdout
    assert [detect_format(Address(str(place))) for place in places] == [
        "nftban",
        "nftban",
        "kannader",
        "zgb",
    ]


@pytest.mark.deep
def test_the_mail_spool_has_every_sort_of_mail(demo: Path) -> None:
    """Deferred, held, left in flight by a dead worker, and two damaged; more come, and are sent."""
    place = demo / "kannader"
    with closing(open_in(place)) as store:
        tasks = tasks_in(store)
    deferred = [task for task in tasks if task.attempts and task.state is State.PENDING]
    assert len(deferred) >= 3
    assert all(task.error and task.due and task.due > task.created for task in deferred)
    assert any(task.due and task.due > time.time() for task in deferred)
    assert [task.state for task in tasks].count(State.HELD) == 1
    lapses = [task.lease.until for task in tasks if task.lease and not task.attempts]
    assert any(until and until > time.time() + 1800 for until in lapses)

    def damaged(*begins: str) -> bool:
        with closing(open_in(place)) as store:
            problems = [item for item in store.scan() if isinstance(item, Problem)]
        return any(problem.what.startswith(begins) for problem in problems)

    # The link to a missing mail stays only until the worker has begun, which quarantines it.
    until(lambda: damaged("quarantined link: leads to", "leads to"), place)
    assert damaged("orphaned mail (complete)")

    def logged(words: str) -> int:
        log = place / ".spooldeck" / "log" / "queue.log"
        return log.read_text().count(words) if log.exists() else 0

    until(lambda: logged("Task completed") > 2 and logged("Task failed") > 0, place)
    with closing(open_in(place)) as store:
        waiting = [task for task in tasks_in(store) if task.state is State.PENDING]
    # An earlier failure has the same words as one of now.
    assert len({task.error for task in waiting if task.error}) == 1


@pytest.mark.deep
def test_the_registrations_wait_for_their_turn(demo: Path) -> None:
    """Jobs pending, backing off and parked; a few are sent first, the others one by one; the
    recorded failure of an attempt before the demo is that of an attempt now."""
    until(lambda: any((demo / "sent").iterdir()), demo)
    with closing(open_in(demo / "zgb.db")) as store:
        tasks, control = tasks_in(store), store.controls
    dead = [task for task in tasks if task.state is State.DEAD]
    assert [task.attempts for task in dead] == [10, 10]
    failed = [task for task in tasks if task.word == "failed"]
    assert len(failed) >= 3
    assert all(task.attempts and task.error for task in failed)
    assert sum(task.attempts == 0 for task in tasks) >= 15  # five at most are sent first
    names = ("mailQueueEnabled", "mailMaxPerHour", "mailRedirectToSchumbi")
    assert [control[name].now for name in names] == ["1", "40", "0"]
    assert "registration period" in control["mailRedirectToSchumbi"].refusal
    assert any("egistration" in path.read_text() for path in (demo / "sent").iterdir())

    errors = {task.id: task.error for task in tasks}
    for ident, address in (("1-user", "full1@example.net"), ("3-user", "later3@example.net")):
        argv = [str(demo / "sendmail"), "-i", "--", address]
        ran = subprocess.run(argv, input=b"text\n", capture_output=True, check=False)
        failure = failure_reasons.classify_program_failure(
            "sendmail", ProgramResult(ran.returncode, ran.stdout + ran.stderr)
        )
        assert failure is not None
        assert errors[ident] == f"{failure.word}: {failure}"
        assert not failure.permanent


@pytest.mark.deep
@pytest.mark.parametrize("victim", ["nobody", "console", "keeper"])
def test_left_or_killed_it_leaves_nothing(victim: str, tmp_path: Path) -> None:
    """When the demo ends, or its console's process or its keeper is killed, its processes and its
    folder are gone."""
    process, places = start("")
    console = psutil.Process(process.pid)
    (keeper,) = console.children()
    ours = [keeper, *keeper.children(recursive=True)]
    assert len(ours) >= 5
    assert places[0].joinpath("queue", "pending").is_dir()
    if victim == "nobody":
        end(process)
    else:
        (console if victim == "console" else keeper).kill()
    until(lambda: all(map(ended, ours)), tmp_path)
    assert not places[0].parent.exists()
    if victim != "nobody":
        end(process)


def test_a_folder_that_cannot_hold_a_demo_is_refused(tmp_path: Path) -> None:
    """A demo that cannot be set up names the path and leaves nothing running; `demo --keep DIR`
    with a demo in it names the way to open it, and changes nothing."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError) as error, Demo(8, str(blocked / "demo"), PROGRAM, KEEPER):
        pass
    assert str(error.value).endswith(f"{blocked}/demo: Not a directory")
    blocked.unlink()
    (tmp_path / CONFIG_FILE).write_text("queue: {}\n")
    said = command.run(["demo", "--keep", str(tmp_path)], capture_output=True, text=True)
    assert said.returncode == 64
    assert f"{tmp_path} already contains a demo: remove it, or open it: spooldeck" in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG_FILE]


def test_leaving_says_where_the_places_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step is printed before the screen starts; after it, what became of the places."""
    monkeypatch.setattr(open_console, "run", lambda *_: capsys.readouterr().out.count("making") - 3)
    monkeypatch.setattr(open_console, "_why_no_screen", lambda: "")
    folder, arguments = (
        tmp_path / "demo",
        Namespace(
            tasks=10, keep=str(tmp_path / "demo"), redis=False, federation=False, zmailer=False
        ),
    )
    plain = queue_config.Config()
    assert open_console.demo(setup_for(plain, "", {}), arguments) == 0
    again = f"spooldeck --config {folder}/{CONFIG_FILE} {folder}/flowing {folder}/wedged"
    assert f"demo places kept in {folder}; to continue: {again}" in capsys.readouterr().out


BROKEN = """
import sys
from engine.formats.nftban import demo as traffic

class Place:
    work = ()

    def __init__(self, name): self.name = name

    def make(self, folder, now):
        self.path = f"{folder}/{self.name}"
        return {}

    def open(self): pass

    def add(self, now):
        if self.name == "broken":
            raise PermissionError(13, "Permission denied", self.path)
        open(self.path, "w").close()

traffic.main((Place("broken"), Place("sound")))
"""


def test_what_fails_in_the_keeper_is_logged_and_reported_and_ends_nothing_else(
    tmp_path: Path,
) -> None:
    """Traffic of one place goes on while another's fails; the end of a killed keeper is named."""
    folder = tmp_path / "demo"
    demo = Demo(8, str(folder), ["true"], KEEPER)
    demo._argv = [sys.executable, "-c", BROKEN, str(folder), "8", "keep", "true"]
    with demo:
        demo.wait_for_places()
        until(lambda: (folder / "sound").exists(), folder)
        until(lambda: "traffic of broken" in demo.trouble(), folder)
        assert demo.trouble().endswith(f": Permission denied ({folder}/demo.log)")
        assert "PermissionError: [Errno 13]" in (folder / "demo.log").read_text()

        assert demo._keeper is not None
        demo._keeper.kill()
        demo._keeper.wait()
        assert demo.trouble() == "the demo's keeper ended: SIGKILL"


@pytest.mark.deep
def test_without_a_terminal_the_demo_is_shown_as_commands(tmp_path: Path) -> None:
    """Each command has its expected exit code, the lock is freed, and nothing is left behind."""
    before = {*Path(tempfile.gettempdir()).glob("spooldeck-demo-*")}

    ended = command.run(["demo", "--tasks", "40"], capture_output=True, text=True, timeout=300)

    assert ended.returncode == 0, ended.stderr
    # A replay that takes some seconds prints its progress.
    progress = re.compile(r"spooldeck: \d+ of (\d+) sent, (.+ waiting.*|\1 delivered)")
    assert all(map(progress.fullmatch, ended.stderr.splitlines())), ended.stderr
    assert "the lock is stuck: PID" in ended.stdout
    assert "lock      free" in ended.stdout.rpartition("$ spooldeck ")[2]
    assert "demo places removed" in ended.stdout
    assert {*Path(tempfile.gettempdir()).glob("spooldeck-demo-*")} <= before


@pytest.mark.parametrize("option", ["redis", "federation"])
def test_a_folder_whose_path_no_socket_can_have_is_refused(tmp_path: Path, option: str) -> None:
    """Before anything is made, in one line that says what to do."""
    if demo_formats_redis.find_missing():
        pytest.skip("no server program")
    long = tmp_path / ("x" * 100)
    options = {"redis": False, "federation": False, "zmailer": False} | {option: True}
    arguments = Namespace(tasks=10, keep=str(long), **options)
    with pytest.raises(CommandError, match=r"socket too long by .* choose a shorter folder"):
        open_console.demo(setup_for(queue_config.Config(), "", {}), arguments)
    assert not long.exists()


def test_the_demo_has_bullmq_queues_if_asked(tmp_path: Path) -> None:
    """A server of its own with jobs in several states, worked by our worker; it ends with the
    demo."""
    if not demo_formats_redis.find_server():
        pytest.skip("no server program")
    with Demo(8, "", PROGRAM, "engine.formats.bullmq.demo") as demo:
        *_, url = demo.wait_for_places()
        place = parse_place(parse_address(url))
        with closing(BullmqStore(place)) as store:
            kinds = {task.kind for task in store.scan() if isinstance(task, Task)}
            counts = store.count_tasks()
    assert kinds == set(demo_formats_redis.QUEUES)
    assert counts[State.DEAD] > 0
    assert counts[State.DONE] > 0
    with pytest.raises(Unavailable):
        BullmqStore(place)


def test_the_demo_has_servers_to_deliver_to_if_asked() -> None:
    """Our worker delivers to three servers by BullMQ queues, and registers them as healthy."""
    if not demo_formats_redis.find_server():
        pytest.skip("no server program")
    with Demo(8, "", PROGRAM, "engine.formats.bullmq.federation.demo") as demo:
        *_, url = demo.wait_for_places()
        folder = Path(demo.folder)
        address = parse_address(f"sqlite://{folder}/destinations.db")
        with closing(SqlRegistry(address, creates=True)) as registry:
            until(lambda: len([one for one in registry.all() if one.last_success]) == 3, folder)
            known = registry.all()
        with closing(BullmqStore(parse_place(parse_address(url)))) as store:
            tasks = [task for task in store.scan() if isinstance(task, Task)]
    assert all(one.healthy and one.extra for one in known)
    assert {task.destination for task in tasks} == {one.origin for one in known}
