"""A task in full, from real spools: its parts, its payload, and how it changes meanwhile."""

from __future__ import annotations

import asyncio
import base64
import gc
import os
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from textual.geometry import Region

from engine import verbs
from engine.config import queue_config
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.bullmq.moves import EDGES
from engine.formats.known_formats import setup_for
from engine.locks.token_buckets import BucketState
from engine.logs.log_line import format_log_line
from engine.model import ATTEMPTS_ALLOWED_KEY, Edges, Relative, Relatives, State, Task
from engine.places.place import CopiedLog, Place
from tests.console_operator import ConsoleOperator, an_operator, clock_of
from tests.console_places import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_task,
    disk_place,
    make_spool,
    put_file,
    some_tasks,
)
from tests.mail_transports import PlaceTransports
from tests.nftban_queues import Run, store_at
from tests.tables import each
from tests.tui.drawn_screens import AT_WORK
from tui.cli.setup.places import open_places
from tui.plan import planning
from tui.queue.problems_screen import ProblemsScreen
from tui.queue.screen import QueueScreen
from tui.screens.help import HelpScreen
from tui.screens.target import Target
from tui.task import parts
from tui.task.parts import TABS
from tui.task.screen import TaskScreen
from tui.task.task_lines import show_command
from tui.text import keys
from tui.text.lines import Line
from tui.widgets.line_widgets import Lines, LongText

ERROR = "550 5.1.1 user unknown"


class TaskOperator(ConsoleOperator):
    """An operator who looks at tasks of a spool."""

    root: Path

    async def show(self, task: Task) -> None:
        """Open the screen of a task."""
        if isinstance(self.console.screen, TaskScreen):
            await self.opens(QueueScreen, "escape")
        self.console.navigator.goto(Target(keys.TASK, id=task.id))
        screen = await self.opens(TaskScreen)
        lines = screen.query(Lines)
        await self.until(lambda: sum(len(pane.lines) for pane in lines) > 7)

    @property
    def part(self) -> LongText:
        """The pane with the part that is looked at."""
        return self.console.screen.query_one("#text", LongText)

    async def turns_to(self, title: str, *texts: str) -> None:
        """Go on to a part, and wait until it shows these."""
        await self.until(lambda: f" {title}" in self.line("parts"))
        page = self.console.screen
        assert isinstance(page, TaskScreen)
        for _ in TABS:  # at most once around; the name on screen may still be that before
            if page.parts.tab != title:
                await self.press("l")
                await self.pilot.pause()
        await self.on_part(title, *texts)

    def log(self, level: str, text: str, ago: float = 0.0) -> None:
        """One more line in the queue's log."""
        with (self.root / "log" / "queue.log").open("ab") as file:
            file.write(format_log_line(level, text, NOW - ago))


@asynccontextmanager
async def a_spool(
    root: Path, *tasks: Task, size: tuple[int, int] = (80, 24), **place: object
) -> AsyncIterator[TaskOperator]:
    """A console on a spool with these tasks."""
    make_spool(root, list(tasks))
    clock, place = Clock(), {"command": ("spooldeck", "--root", "/q"), **place}
    here = disk_place(root, "here", clock)._replace(**place)  # type: ignore[arg-type]
    async with an_operator(here, clock=clock, size=size, start_armed=False) as made:
        operator = TaskOperator(made.console, made.pilot)
        operator.root = root
        yield operator


@asynccontextmanager
async def on_task(
    root: Path, task: Task, *others: Task, **named: Any
) -> AsyncIterator[TaskOperator]:
    """The same, with the screen of the first task open."""
    async with a_spool(root, task, *others, **named) as operator:
        await operator.show(task)
        yield operator


def a_dead_task(number: int = 902, **fields: object) -> Task:
    """A mail that was given up on two hours ago."""
    fields = {"kind": "mail_send", "error": ERROR, "attempts": 3, **fields}
    fields |= {"extra": {"dead_since": str(int(NOW - 7260))}}
    return a_task(number, State.DEAD, **fields)


