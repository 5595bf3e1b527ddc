"""The overview and the locks printed once: the same lines, for scripts and for plain terminals."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.locks import queue_lock
from engine.locks.process_stats import MAX_FILES
from engine.logs.log_line import format_log_line
from tests.console_places import MAIL, a_console, make_spool, until
from tests.engine.monitor.test_alerts import eleven_dead, write_task
from tests.lock_processes import later
from tests.nftban_queues import Run
from tui.app import Console
from tui.cli.setup.places import make_place
from tui.overview.screen import OverviewScreen
from tui.terminal.clipboard import screen_text
from tui.text import keys

RED = "\x1b[31mred"
NAMES = ("TRANSPORT", "postfix", "sendmail", "curl")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue with three tasks that are due, and nothing wrong with it."""
    made = tmp_path / "mail.out"
    make_spool(made, [])
    shutil.rmtree(made / "metrics")
    for number, age in enumerate((60, 400, 800), 20):
        write_task(made, "pending", number, age=age)
    return made


def run_now(root: Path) -> None:
    """A worker started a task a moment ago, as a timer does each minute."""
    with (root / "log" / "queue.log").open("ab") as log:
        log.write(format_log_line("INFO", "Processing task: 1 (report: x)", time.time()))


def stuck_lock(root: Path) -> queue_lock.PidLock:
    """A lock whose last heartbeat was half a minute past 47m ago: times in files are rounded."""
    ago = later(-2850)
    return queue_lock.acquire_lock(f"{root}/run/queue.lock", 1200, ago["clock"], ago["uptime"])


def rows(spooldeck: Run, command: str, root: Path) -> Any:
    """What a command prints with --json."""
    return json.loads(spooldeck(command, root, "--json").stdout)


def row_of(text: str, name: str) -> list[str]:
    """The words of a table's row, behind the name."""
    rows = [line[3:].split() for line in text.splitlines()]
    return next(words[1:] for words in rows if words[:1] == [name])


def test_overview_of_a_queue(root: Path, spooldeck: Run) -> None:
    """Its row and the ages of its tasks, as text and as JSON; exit 1 where something is wrong, as
    due tasks without a worker, which `status` names too."""
    stalled, status = spooldeck("overview", root), spooldeck("status", root)
    (place,) = rows(spooldeck, "overview", root)["places"]
    assert (stalled.returncode, status.returncode, place["stalled"]) == (1, 1, True)
    assert "[CRIT]  mail.out  no worker running, 3 tasks are due" in stalled.stdout
    assert [alert["what"] for alert in place["alerts"]] == ["nothing runs"]
    assert "attention no worker running, 3 tasks are due" in status.stdout
    run_now(root)
    ended = spooldeck("overview", root)
    eleven_dead(root)
    ill = spooldeck("overview", root)
    (place,) = rows(spooldeck, "overview", root)["places"]
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no alerts" in ended.stdout
    assert row_of(ended.stdout, "mail.out")[:9] == [*"30000", "13m", *"???"]
    assert row_of(ended.stdout, "TOTAL")[:6] == ["3", "1", "1", "1", ".", "."]
    assert " backlog started 10m-20m ago and continues\n" in ended.stdout
    assert ill.returncode == 1
    assert "[WARN]  mail.out  11 dead (limit 10)" in ill.stdout
    assert row_of(ill.stdout, "mail.out")[3] == "11"
    assert place["place"] == str(root)
    assert (place["tasks"]["pending"], place["tasks"]["dlq"], place["due"]) == (3, 11, 3)
    assert (place["in_per_second"], place["drain_seconds"]) == (None, None)
    assert [alert["what"] for alert in place["alerts"]] == ["dead tasks"]
    assert place["ages"]["total"][:4] == [1, 1, 1, 0]


@pytest.mark.deep
def test_rates_are_known_after_a_while(root: Path, spooldeck: Run) -> None:
    """With --over the queue is watched for so long, and what came and left then is known."""
    ended = spooldeck("overview", root, "--over", "5")
    assert row_of(ended.stdout, "mail.out")[6:8] == ["0.0", "0.0"]


