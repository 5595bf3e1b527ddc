"""A task in full, from real spools: its parts, whatever they hold, and what becomes of it."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine import config, verbs
from engine.logtail import contract_line
from engine.model import State, Task
from engine.stores import open_store
from tests import command
from tests.tui.mailrooms import Mailroom
from tests.tui.spools import (
    NOW,
    Clock,
    a_console,
    a_task,
    disk_place,
    make_spool,
    put_file,
    some_tasks,
    until,
)
from tui import keys
from tui.app import Console
from tui.cli.console import places_of
from tui.cli.wiring import Setup
from tui.screens.face import Target
from tui.screens.problems import ProblemsScreen
from tui.screens.task import TITLES, TaskScreen
from tui.views.task import show_command
from tui.widgets.lines import Lines, LongText

ERROR = "550 5.1.1 user unknown"


class Desk:
    """A task's screen on a spool, and what a test does to both."""

    def __init__(self, root: Path, console: Console, pilot: Pilot[None], clock: Clock) -> None:
        self.root, self.console, self.pilot, self.clock = root, console, pilot, clock

    async def open(self, id: str) -> None:
        """Open the screen of a task."""
        self.console.goto(Target(keys.TASK, id=id))
        await until(self.pilot, lambda: isinstance(self.console.screen, TaskScreen))
        await until(self.pilot, lambda: self.page.count("\n") > 6 or "no such task" in self.page)

    @property
    def screen(self) -> TaskScreen:
        """The task's screen."""
        screen = self.console.screen
        assert isinstance(screen, TaskScreen)
        return screen

    @property
    def page(self) -> str:
        """All that it shows, further down as well."""
        rows = [line for pane in self.console.screen.query(Lines) for line in pane.lines]
        return "\n".join("".join(text for text, _ in line).rstrip() for line in rows)

    @property
    def words(self) -> str:
        """The same without the breaks of lines."""
        return " ".join(self.page.split())

    @property
    def text(self) -> LongText:
        """The pane with the part that is looked at."""
        return self.console.screen.query_one(LongText)

    async def sees(self, *words: str) -> None:
        """Wait until all of this is shown."""
        try:
            await until(self.pilot, lambda: all(word in self.words for word in words))
        except AssertionError:
            raise AssertionError(f"none of {words} in:\n{self.page}") from None

    async def part(self, title: str, *words: str) -> None:
        """Go to a part by its digit, and wait until it shows this."""
        await self.pilot.press(str(TITLES.index(title) + 1))
        await until(self.pilot, lambda: f"{title}]" in self.page)
        await self.sees(*words)

    def log(self, level: str, text: str, ago: float = 0.0) -> None:
        """One more line in the queue's log."""
        with (self.root / "log" / "queue.log").open("ab") as file:
            file.write(contract_line(level, text, NOW - ago))


@asynccontextmanager
async def a_desk(
    root: Path, tasks: list[Task], size: tuple[int, int] = (80, 24), **place: object
) -> AsyncIterator[Desk]:
    """A console on a spool with these tasks."""
    make_spool(root, tasks)
    for task in tasks:
        put_file(root, task).chmod(0o640)
    clock = Clock()
    here = disk_place(root, "here", clock)._replace(command=("spooldeck", "--root", "/q"))
    console = a_console(here._replace(**place), clock=clock)  # type: ignore[arg-type]
    async with console.run_test(size=size) as pilot:
        live = console.here
        await until(pilot, lambda: live.inspector.latest.complete and live.looked)
        yield Desk(root, console, pilot, clock)


def a_dead_task(**fields: object) -> Task:
    """A mail that was given up on two hours ago."""
    fields = {"kind": "mail_send", "error": ERROR, "attempts": 3, **fields}
    fields |= {"extra": {"dead_since": str(int(NOW - 7260))}}
    return a_task(902, State.DEAD, **fields)


def a_mail(root: Path) -> Path:
    """A spooled mail with encoded words and a page in base64; answers with its meta.sh."""
    folder = root / "mailspool" / "mail-20261120T094604Z-a96ebf3e"
    folder.mkdir(parents=True)
    (folder / "meta.sh").write_text(f'MAIL_TO="a@b.example"\nMAIL_SUBJECT="$(touch {root}/ran)"\n')
    page = base64.encodebytes(b"<h1>Disk <b>full</b></h1><script>evil()</script>").decode()
    (folder / "body.eml").write_text(
        "From: =?utf-8?q?J=C3=BCrgen?= <a@b.example>\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\n"
        f"Content-Type: text/html\nContent-Transfer-Encoding: base64\n\n{page}"
    )
    return folder / "meta.sh"