def spooled(root: Path, meta: str, number: int = 0, **files: str) -> str:
    """A mail in the spool as the contract has it; answers with the path of its meta.sh."""
    folder = root / "mailspool" / f"mail-20261120T094604Z-a96ebf{number:02x}"
    folder.mkdir(parents=True)
    for name, text in {"meta.sh": meta, **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder / "meta.sh")


def a_mail(root: Path) -> str:
    """A spooled mail with encoded words and a page in base64; answers with its meta.sh."""
    page = base64.encodebytes(b"<h1>Disk <b>full</b></h1><script>evil()</script>").decode()
    return spooled(
        root,
        'MAIL_TO="a@b.example"\nMAIL_SUBJECT="$(touch ran)"\n',
        body_eml="From: =?utf-8?q?J=C3=BCrgen?= <a@b.example>\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\n"
        f"Content-Type: text/html\nContent-Transfer-Encoding: base64\n\n{page}",
    )


async def test_the_summary_of_a_dead_task(tmp_path: Path) -> None:
    """Since when, why, how many share the error, what would show it: on the reference screen. The
    fields that the contract does not name are shown as well, and the id, the row, JSON and the
    command of the task can be copied."""
    task = a_dead_task()
    others = [a_task(number, State.DEAD, error=ERROR) for number in range(3)]
    place: dict[str, Any] = {"max_attempts": lambda task: 4, "has_handler": lambda kind: True}
    async with a_spool(tmp_path, task, *others, **place) as operator:
        with (tmp_path / "queue" / "dlq" / f"{task.id}.task").open("a") as file:
            file.write('TASK_NOTE="from the night shift"\n')
        await operator.show(task)
        await operator.sees(
            "died 07:41:08Z (2h01m ago), after 4 attempts",
            "stays here until retried (attempts reset)",
            f"error {ERROR}",
            ", 3 others",
            "still? ",
            "description mail_send for feed 902",
            "attempts 4 of 4",
            f"cli spooldeck --root /q queue dlq show {task.id}",
            "revision ",
            "TASK NOTE from the night shift",
            "dead since",
        )
        screen = await operator.opens(TaskScreen)
        copies = {copy.name: copy.text for copy in screen.copies()}
        assert copies["id"] == task.id
        assert copies["command"] == f"spooldeck --root /q queue dlq show {task.id}"
        assert ERROR in copies["row"] and f'"id": "{task.id}"' in copies["JSON"]
        # The file of a task that was given up counts retries, one less than the attempts.
        await operator.pilot.resize_terminal(120, 40)
        await operator.sees("failed, given up, attempt 4")


async def test_a_waiting_task_says_why(tmp_path: Path) -> None:
    """What keeps it is the same that the rules of waiting say, and it goes with the clock. A task
    that no log names has no attempts, until a line comes."""
    task, other = a_task(5, due=NOW + 600, attempts=1), a_task(8)
    async with a_spool(tmp_path, task, other, max_attempts=lambda task: 4) as operator:
        await operator.show(task)
        texts = "attempts 1 of 4", f"--filter id={task.id}", "O runs it now"
        await operator.sees("waits backoff until 09:52:08Z (in 10m)", *texts)
        clock_of(operator).now = NOW + 660
        await operator.sees("waits due for 1m", "next t follows its log")
        await operator.show(other)
        await operator.sees("attempts 0 of 4", "next t follows its log")
        await operator.until(lambda: "files" in operator.line("parts"))
        assert not {"attempts", "log"} & set(operator.line("parts").split())
        operator.log("INFO", f"Processing task: {other.id} ({other.kind}: x)")
        await operator.turns_to("log", "I Processing task")


