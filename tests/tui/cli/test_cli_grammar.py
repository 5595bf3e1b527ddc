"""The grammar of the command line: PLACE, typing errors, colours, `wait`, `top`, CSV."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from tests import command
from tests.nftban_queues import Run, add_task, bury_one, clean_environment, tasks_at
from tests.tables import each
from tui import cli
from tui.cli.print.wait import Observed, result_of, wait
from tui.cli.setup.output import (
    Progress,
    choose_color,
    note_if_empty,
    print_answer,
    show_progress,
    wants_color,
)

# ---- the place


PLACES = (
    "wait {root} --until failed",
    "queue count {root}",
    "queue --root {root} count",
    "queue count --root {root}/queue",
    "queue count-dlq {root}",
    "queue list {root}",
    "queue metrics {root}",
    "queue status {root}",
    "queue add job what '' {root}",
    "queue add job --root {root} what",
    "queue recover {root} --dry-run",
    "queue corrupt list {root}",
    "queue dlq list {root}",
    "queue dlq show {dead} {root}",
    "queue dlq retry-all {root} --dry-run",
    "queue dlq expunge {root} --dry-run",
    "queue dlq purge 30 {root} --dry-run",
    "queue dlq purge {root} --dry-run",
    "queue dlq retry {dead} {root}",
    "trash expunge {root} --dry-run",
    "mail status {root}",
    "mail spool list {root}",
    "mail spool retry --all {root}",
    "mail suspend postfix 'out of order' {root}",
    "mail suspend msmtp {root}",
    "mail resume postfix {root}",
    "mail send text {root}",
    "mail send text '' {root}",
    "mail test {root} --dry-run",
    "mail send-with-retry text '' subject {root}",
    "notes {root}",
    "locks --root {root}",
    "--root {root} kinds",
    "--color never top {root}",
)
"""Commands with the place as the last word; none of them finds another queue."""


def test_the_place_is_the_last_word_of_every_command(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command finds its queue by the PLACE at the end or by --root anywhere."""
    monkeypatch.setenv("NFTBAN_MAIL_METHOD", "none")
    monkeypatch.setenv("NO_COLOR", "")  # --color sets it for this process
    dead = bury_one(root).id
    monkeypatch.chdir(tmp_path)
    for line in PLACES:
        code = cli.main(shlex.split(line.format(root=root, dead=dead)))
        captured = capsys.readouterr()
        assert code in (0, 1), (line, captured.err)
        assert "/var/lib" not in captured.err, line
    assert {task.kind for task in tasks_at(root, "pending")} >= {"job"}


# ---- words that are wrong


def test_a_typing_error_in_a_path_names_the_place_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing folder with a neighbour of a similar name is not offered to be made."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "repotrs.txt").touch()
    for name, expected in (
        ("reprots", f"; did you mean {tmp_path}/reports?"),
        ("mail", f" (spooldeck init {tmp_path}/mail makes it)"),
    ):
        code = cli.main(["queue", "count", f"{tmp_path}/{name}"])
        errors = capsys.readouterr().err
        assert (code, errors) == (69, f"spooldeck: {tmp_path}/{name}: no such folder{expected}\n")


EMPTY_VALUES = (
    "purge {root} --filter ''",
    "purge {root} --filter ' ' --apply 1",
    "purge {root} --filter=",
    "hold {root} --id ''",
    "purge ''",
    "--root '' purge",
    "--config '' status {root}",
)