def test_a_place_that_cannot_be_read_is_a_line_beside_the_others(
    root: Path, spooldeck: Run
) -> None:
    """Missing or broken, it has its reason, its lock is unknown, and the code is 2."""
    run_now(root)
    gone, broken = root.parent / "gone", root.parent / "other"
    make_spool(broken, [])
    shutil.rmtree(broken / "queue" / "pending")
    config = root.parent / "places.yaml"
    config.write_text(f"places: [{root}, {gone}]\n")
    other = spooldeck("overview", broken, root)
    missing = [spooldeck("overview", root, gone), spooldeck("overview", "--config", config)]
    asked = spooldeck("locks", root, gone)
    assert "[CRIT]  other  cannot be read" in other.stdout
    assert row_of(other.stdout, "other")[:4] == ["?"] * 4
    for ended in missing:
        assert "[CRIT]  gone  cannot be read: no such folder" in ended.stdout
        assert "lock" not in ended.stdout
    for ended in (other, *missing):
        assert (ended.returncode, row_of(ended.stdout, "mail.out")[0]) == (2, "3")
    assert (asked.returncode, row_of(asked.stdout, "mail.out")[0]) == (2, "FREE")
    assert row_of(asked.stdout, "gone")[:4] == ["UNKNOWN", "?", "?", "?"]
    assert f"{gone}: no such folder" in " ".join(asked.stdout.split())


def test_the_locks(root: Path, spooldeck: Run) -> None:
    """Who has it, the evidence, what waits behind it; 1 where it needs an operator."""
    free = spooldeck("locks", root)
    lock = stuck_lock(root)
    stuck = spooldeck("locks", root)
    (told,) = rows(spooldeck, "locks", root)["locks"]
    lock.release()
    waiting = ["FREE", "-", "-", "3", "13m"]
    assert (free.returncode, row_of(free.stdout, "mail.out")[:5]) == (0, waiting)
    assert stuck.returncode == 1
    pid = str(os.getpid())
    assert row_of(stuck.stdout, "mail.out")[:7] == ["STUCK", "PID", pid, "47m", "ago", "3", "13m"]
    assert "waiting: 3 due tasks, oldest 13m" in stuck.stdout
    assert "by kind: report 3" in stuck.stdout and f"held by PID {pid}" in stuck.stdout
    assert (told["verdict"], told["pid"], told["due_by_kind"]) == ("stuck", int(pid), {"report": 3})
    assert re.search(r"STUCK \((likely|doubtful)\): ", stuck.stdout)
    words = " ".join(stuck.stdout.split())
    assert f"; but PID {pid} started " in words and "; no process is signalled waiting:" in words
    (process,) = told["processes"]
    assert (process["pid"], process["seconds"] > 0) == (int(pid), True)
    # This process, which has run other tests, may have more files open than are examined.
    is_cut = len(list(Path("/proc/self/fd").iterdir())) > MAX_FILES
    assert is_cut or "run/queue.lock" in " ".join(process["files_below"])


def test_foreign_text_and_another_locale_are_harmless(root: Path, spooldeck: Run) -> None:
    """No control character is printed, and only ASCII where the locale has no UTF-8."""
    run_now(root)
    hostile = root.with_name(f"odd{RED}")
    plain = spooldeck("overview", root, LC_ALL="C")
    root.rename(hostile)
    (hostile / "log" / "queue.log").write_text(f"[2026-11-20 09:41:23] [ERROR] {RED}\n")
    (hostile / "run" / "queue.lock").write_text(f"{RED}\n")
    assert (plain.returncode, plain.stdout.isascii()) == (0, True)
    for word in ("overview", "locks"):
        output = spooldeck(word, hostile).stdout
        assert "[31mred" in output and "\x1b" not in output


def console_on(root: Path) -> Console:
    """The console on the place that the command line would open, with its clock and signs."""
    settings = queue_config.load_config(None, {}, ())
    place = make_place(setup_for(settings, str(root), {}), str(root))
    return a_console(place, clock=time.time, first=keys.OVERVIEW, glyphs={})


async def test_the_overview_on_screen_is_the_overview_printed(root: Path, spooldeck: Run) -> None:
    """The line of a queue and its age table are word for word those of the screen."""
    await asyncio.to_thread(run_now, root)
    ended = await asyncio.to_thread(spooldeck, "overview", root, COLUMNS="80")
    printed = ended.stdout.splitlines()
    console = await asyncio.to_thread(console_on, root)
    async with console.run_test(size=(80, 24)) as pilot:

        def shown() -> list[str]:
            assert isinstance(console.screen, OverviewScreen)
            console.screen.paint()
            return screen_text(console.screen).splitlines()

        await until(pilot, lambda: any("Backlog started" in line for line in shown()))
        await until(pilot, lambda: any("13m" in line[:60] for line in shown()))
        for beginning in ("   TOTAL", "   report", " backlog started"):
            (line,) = [line.strip() for line in printed if line.startswith(beginning)]
            text = line.replace("backlog", "Backlog")  # with a capital on screen
            assert text in [each.strip() for each in shown()]
        assert row_of("\n".join(shown()), "mail.out")[:9] == row_of(ended.stdout, "mail.out")[:9]