async def test_log_lines_of_a_server_elsewhere_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come when the log was copied; if it cannot be copied any more, they are older ones.
    Below another screen nothing is copied, until the task is on top again."""
    monkeypatch.setattr(parts, "COPY_SECONDS", 0.0)
    task, copy, problems, fetches = a_dead_task(), tmp_path / "far.log", list[str](), list[str]()

    def fetch() -> str:
        copy.write_bytes(format_log_line("INFO", f"{task.id}: sent far away", NOW))
        fetches.append("")
        return "".join(problems)

    log = CopiedLog(str(copy), fetch)
    async with on_task(tmp_path, task, size=(120, 40), log_copy=log) as operator:
        screen = await operator.opens(TaskScreen)
        await operator.sees("sent far away")
        await operator.opens(HelpScreen, "?")
        number = len(fetches)
        for _ in range(5):
            screen.tick()
            await operator.pilot.pause(0.01)
        assert len(fetches) == number
        problems.append("mx2: connection lost")
        await operator.opens(TaskScreen, "escape")
        await operator.sees("the server's log is not copied: mx2: connection lost; older lines:")


async def test_a_frame_has_one_countdown_for_one_moment(tmp_path: Path) -> None:
    """The end of a backoff and the expected start count down together, also between two reads of
    the reasons, and the tokens of the rate limit are beside them."""
    task, limit = a_task(5, due=NOW + 45, attempts=1), BucketState("mail_send", 0, 5, NOW, 720)
    place = {"tokens": lambda: (limit,), "lock": lambda: AT_WORK}
    async with on_task(tmp_path, task, **place) as operator:
        await operator.sees("backoff until 09:42:53Z (in 45s)", "rate limit 0 of 5 tokens, 720/h")
        with patch.object(parts, "REASONS_SECONDS", 3600.0):
            clock_of(operator).now = NOW + 18
            await operator.sees("backoff until 09:42:53Z (in 27s)", "at about 09:42:53Z (in 27s)")
        assert "shows the rate limit" not in operator.line("word")


async def test_mail_that_is_kept_back_is_not_shown_as_ready(tmp_path: Path) -> None:
    """Who suspended what would send it is named, with the reason and how to resume it; a verb for
    other states is not offered."""
    room = PlaceTransports(tmp_path, lambda: NOW, installed=("curl",))
    task = a_task(5, due=NOW - 60, kind="mail_send")
    shut = "no mail transport: curl suspended by operator"
    place: dict[str, Any] = {"claim_obstacle": lambda kind: shut, "mail": room.place_mail()}
    async with a_spool(tmp_path, task, **place) as operator:
        suspend = room.suspensions.suspend
        await asyncio.to_thread(suspend, "curl", NOW - 300, "ana", "the relay moves")
        await operator.show(task)
        await operator.sees("waits no mail transport: curl suspended by", "runs ? start unknown: ")
        await operator.sees("by ana since 09:37:08Z (5m ago): the relay moves (`mail resume curl`")
        assert "retry" not in operator.line("hints")
        assert "hold" in operator.line("hints")


async def test_a_spooled_mail_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its headers and its page are text; what meta.sh contains is shown and never run. Of the task
    and each file of its payload size, times, inode, mode and owner are shown. `l` goes on and
    around, `h` back; each part is where it was left; `t` asks for the log, searched for the task.
    """
    monkeypatch.chdir(tmp_path)
    task = a_dead_task(payload=a_mail(tmp_path))
    file, meta = tmp_path / "queue" / "dlq" / f"{task.id}.task", Path(task.payload)
    async with on_task(tmp_path, task) as operator:
        headers = "From: Jürgen <a@b.example>", "Subject: Grüße", "Subject $(touch ran)"
        await operator.turns_to("payload", *headers, "Disk full")
        assert "evil()" not in operator.page
        sources = "TASK_ID=", "=?utf-8?q?J=C3=BCrgen?=", "Content-Transfer-Encoding"
        await operator.turns_to("files", *sources)
        inodes = [f"inode {path.stat().st_ino}" for path in (file, meta)]
        size = f"{file.stat().st_size} bytes"
        await operator.sees(*inodes, size, "mode -rw-r-----", "mail/body.eml", "modified ")
        assert not (tmp_path / "ran").exists()

        await operator.pilot.resize_terminal(80, 12)
        titles = ["summary", "payload", "files", "3"]
        await operator.until(lambda: operator.line("parts").split() == titles)
        for title in ("summary", "payload", "files", "summary"):
            await operator.press("l")
            await operator.on_part(title)
        await operator.press("left")
        await operator.sees("TASK_ID")
        await operator.press("j", "j", "j")
        assert operator.part.top == 3
        await operator.turns_to("summary", "died")
        assert operator.part.top == 0
        await operator.turns_to("files", "TASK_ID")
        await operator.until(lambda: operator.part.top == 3)
        asked: list[Target] = []
        operator.console.navigator.goto = asked.append  # type: ignore[method-assign, assignment]
        await operator.press("t")
        assert asked == [Target(keys.LOG, id=task.id)]


