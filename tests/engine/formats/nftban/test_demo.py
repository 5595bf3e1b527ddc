"""NFTBan's demo places: real queues, a real worker, and nothing lost however the demo ends."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine.demo.demo import CONFIG_FILE
from engine.demo.keeper import DemoSettings
from engine.formats.nftban import demo as demo_module
from engine.formats.nftban.demo import (
    FLOWING,
    REPAIRED_FILE,
    STUCK_AFTER_SECONDS,
    WEDGED,
    publish_mail_metrics,
)
from engine.locks import queue_lock
from engine.mail.send.delivery_log import DeliveryPaths, Ledger
from engine.mail.send.suspensions import Suspensions
from engine.model import Verdict
from engine.monitor import prometheus, transport_health
from tests.demo_places import NFTBAN, demo_of, until
from tests.lock_processes import later


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, psutil.Process]]:
    """The folder and the process of a demo that the tests use one after another."""
    folder = tmp_path_factory.mktemp("running") / "demo"
    with demo_of(folder, NFTBAN) as process:
        yield folder, process


@pytest.fixture
def demo(running: tuple[Path, psutil.Process]) -> Path:
    """The folder of the running demo."""
    return running[0]


def test_more_tasks_than_usual_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of pending tasks of the demo's queues is at least the wanted number of tasks."""
    spool = demo_module._spool
    monkeypatch.setattr(demo_module, "_spool", lambda root: spool(root)._replace(max_pending=3))
    monkeypatch.setattr(demo_module, "_hang", lambda root: 0)
    sections = demo_module.DemoQueues().make(DemoSettings(str(tmp_path), 40, [], time.time()))
    flowing, wedged, dead = (
        len([*tmp_path.glob(f"{name}/*.task")])
        for name in (f"{FLOWING}/queue/pending", f"{WEDGED}/queue/pending", f"{FLOWING}/queue/dlq")
    )
    assert (flowing, wedged, dead >= 8) == (20, 12, True)
    assert "max_pending: 40" in sections["queue"]


def test_the_dead_died_before_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the last ten minutes belongs to a queue that was just made; and not all at once."""
    monkeypatch.setattr(demo_module, "_hang", lambda root: 0)
    now = time.time()
    demo_module.DemoQueues().make(DemoSettings(str(tmp_path), 40, [], now))
    texts = [path.read_text() for path in tmp_path.glob(f"{FLOWING}/queue/dlq/*.task")]
    died, made = (
        [int(re.findall(rf"^{key}=\"?(\d+)", text, re.MULTILINE)[0]) for text in texts]
        for key in ("TASK_DLQ_EPOCH", "TASK_CREATED_EPOCH")
    )
    assert len(set(died)) > 4 and max(died) <= now - 600
    assert all(first < last for first, last in zip(made, died, strict=True))


def test_one_spool_flows_and_one_is_stuck(running: tuple[Path, psutil.Process]) -> None:
    """Failures, successes and mail move in one; in the other a live process has the lock, which is
    stuck without a doubt after a minute and a half. Mail is sent by the demo's own handler,
    independent of the programs installed here."""
    demo, process = running
    flowing, wedged = demo / "flowing", demo / "wedged"
    until(lambda: (flowing / "metrics" / "mail.prom").exists(), flowing / "metrics")
    lock, seconds = str(wedged / "run" / "queue.lock"), STUCK_AFTER_SECONDS
    evidence = queue_lock.examine_lock(lock, seconds, **later(seconds))
    assert (evidence.verdict, evidence.signal_refusal) == (Verdict.STUCK, "")
    assert evidence.pid in {child.pid for child in process.children(recursive=True)}
    assert len(list((wedged / "queue" / "work").iterdir())) == 1
    dead = [p.read_text() for p in (flowing / "queue" / "dlq").iterdir()]
    errors = {re.sub(r"\d+", "#", re.findall('LAST_ERROR="(.*)"', text)[0]) for text in dead}
    assert len(errors) == 5
    working = queue_lock.examine_lock(str(flowing / "run" / "queue.lock"), 1200.0)
    assert working.verdict is Verdict.HELD
    assert "mail_send: {command: [/bin/sh, " in (demo / CONFIG_FILE).read_text()


def test_the_hanging_process_is_reaped_when_an_operator_ends_it(tmp_path: Path) -> None:
    """Killed from outside, it is no zombie of the keeper: its lock is seen to be free."""
    folder = tmp_path / "demo"
    with demo_of(folder, NFTBAN) as process:
        (keeper,) = process.children()
        lock = queue_lock.examine_lock(str(folder / "wedged" / "run" / "queue.lock"), 1200.0)
        (hanging,) = (child for child in keeper.children() if child.pid == lock.pid)
        hanging.kill()
        until(lambda: not hanging.is_running(), folder)


def test_the_mail_counters_agree_with_the_metrics(tmp_path: Path) -> None:
    """Another program that writes mail.prom from the counters writes the numbers of the demo."""
    log, metrics = tmp_path / "log" / "mail.log", tmp_path / "metrics"
    log.parent.mkdir()
    metrics.mkdir()
    log.write_text(
        "[2026-11-20 09:00:00] [INFO] MAIL_SEND_ATTEMPT task_id=a attempt=1 transport=curl to=x\n"
        "[2026-11-20 09:00:01] [INFO] MAIL_SEND_RESULT task_id=a status=success transport=curl\n"
    )
    prom, records = str(metrics / "mail.prom"), str(tmp_path / "delivery.jsonl")
    publish_mail_metrics(str(tmp_path))
    first = transport_health.read_totals(prometheus.read_metrics(prom))
    places = DeliveryPaths(str(log), prom, str(metrics / "counters"), records)
    Ledger(places, pytest.fail).publish("curl", 0, 0.0)
    assert transport_health.read_totals(prometheus.read_metrics(prom)) == first
    assert first["curl"][:3] == (1, 1, 0)


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

    exit_codes = {words: (run(words, 0), run(words, 1)) for words in ENDS}
    (demo / REPAIRED_FILE).touch()
    assert {words: (*codes, run(words, 2)) for words, codes in exit_codes.items()} == ENDS


def test_its_mail_obeys_suspensions_and_is_logged_in_its_place(demo: Path) -> None:
    """A handler sends by no suspended transport, and writes into the log of its own place."""
    wedged = demo / "wedged"
    Suspensions(f"{wedged}/queue/.spooldeck/suspended").suspend("sendmail", 1.0, "ana", "why")
    task = {"TASK_ID": "1-of-mine", "TASK_TYPE": "mail_send", "TASK_RETRIES": "0"}
    (wedged / "queue" / "work" / "1-of-mine.task").touch()
    assert not handle(demo, {**task, "TASK_DESCRIPTION": "Spooled mail to admin_ ok11"}).returncode
    text = (wedged / "log" / "mail.log").read_text()
    assert re.findall(r"(\w+) task_id=1-of-mine .*transport=(\w+)", text) == [
        ("MAIL_SEND_ATTEMPT", "postfix"),
        ("MAIL_SEND_RESULT", "postfix"),
    ]
    log = demo / "flowing" / "log" / "mail.log"
    assert not log.exists() or "1-of-mine" not in log.read_text()
