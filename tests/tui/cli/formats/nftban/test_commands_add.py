"""`queue add` with data, a time and a key; and the data on the standard input of its handler."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests import command
from tests.nftban_queues import Run, clean_environment, store_at, tasks_at, write_config

SETTINGS = """\
handlers: {report: {command: [sh, -c, 'cat >got; echo "$TASK_PAYLOAD_FILE" >path']}}
queue: {syslog: ""}
"""
BYTES = b"\0\xff\x1b[31m\r\n$(id)" * 300_000


def data_at(root: str) -> list[str]:
    """The names of all data of tasks."""
    return sorted(path.name for path in Path(root, "queue", "data").glob("*"))


Add: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def add(root: str, spooldeck: Run, tmp_path: Path) -> Add:
    """Run `queue add` in a folder with files of data."""
    (tmp_path / "bytes").write_bytes(BYTES)
    (tmp_path / "empty").touch()
    return lambda *words: spooldeck("--root", root, "queue", "add", *words, cwd=tmp_path)


@pytest.mark.parametrize("name", ["bytes", "empty"])
def test_a_handler_gets_the_data_on_standard_input(
    root: str, add: Add, spooldeck: Run, tmp_path: Path, name: str
) -> None:
    """Any bytes of any number arrive; after the task the file is gone."""
    config = write_config(root, SETTINGS.replace("got", str(tmp_path / "got")))
    config = write_config(root, Path(config).read_text().replace(">path", f">{tmp_path}/path"))
    assert add("report", "--data", name).returncode == 0
    (task,) = tasks_at(root)
    run = spooldeck("--config", config, "--root", root, "queue", "process-next")
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "got").read_bytes() == (tmp_path / name).read_bytes()
    assert (tmp_path / "path").read_text() == f"{task.payload}\n"
    assert data_at(root) == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [("", "its data is missing: "), ("bytes", "its data is refused_ a symbolic link_ not fol")],
)
def test_a_task_without_its_data_is_not_run(
    root: str, add: Add, spooldeck: Run, tmp_path: Path, target: str, reason: str
) -> None:
    """If its data is gone, or a link to another file, the task is dead with the reason."""
    add("report", "--data", "bytes")
    (task,) = tasks_at(root)
    Path(task.payload).unlink()
    if target:
        Path(task.payload).symlink_to(tmp_path / target)
    config = write_config(root, SETTINGS)
    spooldeck("--config", config, "--root", root, "queue", "process-next")
    (dead,) = tasks_at(root, "dlq")
    assert dead.error.startswith(reason)


def test_a_task_waits_for_its_time(root: str, add: Add) -> None:
    """`--delay` and `--at` are the earliest times of the first run; one that has passed is none."""
    before = time.time()
    for words in (("--delay", "10m"), ("--at", "+2h"), ("--at", "-1h")):
        add("report", *words)
    first, second, third = (task.due or 0.0 for task in tasks_at(root))
    assert 600 <= first - before < 660 and 7200 <= second - before < 7260
    assert third == 0
    log = Path(root, "log", "queue.log").read_text()
    assert len(re.findall(r"\(report: report\), due in \d+s\n", log)) == 2
    with store_at(root, lambda: before + 599) as store:
        assert [task.due for task in store.take(before + 599, "test", 9)] == [0]


def test_of_many_at_once_one_key_adds_one(root: str, tmp_path: Path) -> None:
    """Of several processes one adds its task; the others report it with exit code 2."""
    env = clean_environment(tmp_path)
    words = ["queue", "add", "report", "--root", root, "--key", "nightly: \xfcber", "--data", "-"]
    runs = [
        command.Popen(words, env=env, text=True, stdin=-1, stdout=-1, stderr=-1) for _ in range(4)
    ]
    answers = [run.communicate("data") for run in runs]
    assert sorted(run.returncode for run in runs) == [0, 2, 2, 2]
    (task,) = tasks_at(root)
    assert data_at(root) == [task.id]
    reports = {error for _, error in answers if error}
    assert reports == {
        f"spooldeck: there already: {task.id} waits with this key; nothing was added\n"
    }


def test_a_batch_has_data_times_and_keys(root: str, add: Add, tmp_path: Path) -> None:
    """A JSON line has the options by name; a key that waits is reported with its line."""
    lines: list[dict[str, object]] = [
        {"kind": "report", "data": "\xe4\0", "key": "k"},
        {"kind": "report", "data": "x", "key": "k"},
        {"kind": "report", "delay": "1h"},
    ]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, lines)))
    run = add("--batch", "lines")
    assert (run.returncode, len(run.stdout.split())) == (2, 2)
    first, second = tasks_at(root)
    assert f"line 2: there already: {first.id} waits with this key" in run.stderr
    assert Path(first.payload).read_bytes() == "\xe4\0".encode()
    assert data_at(root) == [first.id]
    assert (second.due or 0) > time.time() + 3500
    (tmp_path / "lines").write_text('{"kind": "report", "priority": "1"}\n')
    run = add("--batch", "lines")
    assert (run.returncode, "key 'priority': expected one of kind" in run.stderr) == (64, True)
    (tmp_path / "lines").write_bytes(b'{"kind":"report","data":"\xff"}\n{"kind":"report"}\n')
    run = add("--batch", "lines")
    assert (run.returncode, len(run.stdout.split()), data_at(root)) == (64, 1, [first.id])
    assert run.stderr.startswith("spooldeck: line 1: data: expected UTF-8; `--data FILE` takes")


def test_lines_before_a_disk_error_are_added(root: str, add: Add, tmp_path: Path) -> None:
    """The batch ends where data cannot be written; what was read before it is on the disk."""
    Path(root, "queue").mkdir(exist_ok=True)
    Path(root, "queue", "data").touch()
    rows = [{"kind": "report"}, {"kind": "report", "data": "x"}, {"kind": "report"}]
    (tmp_path / "lines").write_text("\n".join(map(json.dumps, rows)))
    run = add("--batch", "lines")
    assert run.returncode not in (0, 1, 64)
    assert run.stdout.split() == [task.id for task in tasks_at(root)]
    assert len(run.stdout.split()) == 1
    assert "data not written" in run.stderr


PRINTS = """\
handlers:
  report: {command: [sh, -c, 'printf "caf\\303\\251 \\377\\033[31m\\n"; echo error >&2; false']}
  quick: {command: [echo, done well]}
  quiet: {command: ["true"]}