META = """\
MAIL_TO="admin@example.com"
MAIL_SUBJECT="=?utf-8?b?R3LDvMOfZQ==?= from mx1"
MAIL_BODY_FILE="/elsewhere/body.html"
MAIL_CREATED_EPOCH="1795167964"
"""
PAGE = "3 bans &lt;today&gt;<script>evil()</script><p>bye"
BODY = {"body_txt": "x"}
BY_CURL = 'TRANSPORT="curl"\nSINCE="1795167668"\n'
MAILS: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"body_txt": "<b>no tag here</b>\n"}, ("mail/body.txt: text", "<b>no tag here</b>")),
    ({"body_html": PAGE}, ("mail/body.html: HTML", "3 bans <today>", "bye")),
    ({**BODY, "trying": BY_CURL}, ("mail/trying", "being sent by curl since 09:41:08Z")),
    ({**BODY, "sent": BY_CURL}, ("mail/sent", "sent by curl since 09:41:08Z")),
    ({**BODY, "refused": f'WHY="{ERROR}"\n'}, ("mail/refused", f"refused: {ERROR}")),
    ({**BODY, "sent": ""}, ("sent (marker not readable: empty: a write was interrupted)",)),
)
HOSTILE_META = (
    ('MAIL_TO="$(touch ran)"\n', 'MAIL_TO="$(touch ran)"'),
    ("MAIL_TO=`touch ran`\n", "expected KEY"),
    ('MAIL_TO="a@b.example', "no newline at its end"),
    ('MAIL_TO="\x1b[31m"\n', "\ufffd[31m"),
)


async def test_a_spooled_mail_is_read_as_one_does(tmp_path: Path) -> None:
    """Whom it is for, about what and since when; then its body; then how far it has come. Of one
    that a shell would run something of, the text is shown with the reason, and the body."""
    mails = [spooled(tmp_path, META, n, **files) for n, (files, _) in enumerate(MAILS)]
    for n, (meta, _) in enumerate(HOSTILE_META):
        mails.append(spooled(tmp_path, meta, 16 + n, body_txt="the body\n"))
    tasks = [a_dead_task(900 + n, payload=path) for n, path in enumerate(mails)]
    async with a_spool(tmp_path, *tasks, size=(80, 50)) as operator:
        for task, (_, texts) in zip(tasks, MAILS, strict=False):
            await operator.show(task)
            await operator.turns_to("payload", "To admin@example.com", "Subject Grüße from mx1")
            await operator.sees("created 09:46:04Z", *texts)
            assert "evil()" not in operator.page
            await operator.turns_to("files", 'MAIL_TO="admin@example.com"')
        for task, (_, why) in zip(tasks[len(MAILS) :], HOSTILE_META, strict=True):
            await operator.show(task)
            await operator.turns_to("payload", "not parsed: ", "not executed", why, "the body")
            assert "\x1b" not in operator.page
    assert not (tmp_path / "ran").exists()


