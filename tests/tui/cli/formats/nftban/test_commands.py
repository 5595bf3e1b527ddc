"""`queue add --batch`: many tasks from standard input, each durable before its id is printed."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.nftban_queues import add_task, ids_at, tasks_at
from tui import cli

Add: TypeAlias = Callable[[str, str], tuple[int, list[str], str]]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Add:
    """Run `queue add` with a standard input and words; exit code, printed lines and errors."""

    def run(text: str, words: str) -> tuple[int, list[str], str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        code = cli.main(["queue", "add", *words.split()])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def test_a_batch_adds_a_task_for_each_line(root: str, add: Add) -> None:
    """Each line is a type, a description and a payload; the ids are printed in the order of the
    lines, and logged. A folder behind --batch is the PLACE; empty lines are skipped."""
    lines = ["report\tdaily", "sync", *(f"job\tnumber {n}" for n in range(250))]
    code, printed, _ = add("\n".join(lines), f"--batch {root}")
    added = {task.id: f"{task.kind}\t{task.description}" for task in tasks_at(root, "pending")}
    assert code == 0
    assert [added[ident] for ident in printed] == ["report\tdaily", "sync\tsync", *lines[2:]]
    log = Path(root, "log", "queue.log").read_text()
    assert [line.split("Task queued: ")[1].split()[0] for line in log.splitlines()] == printed
    code, more, errors = add('\njob\n  {"kind": "job"}\n\n', f"--batch {root}")
    assert (code, errors, len(more)) == (0, "", 2)
    assert ids_at(root, "pending") == {*printed, *more}


@pytest.mark.parametrize(
    ("text", "words", "refused", "count"),
    [
        ("job\nBad Kind\njob\ta\t/etc/passwd\na\tb\tc\td\njob\n", "", [2, 3, 4], 2),
        ("job\nBad Kind\njob\ta\tb\tc\njob\n", "- --strict", [2], 1),
    ],
    ids=["each is named", "a strict one ends there"],
)
def test_a_refused_line_of_a_batch_is_named(
    root: str, add: Add, text: str, words: str, refused: list[int], count: int
) -> None:
    """By its number; the others are added, with --strict only those before it."""
    code, printed, errors = add(text, f"--root {root} --batch {words}")
    assert (code, len(printed)) == (64, count)
    named = [line.split(": ")[1] for line in errors.splitlines()]
    assert named[: len(refused)] == [f"line {number}" for number in refused]
    assert "line 3" not in errors or len(refused) > 1
    assert set(printed) == ids_at(root, "pending")


BAD_OBJECTS = {
    '{"kind": "a", "kid": "b"}': "key 'kid': expected one of kind, description, payload",
    '{"kind": 7}': "kind: expected a text",
    '{"kind": "a"': "invalid JSON: Expecting ',' delimiter at character ",
    "{" * 9: "invalid JSON: Expecting property name",
    '{"a":' * 100_000: "invalid JSON: nested too deeply",
    '{"description": "b"}': "task type ''",
}
"""Lines that are no task, and the reason."""


def test_a_batch_of_json_objects_comes_from_a_file(root: str, tmp_path: Path, add: Add) -> None:
    """Each bad one is named by number and stops no other; --json prints each task as its row."""
    file, good = tmp_path / "tasks.jsonl", '{"kind": "report", "description": "a\\tb"}'
    file.write_text("\n".join([good, *BAD_OBJECTS, "sync\tnow"]))
    code, printed, errors = add("", f"--batch {file} {root} --json")
    rows = [(row["kind"], row["description"]) for row in map(json.loads, printed)]
    assert (code, rows) == (64, [("report", "a\tb"), ("sync", "now")])
    for number, (line, why) in enumerate(BAD_OBJECTS.items(), 2):
        assert f"spooldeck: line {number}: {why}" in errors, line


def test_a_full_queue_ends_a_batch(root: str, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has room is added and printed; then the exit code is 1 and no more lines are read."""
    monkeypatch.setenv("NFTBAN_QUEUE_MAX_PENDING", "150")
    before = add_task(root)
    code, printed, errors = add("job\n" * 500, f"--batch {root}")
    assert (code, errors) == (1, "ERROR: Queue full\n")
    assert {*printed, before.id} == (ids := ids_at(root, "pending"))
    assert len(ids) == 150
    log = Path(root, "log", "queue.log").read_text()
    assert "Queue at capacity (150 tasks). Rejecting task: the rest of a batch" in log


def test_a_queue_is_not_taken_for_a_description(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add: Add
) -> None:
    """`queue add TYPE PLACE` adds nothing; behind `--` a description is any text."""
    monkeypatch.setenv("NFTBAN_DATA_DIR", str(tmp_path / "other"))
    expected = f"{root} is a queue, not a description: queue add job '' {root}\n"
    assert add("", f"job {root}") == (64, [], f"spooldeck: {expected}")
    assert add("", f"--root {root} -- job {root}")[0] == 0
    assert add("", f"job report {root}")[0] == 0
    assert {task.description for task in tasks_at(root, "pending")} == {root, "report"}