async def test_the_summary_says_what_one_needs(tmp_path: Path) -> None:
    """Since when, why, how many share the error, what would show it: on the reference screen."""
    task = a_dead_task()
    others = [a_task(number, State.DEAD, error=ERROR) for number in range(3)]
    async with a_desk(tmp_path, [task, *others], runs=4, handled=lambda kind: True) as desk:
        await desk.open(task.id)

        await desk.sees(
            "Dead since 07:41:08Z (2h01m ago): gave up after 3 counted attempts.",
            f"Last error: {ERROR} (F-",
            ", 3 others).",
            "what mail_send: mail_send for feed 902",
            "attempts 3 of 4: the failure that buries is not counted",
            "why it runs again only if retried, then as if new",
            f"cli spooldeck --root /q queue dlq show {task.id}",
            "rev ",
        )
        assert len(desk.text.lines) <= desk.text.size.height


async def test_a_waiting_task_says_why(tmp_path: Path) -> None:
    """What keeps it is the same that the rules of waiting say, and it goes with the clock."""
    task = a_task(5, due=NOW + 600, attempts=1)
    async with a_desk(tmp_path, [task], runs=4) as desk:
        await desk.open(task.id)

        await desk.sees("Waits until 09:52:08Z (in 10m).", "why not run backoff until 09:52:08Z")
        await desk.sees("attempts 1 of 4", f"--filter id={task.id}")

        desk.clock.now = NOW + 660
        await desk.sees("Due since 09:52:08Z", "why not run due for 1 min")


async def test_mail_that_is_kept_back_is_not_said_to_be_ready(tmp_path: Path) -> None:
    """Whoever suspended what would send it is named, with the reason and how to resume it; and
    what cannot be planned for it is grey.
    """
    room = Mailroom(tmp_path, lambda: NOW, here=("curl",))
    task = a_task(5, due=NOW - 60, kind="mail_send")
    shut = "no mail transport: curl suspended by operator"
    async with a_desk(tmp_path, [task], shut=lambda kind: shut, mail=room.desk()) as desk:
        said = ("curl", NOW - 300, "ana", "the relay moves")
        await asyncio.to_thread(room.suspensions.suspend, *said)
        await desk.open(task.id)

        await desk.sees("Due since 09:41:08Z", "why not run no mail transport: curl suspended by")
        await desk.sees("by ana since 09:37:08Z (5m ago): the relay moves (`mail resume curl`")
        hints = desk.console.screen.query_one("#hints", Lines).lines
        grey = "".join(text for line in hints for text, look in line if look == "grey")
        assert "retry" in grey
        assert "hold" not in grey


