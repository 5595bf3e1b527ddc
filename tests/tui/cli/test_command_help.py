"""What the commands print with `--json`: schemas, and real answers that have them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.json_answers import parse_answers, times_without_text, wrong_keys
from tests.nftban_queues import Run, add_task, bury_one, tasks_at, write_config
from tui import cli
from tui.cli.command_help import JsonSchema, help_end, json_objects, json_schemas
from tui.cli.commands import COMMAND_WORDS

Captured = pytest.CaptureFixture[str]

UNSUPPORTED = {"rerun", "bounce", "expire", "reroute"}
"""Verbs that this format has not: it keeps no done tasks, and has neither senders nor a router."""

ELSEWHERE = {"kannader", "bullmq", "zmailer", "federation", "zgb", "mta trail", "mta why"}
ELSEWHERE |= {"queue process-next", "queue work", "install-units"}
"""Commands, or their first words, that need a handler, a server, a database or a spool."""

MAY_BE_EMPTY = {"find", "mta instances", "queue corrupt list"}
"""Commands without a line of JSON where a host has no queue or mail server, or no file is aside."""

JSON_COMMANDS = [
    word for word in COMMAND_WORDS if ("--json",) in [names for names, _ in word.arguments]
]


def ask(capsys: Captured, words: str, *more: str, code: int = 0) -> list[dict[str, Any]]:
    """The checked answers of a command, whose words are the longest known ones."""
    given = [*words.split(), *more]
    names = (" ".join(words.split()[:n]) for n in range(len(words.split()), 0, -1))
    name = next(name for name in names if name in json_schemas())
    assert cli.main([*given, "--json"]) == code, (words, capsys.readouterr())
    return parse_answers(capsys.readouterr().out, name, *given)


def test_each_command_that_prints_data_has_json() -> None:
    """Each has a schema, which its help shows; each type of a key is a simple one or has a row."""
    others = {" ".join(word.path) for word in COMMAND_WORDS if word.function}
    named = {" ".join(word.path) for word in JSON_COMMANDS}
    without = {"console", "demo", "shell-init", "completion"}
    without |= {f"zmailer {name}" for name in ("scheduler", "agent", "mailq")}
    assert others - named <= without
    assert {name for name in json_schemas() if " --" not in name} == named | {"--apply"}
    for word in JSON_COMMANDS:
        shown = " ".join(help_end(word.path, 9999).split())
        assert json_schemas()[" ".join(word.path)].field_list in shown
    used = {
        kind.removesuffix("?").removesuffix("[]").removesuffix("{}")
        for schema in (*json_schemas().values(), *json_objects().values())
        for kind in schema.keys.values()
    }
    inlined = {"task", "mail"}
    assert used - {"text", "number", "flag", "object", "list"} == json_objects().keys() - inlined


def test_every_json_answer_is_an_object_a_line(
    root: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has the keys and types of its schema, safe text, and times as text too."""
    bury_one(root, description="second")
    purged = Path(root, "queue", "dlq", f"{bury_one(root).id}.task")
    purged.write_text(purged.read_text().replace('"report"', '"\x1b[2J\u202e\\"', 1))
    dead = bury_one(root)
    place = ("--root", root)
    (done,) = ask(capsys, "purge", "--filter", "second", "--apply", "1", *place)
    task = add_task(root)
    ask(capsys, "note", task.id, "\x1b]0;x\x07 a note", *place)
    (trashed, *_) = tasks_at(root, "trash")
    printed: dict[str, list[Any]] = {}
    monkeypatch.setenv("NFTBAN_CONFIG_DIR", root)
    monkeypatch.setenv("NFTBAN_MAIL_METHOD", "none")
    more = {
        **{"expunge": ["--state", "dlq"], "trash restore": [trashed.id], "init": [root]},
        **{"note": [task.id, "a note"], "edit": [task.id, "--due", "+2h"], "queue add": ["job"]},
        **{"wait": ["--id", dead.id], "queue dlq show": [dead.id], "queue dlq retry": ["none"]},
        **{"mail send": ["text"], "mail send-with-retry": ["text", "a@b.org"]},
        **{"mail setup": ["--show"], "mail test": ["a@b.org"], "mail spool retry": ["--all"]},
        **{"mail suspend": ["postfix"], "mail resume": ["postfix"]},
        **{"queue corrupt put-back": ["none"], "top": ["--times", "1"]},
    }

    for word in JSON_COMMANDS:
        options = [names for names, _ in word.arguments]
        name = " ".join(word.path)
        if {name, word.path[0]} & (ELSEWHERE | UNSUPPORTED):
            continue
        if name == "mail spool show":
            more[name] = [ask(capsys, "mail spool list", *place)[0]["id"]]
        acts = any("--dry-run" in names for names in options)
        acts = acts and name not in ("control", "destinations", "journal", "undo", "mail setup")
        given = [*more.get(name, []), *(["--dry-run"] if acts else [])]
        code = cli.main([*word.path, *given, "--json", *place])
        captured = capsys.readouterr()
        assert code in (0, 1), (name, captured)
        printed[name] = parse_answers(captured.out, name, *given)
        assert printed[name] or name in MAY_BE_EMPTY, name
        if name == "mail suspend":  # what says that it is suspended has the time too
            ask(capsys, "mail status", *place, code=1)
            ask(capsys, "transports", *place)
            ask(capsys, "status", *place, code=1)

    rows = {(row["state"], row["id"]) for row in printed["queue list"]}
    assert rows > {("pending", task.id), ("trash", trashed.id)}
    (plan,) = ask(capsys, "undo", done["op"], "--dry-run", *place)
    assert plan["undoes"] == done["op"]
    ask(capsys, "edit", task.id, "--due", "+3h", "--apply", "1", *place)
    ask(capsys, "hold", "--id", task.id, "--apply", "1", *place)
    ask(capsys, "mail setup", "a@b.org", "--dry-run", *place)
    ask(capsys, "queue corrupt list", *place)
    assert [held.id for held in tasks_at(root, "held")] == [task.id]