async def test_the_transports_on_screen_are_those_printed(root: Path, spooldeck: Run) -> None:
    """Title and rows of the table are word for word those of the screen."""
    (root / "metrics").mkdir()
    (root / "metrics" / "mail.prom").write_text(MAIL)
    ended = await asyncio.to_thread(spooldeck, "transports", root, COLUMNS="80")
    console = await asyncio.to_thread(console_on, root)
    async with console.run_test(size=(80, 40)) as pilot:
        await until(pilot, lambda: console.sessions[0].has_readings)
        await pilot.press("6")
        await until(pilot, lambda: "sendmail" in screen_text(console.screen))
        lines = screen_text(console.screen).splitlines()
    table = ended.stdout.partition("\n\n")[0].splitlines()
    rows = [line[3:] for line in table if line[3:].startswith(NAMES)]
    assert len(rows) == len(NAMES)
    assert set(rows) <= {line[3:] for line in lines}


def test_the_workers(root: Path, spooldeck: Run) -> None:
    """A task in work has its worker, kind, times and heartbeat; a stuck lock needs attention."""
    run_now(root)
    idle = spooldeck("workers", root)
    write_task(root, "work", 30, age=400)
    lock = stuck_lock(root)
    stuck = spooldeck("workers", root)
    (told,) = rows(spooldeck, "workers", root)["workers"]
    (place,) = rows(spooldeck, "overview", root)["places"]
    status = rows(spooldeck, "status", root)
    lock.release()

    idle_row = ["-", "no", "worker", "running"]
    assert (idle.returncode, row_of(idle.stdout, "mail.out")) == (0, idle_row)
    assert stuck.returncode == 1
    head, row, *more = stuck.stdout.splitlines()
    assert head.split() == ["PLACE", "PID", "TASK", "KIND", "RUNNING", "HEARTBEAT"]
    assert row.split()[:3] == ["!", "mail.out", str(os.getpid())]
    assert row.split()[-2:] == ["47m", "ago"]
    assert not more
    assert (told["pid"], told["stuck"], told["kind"]) == (os.getpid(), True, "report")
    assert told["heartbeat_seconds"] == pytest.approx(2850, abs=29)
    assert told["started_at"].endswith("Z")
    assert told["started"] == pytest.approx(time.time(), abs=60)
    assert told["limit_seconds"] is None
    assert (place["stalled"], status["stalled"]) == (True, True)
    assert [worker["pid"] for worker in place["workers"]] == [os.getpid()]
    assert [kind["kind"] for kind in place["kinds"]] == ["report"]


def test_the_kinds(root: Path, spooldeck: Run) -> None:
    """Rate, failures and latency of each kind in the log of the last ten minutes."""
    now = time.time()
    id = "20261120T094121Z-mail_send-c2c41696"
    lines = (
        ("Queue processor completed: 0 processed, 0 failed", now - 900),
        (f"Task queued: {id} (mail_send)", now - 90),
        (f"Processing task: {id} (mail_send: {RED})", now - 50),
        (f"Task completed: {id} (mail_send)", now - 48),
    )
    log = b"".join(format_log_line("INFO", text, when) for text, when in lines)
    (root / "log" / "queue.log").write_bytes(log)
    ended = spooldeck("kinds", root)
    kinds = rows(spooldeck, "kinds", root)["kinds"]
    assert (ended.returncode, ended.stderr) == (0, "")
    assert row_of(ended.stdout, "KIND")[:4] == ["/min", "FAIL%", "WAIT", "p50"]
    assert row_of(ended.stdout, "mail_send") == ["0.1", "0%", "40s", "40s", "2s", "2s", "log"]
    assert row_of(ended.stdout, "report") == ["0.0", "-", "-", "-", "-", "-", "log"]
    mail, report = kinds
    assert (mail["kind"], mail["wait_p95"], mail["source"]) == ("mail_send", 40.0, "log")
    assert (report["run_p50"], report["unknown"]) == (None, "no runs in the log in 10m")


@pytest.mark.parametrize("command", ["kinds", "top"])
def test_a_place_without_kinds_says_why(root: Path, spooldeck: Run, command: str) -> None:
    """A place that cannot be read has no row: it is a line on standard error, and exit 2."""
    ended = spooldeck(command, str(root), "redis://127.0.0.1:1/0")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("spooldeck: 127.0.0.1:1: redis://127.0.0.1:1/0: not connected")