async def test_every_field_is_shown(tmp_path: Path) -> None:
    """Those that the contract does not name as well, and the revision."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task]) as desk:
        with (tmp_path / "queue" / "dlq" / f"{task.id}.task").open("a") as file:
            file.write('TASK_NOTE="from the night shift"\n')
        await desk.open(task.id)

        await desk.part("fields", "TASK NOTE from the night shift", "revision", "dead since")


async def test_a_spooled_mail_is_decoded(tmp_path: Path) -> None:
    """Its headers and its page are text; what lies in meta.sh is shown and never run."""
    task = a_dead_task(payload=str(a_mail(tmp_path)))
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)

        await desk.part("payload", "From: Jürgen <a@b.example>", "Subject: Grüße", "Disk full")

        assert f"Subject $(touch {tmp_path}/ran)" in desk.words.replace(" / ", "/")
        assert "evil()" not in desk.page
        assert not (tmp_path / "ran").exists()
        await desk.part("raw", "TASK_ID=", "=?utf-8?q?J=C3=BCrgen?=", "Content-Transfer-Encoding")


def spooled(root: Path, meta: str, **files: str) -> str:
    """A mail in the spool as the contract has it; answers with the path of its meta.sh."""
    folder = root / "mailspool" / "mail-20261120T094604Z-a96ebf3e"
    folder.mkdir(parents=True)
    for name, text in {"meta.sh": meta, **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return str(folder / "meta.sh")


META = """\
MAIL_TO="admin@example.com"
MAIL_SUBJECT="=?utf-8?b?R3LDvMOfZQ==?= from mx1"
MAIL_BODY_FILE="/elsewhere/body.html"
MAIL_CREATED_EPOCH="1795167964"
"""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"body_txt": "<b>no tag here</b>\n"}, ("mail/body.txt: text", "<b>no tag here</b>")),
        (
            {"body_html": "3 bans &lt;today&gt;<script>evil()</script><p>bye"},
            ("mail/body.html: HTML", "3 bans <today>", "bye"),
        ),
        (
            {"body_txt": "x", "trying": 'TRANSPORT="curl"\nSINCE="1795167668"\n'},
            ("mail/trying", "being sent by curl since 09:41:08Z"),
        ),
        (
            {"body_txt": "x", "sent": 'TRANSPORT="postfix"\nSINCE="1795167668"\n'},
            ("mail/sent", "sent by postfix since 09:41:08Z"),
        ),
        (
            {"body_txt": "x", "refused": 'WHY="550 5.1.1 user unknown"\n'},
            ("mail/refused", "refused: 550 5.1.1 user unknown"),
        ),
        ({"body_txt": "x", "sent": ""}, ("as its mark says, which is not understood: empty",)),
    ],
)
async def test_a_spooled_mail_is_read_as_one_does(
    tmp_path: Path, files: dict[str, str], said: tuple[str, ...]
) -> None:
    """Whom it is for, about what and since when; then its body; then how far it has come."""
    task = a_dead_task(payload=spooled(tmp_path, META, **files))
    async with a_desk(tmp_path, [task], (80, 50)) as desk:
        await desk.open(task.id)

        await desk.part("payload", "To admin@example.com", "Subject Grüße from mx1")
        await desk.sees("created 09:46:04Z", *said)

        assert "evil()" not in desk.page
        await desk.part("raw", 'MAIL_TO="admin@example.com"')


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ('MAIL_TO="$(touch ran)"\n', 'MAIL_TO="$(touch ran)"'),
        ("MAIL_TO=`touch ran`\n", "expected KEY"),
        ('MAIL_TO="a@b.example"\nMAIL_TO="c@d.example"\n', "MAIL_TO a second time"),
        ('MAIL_TO="a@b.example', "no newline at its end"),
        ('MAIL_TO="\x1b[31m"\n', "\ufffd[31m"),
        ("", "empty"),
    ],
)
async def test_a_hostile_spool_is_shown_and_not_read(tmp_path: Path, meta: str, why: str) -> None:
    """What a shell would run is text with the reason, and the body is there all the same."""
    task = a_dead_task(payload=spooled(tmp_path, meta, body_txt="the body\n"))
    async with a_desk(tmp_path, [task], (80, 50)) as desk:
        await desk.open(task.id)

        await desk.part("payload", "it is not read as a mail: ", "nothing of it was run", why)

        await desk.sees("the body")
        assert "\x1b" not in desk.page
        assert not (tmp_path / "ran").exists()


async def test_each_file_is_told_of(tmp_path: Path) -> None:
    """Size, times, inode, mode and owner of the task, its payload, and what lies beside it."""
    meta = a_mail(tmp_path)
    task = a_dead_task(payload=str(meta))
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        file = tmp_path / "queue" / "dlq" / f"{task.id}.task"

        await desk.part(
            "files",
            f"inode {file.stat().st_ino}",
            f"{file.stat().st_size} bytes",
            "mode -rw-r-----",
            f"inode {meta.stat().st_ino}",
            "mail/body.eml",
            "modified ",
        )


async def test_attempts_come_from_the_log(tmp_path: Path) -> None:
    """When each began, how it ended, and that the logs do not tell of all."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task]) as desk:
        for number, ago in ((1, 7500.0), (2, 7400.0)):
            desk.log("INFO", f"Processing task: {task.id} (mail_send: x)", ago)
            desk.log("ERROR", f"Task failed: {task.id} (mail_send): {ERROR}", ago - 2)
            desk.log("WARN", f"Task {task.id} failed (attempt {number}/3), retry in 60s", ago - 2)
        await desk.open(task.id)

        await desk.part(
            "attempts",
            "1 07:37:08Z",
            "failed, again later after 2 s",
            "2 07:38:48Z",
            "the logs tell of 2 of 3 attempts that the task counts",
        )
        await desk.part("log", "07:37:08 INFO Processing task", "07:38:50 WARN")


async def test_without_a_log_that_is_said(tmp_path: Path) -> None:
    """A task that no log speaks of has no attempts to show, and no reason is made up."""
    task = a_task(4)
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)

        await desk.part("attempts", "the logs tell of no attempt")
        await desk.part("log", "the logs say nothing of it")