async def test_attempts_come_from_the_log(tmp_path: Path) -> None:
    """When each began, how it ended, and that the logs do not have all. From 120x30 on attempts
    and log are to the right of the summary."""
    task = a_dead_task()
    async with a_spool(tmp_path, task) as operator:
        for number, ago in ((1, 7500.0), (2, 7400.0)):
            sending = f"task_id={task.id} attempt={number} transport=curl to=a@b.c"
            operator.log("INFO", f"Processing task: {task.id} (mail_send: x)", ago)
            operator.log("INFO", f"MAIL_SEND_ATTEMPT {sending}", ago - 1)
            operator.log("ERROR", f"Task failed: {task.id} (mail_send): {ERROR}", ago - 2)
            failed = f"Task {task.id} failed (attempt {number}/3), retry in 60s"
            operator.log("WARN", failed, ago - 2)
        await operator.show(task)
        failed, missing = "failed after 2s, will retry", "2 of 3 attempts in the logs: the logs do"
        await operator.turns_to("attempts", "1 07:37:08Z", failed, "2 07:38:48Z", missing)
        await operator.turns_to("log", "07:37:08 I Processing task", "07:38:50 W")
        await operator.turns_to("summary")
        await operator.pilot.resize_terminal(120, 40)
        await operator.sees("- Attempts 2 -", "- t Log 8 -", "- Timeline -", "Processing task")
        assert operator.page.count(" started") == 2
        assert operator.line("waits").split()[0] == "died"


def opened_place(root: Path, settings: str = "") -> Place:
    """A spool as the command line opens it with these settings."""
    config = root / "config.yml"
    config.write_text(settings)
    loaded = queue_config.load_config(str(config), {"HOME": str(root)}, ())
    (place,) = open_places(setup_for(loaded, str(root), {}), [str(root)])
    return place


@each("state", [State.DEAD, State.PENDING])
def test_the_command_shows_the_task(tmp_path: Path, state: State, spooldeck: Run) -> None:
    """What the summary names as its command prints the task."""
    task = a_task(7, state)
    make_spool(tmp_path, [task])
    place = opened_place(tmp_path)
    program, *argv = show_command(place.command, task)
    ran = spooldeck(*argv)
    assert (program, ran.returncode) == ("spooldeck", 0), ran.stderr
    assert task.id in ran.stdout
    assert place.max_attempts(task) == 4


def test_a_kind_with_its_own_schedule_has_its_own_maximum(tmp_path: Path) -> None:
    """The maximum of attempts is that of the task, else of its kind, else of the queue."""
    make_spool(tmp_path, [])
    place = opened_place(tmp_path, "handlers: {own: {command: [x], retry: fixed 5s limit 1}}\n")
    own = a_task(1, kind="own")
    tasks = a_task(2), own, own._replace(extra={ATTEMPTS_ALLOWED_KEY: "3"})
    assert [place.max_attempts(task) for task in tasks] == [4, 2, 3]


# While it is looked at


async def test_enter_goes_to_a_child_and_back_to_its_parent() -> None:
    """Parent and children are below the text: j moves between them, Enter opens the task, and says
    so of one that is gone; without any there is no list. A text of control bytes is shown as text.
    """
    parent, child = a_task(1), a_task(2)

    class FamilyStore(MemoryStore):
        """A store with one parent, a child, and a child that is gone."""

        def relatives(self, task: Task, limit: int) -> Relatives:
            if task.id == child.id:
                return Relatives(Relative(parent.id, "pending"))
            if task.id != parent.id:
                return Relatives()
            found = (Relative("x/9", "done", "\x1b[2J 42", False), Relative(child.id, "pending"))
            return Relatives(None, found, 250)

    memory = MemoryTasks()
    opened = a_place(memory)._replace(open=lambda: FamilyStore(memory))
    for task in (parent, child, a_task(3)):
        FamilyStore(memory).swap(None, task)
    async with an_operator(opened) as operator:
        operator.console.navigator.goto(Target(keys.TASK, id=parent.id))
        await operator.sees("Children 250, first 2", "x/9", "done", "[2J 42", "child")
        assert "\x1b" not in operator.text
        await operator.press("enter")
        await operator.until(lambda: "x/9 is not in this place" in operator.line("word"))
        await operator.press("j", "enter")
        await operator.sees("Parent", "> parent 00000001 pending")
        await operator.press("enter")
        await operator.sees("Children 250, first 2")
        operator.console.navigator.goto(Target(keys.TASK, id=a_task(3).id))
        absent = "Children", "Enter relative"
        await operator.until(lambda: not any(text in operator.text for text in absent))


