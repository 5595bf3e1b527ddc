"""`queue add --batch`: many tasks from standard input, each durable before its id is printed."""

import io
import json
from pathlib import Path

import pytest

from tests.nftban_queues import add_task, ids_at, store_at, tasks_at
from tui import cli

NOW = 1_795_239_223.0


def add_batch(root: str, text: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command with this standard input; return its exit code."""
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return cli.main(["--root", root, "queue", "add", "--batch", *words])


def test_a_batch_adds_a_task_for_each_line(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line is a type, a description and a payload; the ids are printed in the order of the
    lines, and logged."""
    lines = ["report\tdaily", "sync", *(f"job\tnumber {n}" for n in range(250))]

    code = add_batch(root, "\n".join(lines), monkeypatch)

    printed = capsys.readouterr().out.split()
    added = {task.id: task for task in tasks_at(root, "pending")}
    assert code == 0
    assert [f"{added[i].kind}\t{added[i].description}" for i in printed] == [
        "report\tdaily",
        "sync\tsync",
        *lines[2:],
    ]
    log = Path(root, "log", "queue.log").read_text()
    assert [line.split("Task queued: ")[1].split()[0] for line in log.splitlines()] == printed


def test_tasks_of_one_second_are_claimed_in_the_order_of_their_adds(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch of two kinds within one moment, and a task added after it, run in that order."""
    monkeypatch.setattr("time.time", lambda: NOW)
    assert add_batch(root, "report\nfeed\nreport\nfeed\n" * 25, monkeypatch) == 0
    monkeypatch.setattr("time.time", lambda: NOW + 0.5)
    assert cli.main(["--root", root, "queue", "add", "alpha"]) == 0
    added = capsys.readouterr().out.split()
    with store_at(root, lambda: NOW + 1) as store:
        assert [task.id for task in store.take(NOW + 1, "test", 999)] == added


def test_a_refused_line_of_a_batch_is_named(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused lines are reported with their numbers, in order, and the others are added."""
    text = "job\nBad Kind\njob\ta\t/etc/passwd\na\tb\tc\td\njob\n"

    code = add_batch(root, text, monkeypatch)

    captured = capsys.readouterr()
    assert code == 64
    assert [line.split(": ")[1] for line in captured.err.splitlines()] == [
        "line 2",
        "line 3",
        "line 4",
    ]
    assert set(captured.out.split()) == ids_at(root, "pending")
    assert len(captured.out.split()) == 2


BAD_OBJECTS = {
    '{"kind": "a", "kid": "b"}': "key 'kid': expected one of kind, description, payload",
    '{"kind": 7}': "kind: expected a text",
    '{"kind": "a"': "invalid JSON: Expecting ',' delimiter at character ",
    "{" * 9: "invalid JSON: Expecting property name",
    '{"a":' * 100_000: "invalid JSON: nested too deeply",
    '{"description": "b"}': "task type ''",
}
"""Lines that are no task, and the reason."""


def test_a_batch_of_json_objects_comes_from_a_file(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line is also a JSON object; each bad one is named by number and does not stop the others;
    with --json each task is printed as its row."""
    file = tmp_path / "tasks.jsonl"
    good = '{"kind": "report", "description": "a\\tb"}'
    file.write_text("\n".join([good, *BAD_OBJECTS, "sync\tnow"]))

    code = cli.main(["queue", "add", "--batch", str(file), root, "--json"])

    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert code == 64
    assert [(row["kind"], row["description"]) for row in rows] == [
        ("report", "a\tb"),
        ("sync", "now"),
    ]
    for number, (line, why) in zip(range(2, 99), BAD_OBJECTS.items(), strict=False):
        assert f"spooldeck: line {number}: {why}" in captured.err, line


def test_a_strict_batch_ends_at_the_first_refused_line(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --strict no line behind a refused one is added."""
    code = add_batch(root, "job\nBad Kind\njob\ta\tb\tc\njob\n", monkeypatch, "-", "--strict")

    captured = capsys.readouterr()
    assert (code, len(captured.out.split())) == (64, 1)
    assert "line 3" not in captured.err or "line 2" not in captured.err
    assert ids_at(root, "pending") == set(captured.out.split())


def test_a_batch_ends_when_the_queue_is_full(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What has room is added and printed; then the exit code is 1 and no more lines are read."""
    monkeypatch.setenv("NFTBAN_QUEUE_MAX_PENDING", "150")
    before = add_task(root)

    code = add_batch(root, "job\n" * 500, monkeypatch)

    captured = capsys.readouterr()
    assert (code, captured.err) == (1, "ERROR: Queue full\n")
    ids = ids_at(root, "pending")
    assert {*captured.out.split(), before.id} == ids
    assert len(ids) == 150
    log = Path(root, "log", "queue.log").read_text()
    assert "Queue at capacity (150 tasks). Rejecting task: the rest of a batch" in log


def test_a_batch_and_a_type_are_not_added_together(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TYPE beside --batch, or neither, adds nothing and is exit code 64."""
    monkeypatch.setattr("sys.stdin", io.StringIO("job\n"))

    for words in (["job", "--batch"], []):
        assert cli.main(["--root", root, "queue", "add", *words]) == 64
        assert "expected either TYPE, or --batch" in capsys.readouterr().err

    assert tasks_at(root) == []


def test_the_place_is_the_only_word_of_a_batch(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder behind --batch is the PLACE: the tasks come from stdin; empty lines are skipped."""
    monkeypatch.setattr("sys.stdin", io.StringIO('\njob\n  {"kind": "job"}\n\n'))

    assert cli.main(["queue", "add", "--batch", root]) == 0

    captured = capsys.readouterr()
    assert (set(captured.out.split()), captured.err) == (ids_at(root, "pending"), "")
    assert len(captured.out.split()) == 2


def test_a_queue_is_not_taken_for_a_description(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`queue add TYPE PLACE` adds nothing anywhere; behind `--` a description is any text. Behind a
    description the PLACE may stand without a payload."""
    monkeypatch.setenv("NFTBAN_DATA_DIR", str(tmp_path / "other"))

    assert cli.main(["queue", "add", "job", root]) == 64
    expected = f"{root} is a queue, not a description: queue add job '' {root}\n"
    assert capsys.readouterr().err == f"spooldeck: {expected}"
    assert cli.main(["--root", root, "queue", "add", "--", "job", root]) == 0
    assert cli.main(["queue", "add", "job", "report", root]) == 0
    assert {task.description for task in tasks_at(root, "pending")} == {root, "report"}