def test_an_empty_value_selects_nothing(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a script is refused: it would select all tasks, or another queue."""
    bury_one(root)
    for words in EMPTY_VALUES:
        assert cli.main(shlex.split(words.format(root=root))) == 64, words
        assert "expected a value, not an empty text" in capsys.readouterr().err, words
    assert len(tasks_at(root, "dlq")) == 1


# ---- output


@pytest.mark.parametrize(
    ("expected", "environ", "is_colored"),
    [
        ("auto", {"TERM": "xterm"}, False),  # no terminal
        ("auto", {"FORCE_COLOR": "1"}, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
        ("never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals(
    expected: str, environ: dict[str, str], is_colored: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal there are colours only by `--color always` or FORCE_COLOR."""
    choose_color(expected, environ)
    assert wants_color(environ) is is_colored


def test_a_coloured_screen_has_the_same_text(root: str) -> None:
    """`--color always` adds only SGR sequences."""
    bury_one(root)
    env = clean_environment(Path(root))
    plain, coloured = (
        command.run_text("--color", when, "transports", root, env=env)
        for when in ("never", "always")
    )
    assert "\x1b[" in coloured.stdout and "\x1b" not in plain.stdout
    parts = coloured.stdout.split("\x1b[")
    assert "".join([parts[0], *(part.partition("m")[2] for part in parts[1:])]) == plain.stdout


def test_progress_is_shown_after_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count is shown on standard error, if that is a terminal and a second is over."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    seconds = iter([0.0, 0.9, 1.1, 1.2, 1.4])
    with Progress("rows", lambda: next(seconds)) as progress:
        for number in (500, 1000, 1100, 1200):
            progress.show(number)
    assert screen.getvalue() == "\r1,000 rows\r1,200 rows\r          \r"
    assert list(show_progress("abc", "rows")) == ["a", "b", "c"]


def test_an_empty_list_is_reported_to_a_person(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without rows a terminal gets one line on standard error; a script gets nothing."""
    assert (list(note_if_empty([1], "tasks")), list(note_if_empty([], "tasks"))) == ([1], [])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert [*note_if_empty([1], "tasks"), *note_if_empty([], "notes")] == [1]
    assert capsys.readouterr().err == "no notes\n"


def test_csv_and_json_of_a_list_have_the_same_rows(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`queue list --csv` has the columns of an export, with times as text; --json has them too."""
    task = add_task(root)
    cli.main(["queue", "list", root, "--csv"])
    head, line = capsys.readouterr().out.splitlines()
    cli.main(["queue", "list", root, "--json"])
    row = json.loads(capsys.readouterr().out)
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert set(cells) <= set(row)
    assert (cells["id"], cells["created_at"]) == (task.id, row["created_at"])


# ---- wait


@each(
    ("observed", "until", "expected"),
    [
        (Observed(pending=1), "done", None),
        (Observed(active=1), "done", None),
        (Observed(), "done", ("done", 0)),
        (Observed(dead=2), "done", ("done", 0)),
        (Observed(dead=3), "done", ("failed", 1)),
        (Observed(pending=1, is_due=True), "idle", None),
        (Observed(pending=1), "idle", ("idle", 0)),
        (Observed(active=1), "idle", None),
        (Observed(pending=1, dead=1), "failed", ("failed", 0)),
        (Observed(), "failed", None),
        (Observed(words={"a": None}, ended={"a": "done"}), "failed", ("done", 1)),
        (Observed(words={"a": "held"}, ended={"a": "held"}), "done", ("held", 1)),
        (Observed(dead=1, words={"a": "dlq"}, ended={"a": "failed"}), "done", ("failed", 1)),
    ],
)
def test_what_ends_a_wait(observed: Observed, until: str, expected: tuple[str, int] | None) -> None:
    """Two tasks were dead before the wait; more dead ones, or a task that is not done, are 1."""
    assert result_of(observed, until, 2) == expected


def run_wait(
    root: str,
    steps: Iterator[object],
    capsys: pytest.CaptureFixture[str],
    *ids: str,
    timeout: int = 9,
) -> tuple[int, dict[str, object]]:
    """Wait with a clock of which each pause is a second; a step follows each pause."""
    seconds = [0.0]

    def pause(length: float) -> None:
        seconds[0] += 1.0
        next(steps, None)

    setup = setup_for(queue_config.load_config(None, {}), root, {})
    answer = wait(
        setup, id=list(ids), until="", timeout=timeout, clock=lambda: seconds[0], pause=pause
    )
    code = answer if isinstance(answer, int) else print_answer(answer, as_json=True)
    return code, json.loads(capsys.readouterr().out or "{}")


def test_a_wait_ends_with_the_task(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that is gone is done; a purged or unknown one is 1; one that does not end is 75."""
    done, purged, left = add_task(root), add_task(root), add_task(root)

    def finish() -> Iterator[object]:
        yield "a scan while it is pending"
        Path(root, "queue", "pending", f"{done.id}.task").unlink()
        yield "it has ended"

    code, output = run_wait(root, finish(), capsys, done.id)
    assert (code, output["result"], output["tasks"]) == (0, "done", {done.id: None})
    cli.main(["purge", root, "--id", purged.id, "--state", "pending", "--apply", "1"])
    capsys.readouterr()
    code, output = run_wait(root, iter(()), capsys, left.id)
    assert (code, output["result"]) == (75, "timeout")
    code, output = run_wait(root, iter(()), capsys, purged.id)
    assert (code, output["result"], output["tasks"]) == (1, "purged", {purged.id: "trash"})
    assert run_wait(root, iter(()), capsys, "nothing")[0] == 1


def test_a_wait_of_no_time_scans_until_it_knows(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 0 seconds a queue is looked at once; a task that is missing is looked for twice."""
    task = add_task(root)

    def no_pause() -> Iterator[object]:
        pytest.fail("it waited")
        yield

    assert run_wait(root, no_pause(), capsys, timeout=0)[0] == 75
    Path(root, "log").mkdir(exist_ok=True)
    Path(root, "log", "queue.log").write_text(f"Task queued: {task.id} (job)\n")
    Path(root, "queue", "pending", f"{task.id}.task").unlink()
    code, output = run_wait(root, iter(()), capsys, task.id, timeout=0)
    assert (code, output["result"]) == (0, "done")


def test_a_log_is_read_back_into_its_rotated_files(root: str, spooldeck: Run) -> None:
    """Rotated lines are printed, what is damaged is said, and a task of then is known."""
    task = spooldeck("queue", "add", "job", "--root", root).stdout.strip()
    Path(root, "queue", "pending", f"{task}.task").unlink()
    log = Path(root, "log", "queue.log")
    assert spooldeck("wait", "--id", task, root).returncode == 0
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    Path(f"{log}.2.gz").write_bytes(gzip.compress(b"[2026-01-01 12:00:00] [INFO] old\n")[:-1])
    log.write_text("")
    printed = spooldeck("log", root)
    first = "2026-01-01 12:00:00 queue: INFO old"
    assert (printed.stdout.splitlines()[0], printed.returncode) == (first, 0)
    assert f"Task queued: {task}" in printed.stdout
    missing = f"spooldeck: {log}.2.gz: ends in the middle: only what is before is read\n"
    assert printed.stderr == missing
    since = spooldeck("log", "--since", "-1h", root)
    (line,) = since.stdout.splitlines()
    assert line.partition("INFO ")[2].startswith("Task queued")
    assert spooldeck("wait", "--id", task, root).returncode == 0


# ---- top


def test_top_is_one_plain_screen_without_a_terminal(root: str, spooldeck: Run) -> None:
    """Without a terminal the kinds are printed once, as text or as JSON."""
    add_task(root)
    plain, values = spooldeck("top", root), spooldeck("top", root, "--json")
    assert (plain.returncode, values.returncode) == (0, 0)
    assert "last 10 minutes" in plain.stdout and "\x1b" not in plain.stdout
    assert json.loads(values.stdout)["seconds"] == 600


# ---- mail setup --show


def test_the_mail_settings_are_shown_without_the_password(
    root: str, tmp_path: Path, spooldeck: Run
) -> None:
    """`mail setup --show` prints what all sources set together, and writes nothing."""
    folder = tmp_path / "etc"
    (folder / "conf.d").mkdir(parents=True)
    path = folder / "conf.d" / "mail.conf.local"
    path.write_text('NFTBAN_MAIL_RECIPIENT="a@b.org"\nNFTBAN_MAIL_ON_BAN="YES"\n')
    secret = {"NFTBAN_CONFIG_DIR": str(folder), "NFTBAN_MAIL_SMTP_PASS": "secret"}
    ended = spooldeck("mail", "setup", "--show", root, **secret)
    values = json.loads(spooldeck("mail", "setup", "--show", "--json", root, **secret).stdout)
    both = spooldeck("mail", "setup", "a@b.org", "--show", root, **secret)
    near = spooldeck("mail", "setup", "--show", Path(root).name, cwd=Path(root).parent, **secret)
    assert "secret" not in ended.stdout
    assert (values["recipient"], values["triggers"]["NFTBAN_MAIL_ON_BAN"]) == ("a@b.org", "YES")
    assert (both.returncode, near.returncode, near.stdout) == (64, 0, ended.stdout)
    assert list((folder / "conf.d").iterdir()) == [path]


@pytest.mark.deep
def test_a_day_by_commands_alone(tmp_path: Path) -> None:
    """A shell script of an operator's day reads only exit codes and JSON."""
    script = Path(__file__).with_name("day.sh")
    words = ["sh", str(script), str(tmp_path), f"{Path(sys.executable).parent}/spooldeck"]
    ran = subprocess.run([*words, sys.executable], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