async def test_a_verb_that_the_server_does_not_permit_is_grey_with_its_reason() -> None:
    """Its hint stays in the footer; its reason is in the help, and in the message when pressed."""
    transition, why = (State.DEAD, State.TRASH), "the server does not permit COPY"

    def without_purge(edges: Edges) -> Edges:
        return {**edges, transition: edges[transition]._replace(refusal=why)}

    assert planning.closed_verbs(without_purge(EDGES), State.DEAD) == {"plan('purge')"}
    store = MemoryStore(a_memory([a_task(1, State.DEAD)]))
    store.edges = without_purge(store.edges)
    async with an_operator(a_place(MemoryTasks(), open=lambda: store)) as operator:
        await operator.press("4")
        await operator.sees("R retry X purge H hold")
        await operator.press("X")
        await operator.sees(f"purge: {why}")
        await operator.press("question_mark")
        await operator.sees("Refused now", "purge: the server does not")


async def test_a_task_that_changes_is_followed(tmp_path: Path) -> None:
    """What became another is said, and the text stays where it was; a task that is retried goes
    from dlq to pending on screen."""
    task = a_dead_task()

    def retry() -> None:
        with store_at(tmp_path, lambda: NOW) as store:
            (stored_task,) = (t for t in store.scan({task.id}) if isinstance(t, Task))
            store.swap(stored_task, verbs.retry(stored_task, NOW))

    async with on_task(tmp_path, task, size=(80, 10)) as operator:
        await operator.turns_to("files", "TASK_ID")
        await operator.press("j", "j")
        put_file(tmp_path, task._replace(error="421 4.7.0 try later"))
        await operator.sees("09:42:08Z new error", '="421 4.7.0 try later"')
        assert operator.part.top == 2
        await operator.turns_to("summary")
        await asyncio.to_thread(retry)
        await operator.sees("moved DLQ -> pending", "state pending", "waits ")


async def test_a_text_that_is_cut_names_the_key_to_its_rest(tmp_path: Path) -> None:
    """With the number of lines below, until the last one is seen."""
    async with on_task(tmp_path, a_dead_task(), size=(80, 18)) as operator:
        await operator.sees("4 more: PgDn")
        await operator.press("pagedown", "pagedown", "pagedown")
        await operator.until(lambda: "more: PgDn" not in operator.text)
        await operator.sees("revision")


async def test_a_task_that_is_done_is_kept_on_screen(tmp_path: Path) -> None:
    """It is said that it left, where to, and what was seen last stays; a screen that was asked for
    one that is nowhere says so."""
    task = a_task(4)
    async with on_task(tmp_path, task) as operator:
        await operator.sees("waits due")
        operator.log("SUCCESS", f"Task completed: {task.id} ({task.kind})")
        (tmp_path / "queue" / "pending" / f"{task.id}.task").unlink()
        await operator.sees("task is gone: log: succeeded at 09:42:08Z")
        assert task.kind in operator.page
        await operator.opens(QueueScreen, "escape")
        operator.console.navigator.goto(Target(keys.TASK, id="20261120T094115Z-job-ffffffff"))
        screen = await operator.opens(TaskScreen)
        await operator.sees("task not found")
        assert screen.copies() == ()


# What others put there

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066[@click=app.quit]x[/]\0\r\x7f"

PAYLOADS: tuple[tuple[Callable[[Path], object], str], ...] = (
    (lambda path: path.write_text(HOSTILE * 20), "payload"),
    (lambda path: path.write_text("words " * 80 + HOSTILE), "@click=app.quit"),
    (lambda path: path.write_bytes(b"x" * 5_000_000), "first 1,048,576"),
    (lambda path: os.mkfifo(path), "not read: is a FIFO"),
    (lambda path: path.write_bytes(bytes(range(256)) * 4), "00000010"),
    (lambda path: path.write_text("word " * 200_000), "word word"),
)


