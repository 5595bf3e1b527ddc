"""The jobs that the console is for, key by key, on a real spool with a real worker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.logs.log_line import format_log_line
from engine.model import State, Task
from engine.operations.journal import Journal
from engine.operations.plans import RowResult
from engine.places.place import Place
from tests.console_operator import ConsoleOperator, an_operator, key_of
from tests.console_places import make_spool
from tests.tui.workers_with_lock import wired
from tui.log.screen import LogScreen
from tui.operations.screen import OperationsScreen
from tui.plan.screen import PlanScreen
from tui.task.screen import TaskScreen
from tui.text import keys

GONE, STILL = "421 4.7.0 try again later", "550 5.1.1 user unknown"
CONFIG = """\
handlers:
  job: {{command: [sh, {handler}], timeout: 60}}
queue: {{max_retries: 0}}
"""
HANDLER = """\
case $TASK_DESCRIPTION in
  still*) echo "550 5.1.1 user unknown"; exit 1 ;;
esac
"""
off = asyncio.to_thread


def dead_tasks(many: int, word: str, error: str, first: int) -> Iterator[Task]:
    """So many tasks that died an hour ago of one error."""
    died = time.time() - 3600
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(died - 600))
    for number in range(first, first + many):
        task = Task(f"{stamp}-job-{number:08x}", "job", State.DEAD, float(int(died - 600)))
        extra = {"dead_since": str(int(died))}
        yield task._replace(attempts=1, description=f"{word} {number}", error=error, extra=extra)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with 14 tasks that would run now and 5 that would not, as the command opens it."""
    make_spool(tmp_path, [*dead_tasks(14, "gone", GONE, 0), *dead_tasks(5, "still", STILL, 100)])
    for old in ("log/queue.log", "metrics/queue.prom", "metrics/mail.prom"):
        (tmp_path / old).unlink()
    (tmp_path / "handler.sh").write_text(HANDLER)
    return wired(tmp_path, CONFIG.format(handler=tmp_path / "handler.sh"))


@contextmanager
def a_worker(place: Place) -> Iterator[None]:
    """The place's own worker, in a process of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(place.worker_command, **quiet) as worker:  # type: ignore[call-overload]
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[ConsoleOperator]:
    """The console as it opens, and then its dead-letter queue."""
    fields: dict[str, Any] = {"start_armed": False, "clock": time.time, "first": keys.OVERVIEW}
    async with an_operator(place, **fields) as operator:
        await operator.step("4", "[DLQ 19]")
        yield operator


async def plan(operator: ConsoleOperator, key: str, words: str) -> None:
    """Press a key that leads to a plan, arm, and type the count that it asks for."""
    screen = await operator.opens(PlanScreen, key)
    if not operator.console.context.arming.is_armed:
        await operator.press("!")
    await operator.sees(words)
    await operator.press(*screen.expected_digits)


def dead_in(root: Path) -> list[str]:
    """The ends of the ids in the dead-letter queue."""
    return sorted(path.stem[-8:] for path in (root / "queue/dlq").iterdir())


async def test_why_a_task_does_not_run_is_beside_its_row(place: Place) -> None:
    """Details say why it stays and whether its error still happens; Enter says all."""
    async with opened(place) as operator:
        await operator.sees("stays here until retried", "cluster F-", "still?")
        await operator.step("enter", TaskScreen, "died ", "after 1 attempt", "cluster F-")
        await operator.sees("stays here until retried (attempts reset)", "next R retries it")


@pytest.mark.deep
async def test_a_cluster_is_replayed_by_four_keys_and_a_count(place: Place, tmp_path: Path) -> None:
    """From the overview by 4, c, R, ! and 14 to a replay whose tasks were all really delivered."""
    with a_worker(place):
        async with opened(place) as operator:
            await operator.step("c", "try again later")
            await plan(operator, "R", "type 14 to replay 14")
            await operator.sees("DONE 14/14 100%", "14 done")
    assert await off(dead_in, tmp_path) == [f"{number:08x}" for number in range(100, 105)]
    (operation,) = await off(Journal(f"{tmp_path}/queue/.spooldeck/journal").operations)
    assert (operation.intent.verb, operation.counts[RowResult.DONE]) == ("retry", 14)


async def test_a_replay_stops_when_its_error_comes_back(place: Place, tmp_path: Path) -> None:
    """Where the cause of the errors is still there, the canaries fail, and the rest stays."""

    def make_all_fail() -> None:
        for path in (tmp_path / "queue/dlq").iterdir():
            path.write_text(path.read_text().replace("gone", "still").replace(GONE, STILL))

    await off(make_all_fail)
    with a_worker(place):
        async with opened(place) as operator:
            await operator.press("*")
            await plan(operator, "R", "type 19 to replay 19")
            await operator.sees("STOPPED", "not sent (still in DLQ) = 19")
    assert len(await off(dead_in, tmp_path)) == 19


async def test_a_purge_is_undone_byte_for_byte(place: Place, tmp_path: Path) -> None:
    """By a filter into the trash, and back: names, bytes, modes and owners are as they were."""

    def change_modes() -> None:
        for number, path in enumerate(sorted((tmp_path / "queue/dlq").iterdir())):
            path.chmod((0o600, 0o640, 0o644)[number % 3])

    def files() -> dict[str, tuple[bytes, int, int, int]]:
        found = ((path, path.stat()) for path in (tmp_path / "queue").rglob("*.task"))
        return {str(p): (p.read_bytes(), s.st_mode, s.st_uid, s.st_gid) for p, s in found}

    await off(change_modes)
    before = await off(files)
    async with opened(place) as operator:
        await operator.step("/ unknown enter", "5 of 19")
        await operator.press("*")
        await plan(operator, "X", "type 5 to purge 5")
        await operator.sees("5 purged")
        assert await off(files) != before
        await operator.step("u", OperationsScreen, "last 24 h", "DONE", "u undo")
        await plan(operator, key_of("plan_undo"), "type 5 to undo 5")
        await operator.sees("5 undone")
    assert await off(files) == before


async def test_the_last_error_of_a_transport_is_its_log_line(place: Place, tmp_path: Path) -> None:
    """From the overview by 6, Enter and Enter to the very line, with the server's reply in full."""
    now, reply = time.time(), "550 5.1.1 user unknown u14"
    failed = "20261120T092929Z-mail_send-261c374b"
    result = "MAIL_SEND_RESULT task_id={} status={} transport=curl {}"
    lines = [
        format_log_line("INFO", result.format("a", "success", f"n={at}"), at)
        for at in range(int(now) - 900, int(now) - 1)
    ]
    for number, error, ago in ((500, "421 too busy", 400), (600, reply, 300)):
        text = result.format(failed, "failed", f"retries=1 last_error={error}")
        lines[number] = format_log_line("ERROR", text, now - ago)
    await off((tmp_path / "log/mail.log").write_bytes, b"".join(lines))
    async with an_operator(place, clock=time.time, first=keys.OVERVIEW) as operator:
        await operator.step("6", "curl", "550 5.1.1")
        await operator.step("enter", "421 too busy")
        log = await operator.opens(LogScreen, "enter")
        await operator.until(lambda: log.parts.is_loaded and "\n> " in operator.text)
        (line,) = [text for text in operator.text.splitlines() if text.startswith("> ")]
        assert f" E mail  261c374b {reply} " in line