async def test_on_a_big_screen_the_log_stands_beside(tmp_path: Path) -> None:
    """From 120x30 on attempts and log are to the right of the summary."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task], (120, 40)) as desk:
        desk.log("INFO", f"Processing task: {task.id} (mail_send: x)", 100)
        await desk.open(task.id)

        await desk.sees("attempts ---", "log ---", "Processing task")
        first = "".join(text for text, _ in desk.text.lines[0])
        assert first.startswith(" Dead since")
        assert "attempts ---" in first


async def test_tab_and_digits_turn_the_parts(tmp_path: Path) -> None:
    """Tab goes on and around, Shift-Tab back; each part is where it was left."""
    task = a_dead_task(payload=str(a_mail(tmp_path)))
    async with a_desk(tmp_path, [task], (80, 12)) as desk:
        await desk.open(task.id)
        for title in (*TITLES[1:], TITLES[0]):
            await desk.pilot.press("tab")
            await desk.sees(f"{title}]")
        await desk.pilot.press("shift+tab")
        await desk.sees("7 raw]", "TASK_ID")
        await desk.pilot.press("j", "j", "j")
        assert desk.text.top == 3

        await desk.part("summary", "what")
        assert desk.text.top == 0
        await desk.part("raw", "TASK_ID")
        await until(desk.pilot, lambda: desk.text.top == 3)


async def test_t_leads_to_the_log(tmp_path: Path) -> None:
    """`t` asks for the log, searched for the task."""
    task = a_dead_task()
    asked: list[Target] = []
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        desk.console.goto = asked.append  # type: ignore[method-assign, assignment]
        await desk.pilot.press("t")
        await desk.pilot.pause()

    assert asked == [Target(keys.LOG, id=task.id)]


async def test_what_can_be_copied(tmp_path: Path) -> None:
    """The id, the row, JSON and the command are those of the task."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        await desk.sees("rev")

        said = {copy.name: copy.text for copy in desk.screen.copies()}

    assert said["id"] == task.id
    assert ERROR in said["row"]
    assert f'"id": "{task.id}"' in said["JSON"]
    assert said["command"] == f"spooldeck --root /q queue dlq show {task.id}"


@pytest.mark.parametrize("state", [State.DEAD, State.PENDING])
def test_the_command_shows_the_task(tmp_path: Path, state: State) -> None:
    """What the summary names as its twin on the command line prints the task."""
    task = a_task(7, state)
    make_spool(tmp_path, [task])
    put_file(tmp_path, task).chmod(0o640)
    loaded = config.load(None, {"HOME": str(tmp_path)}, ())
    setup = Setup(loaded, config.queue_for(loaded, str(tmp_path), {}))
    (place,) = places_of(setup, [str(tmp_path)])

    program, *words = show_command(place.command, task)
    ran = command.run(
        words,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )

    assert program == "spooldeck"
    assert ran.returncode == 0, ran.stderr
    assert task.id in ran.stdout
    assert place.runs == 4


# While it is looked at


async def test_a_file_that_changes_is_shown_anew(tmp_path: Path) -> None:
    """What became another is said, and the text stays where it was."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task], (80, 10)) as desk:
        await desk.open(task.id)
        await desk.part("raw", "TASK_ID")
        await desk.pilot.press("j", "j")
        before = desk.text.top

        put_file(tmp_path, replace(task, error="421 4.7.0 try later")).chmod(0o640)

        await desk.sees("changed at 09:42:08Z: another error", '="421 4.7.0 try later"')
        assert desk.text.top == before == 2


async def test_a_task_that_is_retried_is_followed(tmp_path: Path) -> None:
    """It goes from dlq to pending under one's eyes."""
    task = a_dead_task()
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)

        def retry() -> None:
            store = open_store(str(tmp_path), desk.clock)
            (seen,) = (t for t in store.look({task.id}) if isinstance(t, Task))
            store.swap(seen, verbs.retry(seen, NOW))
            store.close()

        await asyncio.to_thread(retry)

        await desk.sees("dlq to pending", "state pending", "why not run")


async def test_a_task_that_is_done_is_kept_on_screen(tmp_path: Path) -> None:
    """It is said that it left, where to, and what was seen last stays."""
    task = a_task(4)
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        await desk.sees("Due since")
        desk.log("SUCCESS", f"Task completed: {task.id} ({task.kind})")
        (tmp_path / "queue" / "pending" / f"{task.id}.task").unlink()

        await desk.sees("it is not there any more: the log says that it succeeded at 09:42:08Z")
        assert task.kind in desk.page
        await desk.part("raw", "it is not there any more, and this was not read before")


async def test_a_task_that_is_nowhere(tmp_path: Path) -> None:
    """A screen that was asked for one that is not there says so."""
    async with a_desk(tmp_path, some_tasks(2, 0, 0)) as desk:
        await desk.open("20261120T094115Z-job-ffffffff")

        await desk.sees("there is no such task any more")
        assert desk.screen.copies() == ()