async def test_a_payload_is_inert(tmp_path: Path) -> None:
    """For any payload, each part of the task is shown, and nothing acts. A megabyte without an end
    of line is folded, and its end is one key away."""
    paths = [tmp_path / "mailspool" / f"mail-{n}" / "meta.sh" for n in range(len(PAYLOADS))]
    tasks = [a_dead_task(900 + n, payload=str(path)) for n, path in enumerate(paths)]
    for path, (make, _) in zip(paths, PAYLOADS, strict=True):
        path.parent.mkdir(parents=True)
        make(path)
    async with a_spool(tmp_path, *tasks) as operator:
        for task, (_, text) in zip(tasks, PAYLOADS, strict=True):
            await operator.show(task)
            await operator.turns_to("payload", text)
            for title in ("payload", "files", "summary"):
                await operator.turns_to(title)
                operator.assert_inert()
        await operator.turns_to("payload", "word word")
        await operator.press("G")
        assert operator.part.top > 10_000


async def test_every_part_fits_every_width(tmp_path: Path) -> None:
    """Each line is as wide as its pane, with any names."""
    task = a_dead_task(payload=a_mail(tmp_path), description="\u6f22" * 90, error="e" * 200)

    def fits(width: int) -> bool:
        panes = [pane for pane in operator.console.screen.query(Lines) if pane.region]
        fit = all(
            strip.cell_length == p.outer_size.width
            for p in panes
            for strip in p.render_lines(Region(0, 0, *p.outer_size))
        )
        lengths = [len("".join(text for text, _ in line)) for line in operator.part.lines]
        return fit and max(lengths, default=0) <= width + 1

    async with a_spool(tmp_path, task) as operator:
        operator.log("ERROR", f"Task failed: {task.id} (mail_send): " + "x" * 500)
        await operator.show(task)
        for size in ((40, 10), (80, 24), (200, 60)):
            await operator.pilot.resize_terminal(*size)
            for _ in TABS:
                await operator.press("l")
                await operator.until(partial(fits, size[0]))


async def test_the_bytes_of_a_problem(tmp_path: Path) -> None:
    """A broken file is shown with how it begins, a link with why it is not read; nothing acts."""
    async with a_spool(tmp_path, *some_tasks(2, 0, 2)) as operator:
        dlq = tmp_path / "queue" / "dlq"
        (dlq / "broken.task").write_bytes(b"TASK_ID=\0" + HOSTILE.encode())
        (dlq / "link.task").symlink_to("/etc/passwd")
        await operator.until(lambda: operator.queue.session.inspector.latest.problems == 2)
        await operator.opens(ProblemsScreen, "h", "enter")
        await operator.sees("00000000 54 41 53 4b 5f 49 44 3d 00 1b", "TASK_ID=")
        await operator.sees("not read: link.task")
        assert "root:" not in operator.page
        operator.assert_inert()


async def test_a_part_is_painted_although_a_repaint_is_asked_for_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that takes longer than the second after which it is painted again is shown."""
    task = a_dead_task(payload=spooled(tmp_path, "a word"))
    async with on_task(tmp_path, task) as operator:
        loop, screen = asyncio.get_running_loop(), operator.console.screen

        def slow(*facts: object) -> list[Line]:
            assert isinstance(screen, TaskScreen)
            loop.call_soon_threadsafe(screen.paint)
            return [(("laid out", ""),)]

        monkeypatch.setitem(TABS, "files", slow)
        await operator.turns_to("files", "laid out")


async def test_a_reading_that_is_cancelled_before_it_begins_leaves_no_warning() -> None:
    """When the console closes, or a second tick follows, the reading of a tick may never begin. In
    the trash R restores and X expunges, on the task screen as in the list."""
    task = a_task(99, State.TRASH)
    async with an_operator(a_place(a_memory([task, *some_tasks()])), size=(120, 40)) as operator:
        operator.console.navigator.goto(Target(keys.TASK, id=task.id))
        screen = await operator.opens(TaskScreen)
        await operator.sees("R restore X expunge")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            screen.tick()
            screen.tick()
            await operator.press("r")
            await operator.pilot.pause()
            gc.collect()
        assert [str(warning.message) for warning in caught] == []


async def test_a_narrow_screen_names_the_key_of_the_parts() -> None:
    """At 80 columns the hints begin with it: without it the other parts are not found."""
    async with an_operator(a_place(a_memory([a_task(1)]))) as operator:
        await operator.step("2", "00000001")
        await operator.step("enter", "h l parts")