queue: {syslog: ""}
"""


def test_what_a_handler_printed_is_shown_with_the_log(root: str, add: Add, spooldeck: Run) -> None:
    """`log --id` has the lines about a task and, as text, what its runs printed."""
    config = write_config(root, PRINTS)
    for kind in ("report", "quick", "quiet"):
        ident = add(kind).stdout.strip()
        spooldeck("--config", config, "--root", root, "queue", "process-next", "--quiet")
        shown = spooldeck("--root", root, "log", "--id", ident).stdout.splitlines()
        assert [ident in line for line in shown[:3]] == [True] * 3
        printed = {
            "report": ["  caf\xe9 \ufffd\ufffd[31m", "  error"],
            "quick": ["  done well"],
            "quiet": [],
        }[kind]
        assert shown[len(shown) - len(printed) :] == printed
        assert sum("output of the run until" in line for line in shown) == bool(printed)
    run = spooldeck("--root", root, "log", "--json", "--id", tasks_at(root)[0].id)
    (row,) = (row for row in map(json.loads, run.stdout.splitlines()) if row["output"])
    assert (row["text"], row["output"]) == ("exit status 1", "caf\xe9 \ufffd\x1b[31m\nerror\n")
    later = spooldeck("--root", root, "log", "--id", tasks_at(root)[0].id, "--since", "now")
    assert (later.stdout, "no log line about" in later.stderr) == ("", True)
    refused = spooldeck("--root", root, "log", "--id", "x", "--filter", "y")
    assert (refused.returncode, "--id: expected without --filter" in refused.stderr) == (64, True)