async def test_lines_that_come_are_shown(tmp_path: Path) -> None:
    """A line that speaks of it appears in its log by itself."""
    task = a_task(4)
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        await desk.part("log", "the logs say nothing of it")

        desk.log("INFO", f"Processing task: {task.id} ({task.kind}: x)")

        await desk.sees("INFO Processing task")


# What others put there

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066[@click=app.quit]x[/]\0\r\x7f"


def assert_inert(console: Console) -> None:
    """Nothing on screen could make a terminal act."""
    for strip in console.screen._compositor.render_strips():
        assert strip.text.isprintable()


PAYLOADS: dict[str, tuple[Callable[[Path], object], str]] = {
    "escapes": (lambda path: path.write_text(HOSTILE * 20), "payload"),
    "text with escapes": (lambda path: path.write_text("words " * 80 + HOSTILE), "@click=app.quit"),
    "five megabytes": (lambda path: path.write_bytes(b"x" * 5_000_000), "only its first 1,048,576"),
    "a FIFO": (lambda path: os.mkfifo(path), "not read: it is a FIFO"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "is a symbolic link, not followed"),
    "nothing": (lambda path: None, "not read: it is not there"),
    "bytes": (lambda path: path.write_bytes(bytes(range(256)) * 4), "00000010"),
}


@pytest.mark.parametrize("kind", PAYLOADS)
async def test_a_payload_is_inert(tmp_path: Path, kind: str) -> None:
    """Whatever a payload is or holds, each part of the task is shown, and nothing acts."""
    make, said = PAYLOADS[kind]
    folder = tmp_path / "mailspool" / "mail-1"
    folder.mkdir(parents=True)
    make(folder / "meta.sh")
    task = a_dead_task(payload=str(folder / "meta.sh"))
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)

        await desk.part("payload", said)
        assert_inert(desk.console)
        for title in TITLES:
            await desk.part(title)
            await desk.pilot.pause()
            assert_inert(desk.console)


async def test_a_payload_outside_is_not_shown(tmp_path: Path) -> None:
    """A task that names any file of the system shows nothing of it."""
    (tmp_path / "secret").write_text("do not tell")
    task = a_dead_task(payload=str(tmp_path / "secret"))
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)

        await desk.part("payload", "not read: it does not lie plainly below")
        for title in TITLES:
            await desk.part(title)
            assert "do not tell" not in desk.page


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
async def test_every_part_fits_every_width(tmp_path: Path, size: tuple[int, int]) -> None:
    """No line is wider than the screen, whatever the names."""
    task = a_dead_task(payload=str(a_mail(tmp_path)), description="\u6f22" * 90, error="e" * 200)
    async with a_desk(tmp_path, [task], size) as desk:
        desk.log("ERROR", f"Task failed: {task.id} (mail_send): " + "x" * 500)
        await desk.open(task.id)
        for title in TITLES:
            await desk.part(title)
            await desk.pilot.pause()
            for pane in desk.screen.query(Lines):
                for y in range(pane.size.height):
                    assert pane.render_line(y).cell_length == size[0]
            for line in desk.text.lines:
                text = "".join(text for text, _ in line)
                assert len(text) <= size[0] + 1, text


async def test_the_bytes_of_a_problem(tmp_path: Path) -> None:
    """A broken file is shown with how it begins, a link with why it is not read; nothing acts."""
    async with a_desk(tmp_path, some_tasks(2, 0, 2)) as desk:
        dlq = tmp_path / "queue" / "dlq"
        (dlq / "broken.task").write_bytes(b"TASK_ID=\0" + HOSTILE.encode())
        (dlq / "link.task").symlink_to("/etc/passwd")
        live = desk.console.here
        await until(desk.pilot, lambda: live.inspector.latest.problems == 2)
        await desk.pilot.press("shift+tab", "enter")
        await until(desk.pilot, lambda: isinstance(desk.console.screen, ProblemsScreen))

        await desk.sees("00000000 54 41 53 4b 5f 49 44 3d 00 1b", "TASK_ID=", "not read: link.task")
        assert "root:" not in desk.page
        assert_inert(desk.console)


async def test_a_long_payload_is_moved_through(tmp_path: Path) -> None:
    """A megabyte without an end of line is folded, and its end is one key away."""
    folder = tmp_path / "mailspool" / "mail-1"
    folder.mkdir(parents=True)
    (folder / "meta.sh").write_text("word " * 200_000)
    task = a_dead_task(payload=str(folder / "meta.sh"))
    async with a_desk(tmp_path, [task]) as desk:
        await desk.open(task.id)
        await desk.part("payload", "word word")
        await desk.pilot.press("G")

        assert desk.text.top > 10_000