def test_json_of_the_other_formats_is_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Of Kannader, ZGB and ZMailer, and of a control."""
    monkeypatch.chdir(tmp_path)
    Path("mail").write_text("Hi\n")
    Path("good.conf").write_text('smtp/*\n  command="smtp -s"\n')
    Path("bad.conf").write_text("smtp/*\n  comand=smtp\n")
    Path("ends.log").write_text("S3309638AbmKTJ5Ym690J 0 20 ok smtp/a.org\n")
    Path("units").mkdir()

    for words, expected in (
        ("kannader init spool", 0),
        ("kannader enqueue --from a@b.org --to c@d.org --to e@f.org mail ./spool", 0),
        ("kannader recover spool --anyway", 0),
        ("queue list spool", 0),
        ("zgb init q.db", 0),
        ("zgb doctor q.db", 1),
        ("status q.db", 1),
        ("control q.db", 0),
        ("control mailQueueEnabled q.db --value 1 --dry-run", 0),
        ("control mailQueueEnabled q.db --value 1 --apply 1", 0),
        ("journal q.db", 0),
        ("doctor spool", 1),
        ("zmailer check good.conf", 0),
        ("zmailer check bad.conf", 1),
        ("zmailer check good.conf --diff good.conf", 0),
        ("zmailer why smtp/a.org --conf good.conf", 0),
        ("zmailer statistics ends.log", 0),
        ("init queue", 0),
        ("install-units units ./queue", 0),
    ):
        assert ask(capsys, words, code=expected), words


def test_a_worker_prints_its_run(root: str, spooldeck: Run) -> None:
    """With --json a worker ends with the numbers of its run; standard error has the reasons."""
    add_task(root)
    settings = "handlers: {report: {command: [sh, -c, 'echo out of paper; exit 1']}}"
    place_options = ("--config", write_config(root, settings), "--root", root, "queue")
    failed = spooldeck(*place_options, "process-next", "--json")
    idle = spooldeck(*place_options, "work", "--until-idle", "--json")
    (ran,) = parse_answers(failed.stdout, "queue process-next")
    assert (failed.returncode, ran["done"], ran["failed"]) == (3, 0, 1)
    assert "out of paper" in ran["last_failure"] and "out of paper" in failed.stderr
    (ran,) = parse_answers(idle.stdout, "queue work")
    assert (idle.returncode, ran["done"], ran["failed"], ran["trouble"]) == (0, 0, 0, None)


def test_a_wrong_key_of_json_is_named() -> None:
    """One that is missing, of another type or not documented, also in an object inside."""
    schema = JsonSchema({"id": "text", "due": "number?", "problems": "problem[]"}, False, "")
    now = time.time()
    assert wrong_keys({"id": "a", "due": None, "problems": []}, schema) == []
    assert wrong_keys({"id": 1, "more": 2, "problems": [{"where": "x"}]}, schema) == [
        "more is not documented",
        "id is 1, expected text",
        "due is Ellipsis, expected number?",
        "problems[].what is Ellipsis, expected text",
    ]
    times = {"a": now, "a_at": "", "b": [{"c": now}], "bytes": 2e9}
    assert [*times_without_text(times)] == ["b.[]c"]
