"""The commands that the documents print are run: on queues of files, on real servers."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.config.place_address import parse_address
from engine.destinations.destination import Destination
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.zgb.place import PARKED_DUE_SECONDS
from tests import command
from tests.bullmq_jobs import CREATED_MS, write_failed, write_hash, write_schedule, write_waiting
from tests.documents import DOCUMENTS, Printed, printed_commands, read
from tests.exim_server import SPOOL, running_overlay
from tests.nftban_spool import a_task, new_spool, text_of
from tests.postfix_server import running_instance
from tests.programs import needs
from tests.redis_server import TestServer
from tests.zmailer_spool import Spool, recipient

NOT_RUN = {
    r"spooldeck( PLACE|( \S*[/:]\S*)*( --read-only)?)": "opens the console, which needs a terminal",
    r"spooldeck demo.*": "opens the console on places with traffic; tests/engine/demo runs it",
    r"spooldeck (queue|bullmq|federation) work .*": "runs until it is stopped",
    r"spooldeck zmailer scheduler": "runs until it is stopped",
    r"spooldeck zmailer mailq.*": "needs a running scheduler",
    r"spooldeck journal OP --resume .*": "needs an operation that was interrupted",
    r"spooldeck mail send(-with-retry)?": "names the command; a mail needs a text and a recipient",
    r"spooldeck mta (trail|why) WORD": "names the command; the pages of servers have all of it",
    r"spooldeck control pause --target .*": "the same with its place is run",
}
"""Patterns of whole commands that are only parsed -> why they are not run."""

MAY_BE_WRONG = {
    "find": "not each queue of this host can be opened",
    "((zgb |federation )?doctor|(queue )?status)( .*)?": "what tests make needs attention",
    r"mta why \S+ .*": "no mail of a test has a line in the log of the last day",
    "log --id .*": "no log has a line about a task that a test made as a file",
    "mail send --subject .*": "no transport: a test sends no mail by this host",
    "queue process-next": "prints nothing, as the contract has it",
    r"undo \S+": "lists operations, of which a test may have none by then",
}
"""Patterns of commands, without `spooldeck`, that may end with 1 or print nothing -> why."""

PAGES = {
    "engine/formats/postfix/MANUAL.md": "postfix",
    "engine/formats/exim/MANUAL.md": "exim",
    "engine/formats/bullmq/MANUAL.md": "redis",
    "engine/formats/bullmq/federation/MANUAL.md": "federation",
    "engine/formats/zmailer/MANUAL.md": "spool",
    "engine/formats/kannader/MANUAL.md": "kannader",
    "engine/formats/zgb/MANUAL.md": "zgb",
}
"""Pages whose commands need a queue of that format; README's for mail servers run on Postfix."""

Words: TypeAlias = Callable[[str], Mapping[str, str]]
"""For a command: each text that it has, and what is there in its place."""


def commands_for(name: str) -> Iterator[Printed]:
    """The commands that are run on this kind of queue; "" for one of files."""
    for document in DOCUMENTS:
        for each in printed_commands(document, "spooldeck"):
            kind = PAGES.get(document, "postfix" if "/etc/postfix" in each.text else "")
            if kind == name and document != "CHANGELOG.md" and not each.is_usage:
                yield each


def run_all(name: str, folder: Path, words: Words) -> None:
    """Run the commands for a kind of queue, in the order of the documents; each must be understood
    and find what it acts on."""
    wrong = []
    for text in dict.fromkeys(each.text for each in commands_for(name)):
        if any(re.fullmatch(pattern, text) for pattern in NOT_RUN):
            continue
        line = re.split(r" [>|] ", text)[0].removeprefix("spooldeck ")
        for old, new in words(line).items():
            line = re.sub(rf"(?<![\w/:@.-]){re.escape(old)}(?![\w:@.-])", lambda _, n=new: n, line)
        if line.startswith("purge"):
            line += " --include-all"  # what a test has just made is young
        if is_act := bool(re.search("--(apply|dry-run)", line)):
            line += " --json"
        run = command.run(shlex.split(line), cwd=folder, capture_output=True, text=True, input="")
        is_right = run.returncode == 0 and bool(run.stdout.strip() or run.stderr.strip())
        is_right |= run.returncode < 2 and any(re.fullmatch(one, line) for one in MAY_BE_WRONG)
        if not is_right or (is_act and not acts(json.loads(run.stdout))):
            wrong.append(f"{text} ({line}): {run.returncode} {run.stdout[-300:]}{run.stderr}")
    assert not wrong, "\n".join(wrong)


def acts(answer: dict[str, Any]) -> bool:
    """True if an act, or its preview, has a task or a queue that it changes."""
    return any(answer.get(key) for key in ("acted_on", "done", "count", "said", "lines", "values"))


def test_each_command_that_is_not_run_is_printed() -> None:
    """Each reason not to run a command is about one that a document has."""
    texts = [
        each.text for document in DOCUMENTS for each in printed_commands(document, "spooldeck")
    ]
    stale = [one for one in NOT_RUN if not any(re.fullmatch(one, text) for text in texts)]
    assert not stale


def test_commands_on_queues_of_files(tmp_path: Path) -> None:
    """Those of README, MANUAL.md and the pages that need no server."""
    for name in ("flowing", "myqueue"):
        new_spool(tmp_path / name)
        for number in range(1, 4):
            task = a_task(number, error="550 user unknown", attempts=3)
            path = tmp_path / name / "queue/dlq" / f"{task.id}.task"
            path.write_bytes(text_of(task, dead_since=1_795_170_000))
    (tmp_path / "units").mkdir()
    (tmp_path / "q3.csv").touch()
    (tmp_path / "spooldeck.yaml").write_text(
        "places: [myqueue]\nhandlers: {report: {command: ['true']}}\n"
    )

    def words(line: str) -> Mapping[str, str]:
        operations = sorted((tmp_path / "flowing/queue/.spooldeck/journal").glob("*.jsonl"))
        return {
            **{"/var/lib/myqueue": "./myqueue", "PLACE": "./myqueue", "COMMAND": "status"},
            **{"DIR": "./made" if line.startswith("init") else "./units", "TEXT": "550"},
            **{"N": "3", "OP": operations[0].stem if operations else "", "TYPE": "report"},
            **{"DESCRIPTION": "text", "PAYLOAD": "''", "ID": a_task(3).id},
        }

    run_all("", tmp_path, words)


@pytest.mark.deep
def test_commands_on_postfix(tmp_path: Path) -> None:
    """Those of its page, and of README, on a real one."""
    with running_instance() as server:
        used = set[str]()
        server.deferred(30, sender="news@shop.example", domain="example.net")

        def words(line: str) -> Mapping[str, str]:
            server.run("postsuper", "-H", "ALL")
            listed = server.listed()
            ident = next(one for one in listed if one not in used)
            used.add(ident)
            if line.startswith("release") or "--state hold" in line:
                server.run("postsuper", "-h", ident)
            return {
                **{"/etc/postfix": str(server.config), "ID": ident, "N": str(len(listed))},
                **{"bob@example.net": "u3@example.net", "a@b.example": "news@shop.example"},
            }

        run_all("postfix", tmp_path, words)


@pytest.mark.deep
def test_commands_on_exim(tmp_path: Path) -> None:
    """Those of its page, on a real one in a file system of its own."""
    with running_overlay(tmp_path / "exim") as server:
        server.configure("timeout_frozen_after = 7d\n")
        ids = server.submit("news@shop.example", ["bob@example.net"], number=8)
        held = ids.pop()
        server.run("-Mf", held)
        config = {"via": {"box": [*server.prefix]}}
        (tmp_path / "spooldeck.yaml").write_text(json.dumps(config))

        def words(line: str) -> Mapping[str, str]:
            ident = held if line.startswith("release") else ids[0]
            ids.append(ids.pop(0))
            return {SPOOL: f"exim://box{SPOOL}", "ID": ident, "TEXT": "news"}

        run_all("exim", tmp_path, words)


def test_commands_on_bullmq(tmp_path: Path, redis_url: str, redis_server: TestServer) -> None:
    """Those of its page, on a real server."""
    (tmp_path / "data").write_text('{"a": 1}')
    with redis_server.client() as client:
        for number in range(3):
            write_waiting(client, f"{number}")
            write_failed(client, f"dead-{number}")
        write_hash(client, "bull:mails:old", finishedOn=CREATED_MS, returnvalue="1")
        client.zadd("bull:mails:completed", {"old": CREATED_MS})
        write_hash(client, "bull:mails:stalled", processedOn=CREATED_MS)
        client.lpush("bull:mails:active", "stalled")
        write_schedule(client)
        client.hset("bull:empty:meta", mapping={"opts.maxLenEvents": 10000})

    def words(line: str) -> Mapping[str, str]:
        return {
            **{"redis://HOST/0": redis_url, "PLACE": redis_url, "QUEUE/JOB": "mails/0"},
            "QUEUE/KEY": "mails/tick",
            "QUEUE": "empty" if line.startswith("control obliterate") else "mails",
            **{"ID": "mails/1", "FILE": "data", "TEXT": "broke"},
        }

    run_all("redis", tmp_path, words)


def test_commands_on_a_zmailer_spool(tmp_path: Path) -> None:
    """Those of its page that need no scheduler."""
    Spool(tmp_path / "postoffice").make().put(1, recipient())
    (tmp_path / "conf").write_text('smtp/*\n  command="smtp -s"\n')
    (tmp_path / "ends.log").write_text("S3309638AbmKTJ5Ym690J 0 20 ok smtp/a.org\n")

    def words(line: str) -> Mapping[str, str]:
        return {
            **{"/var/spool/postoffice": "./postoffice", "CONF": "conf", "FILE": "ends.log"},
            "TEXT": "mx.example",
        }

    run_all("spool", tmp_path, words)


def test_commands_on_a_kannader_spool(tmp_path: Path) -> None:
    """Those of its page: a verb finds a task of its own state."""
    (tmp_path / "mail").write_text("Subject: x\n\nHi\n")
    answers(tmp_path, "kannader", "init", "k")
    to = [f"--to=u{number}@example.net" for number in range(5)]
    answers(tmp_path, "kannader", "enqueue", "--from", "news@shop.example", *to, "mail", "./k")
    ids = [task["id"] for task in answers(tmp_path, "queue", "list", "./k")]
    damaged = tmp_path / "k/queue/damaged"

    def words(line: str) -> Mapping[str, str]:
        if line.startswith("kannader recover"):
            damaged.symlink_to("../data/none/none")
        ident = ids[1] if line.startswith("purge") else ids[0]
        return {"/var/spool/kannader": "./k", "ID": ident}

    run_all("kannader", tmp_path, words)


def test_commands_on_a_zgb_database(tmp_path: Path) -> None:
    """Those of its page, on jobs that wait and on parked ones."""
    answers(tmp_path, "zgb", "init", "q.db")
    with closing(sqlite3.connect(tmp_path / "q.db")) as database, database:
        database.executemany("INSERT INTO registrations (number) VALUES (?)", [(7,), (8,), (9,)])
    for number in "789":
        answers(tmp_path, "zgb", "enqueue", number, "q.db")
    with closing(sqlite3.connect(tmp_path / "q.db")) as database, database:
        database.execute(
            "UPDATE mail_queue SET status = 'failed', attempts = 10, last_error = '550 no user',"
            " next_attempt_at = ? WHERE mail_type = 'user'",
            (PARKED_DUE_SECONDS,),
        )
    ids = ["7-user", "8-user"]

    def words(line: str) -> Mapping[str, str]:
        ident = ids.pop() if "--id" in line else ""
        if "--value 0" in line:
            control = ("control", "mailQueueEnabled", "q.db", "--value", "1", "--apply", "1")
            answers(tmp_path, *control)
        return {"/var/lib/zgb/mail.db": "./q.db", "ID": ident, "TEXT": "550"}

    run_all("zgb", tmp_path, words)


def test_commands_of_a_federation(tmp_path: Path, redis_url: str, redis_server: TestServer) -> None:
    """Those of its page, with a registry of servers and a delivery that has failed."""
    import_module("nacl")  # of the extra
    (tmp_path / "keys").mkdir(0o700)
    url = "https://peer.example"
    database = f"sqlite://{tmp_path}/app.db"
    config = {
        "destinations": database,
        "federation": {"origin": "https://own.example", "keys": f"{tmp_path}/keys"},
    }
    (tmp_path / "spooldeck.yaml").write_text(json.dumps(config))
    with closing(SqlRegistry(parse_address(database), creates=True)) as registry:
        registry.swap(None, Destination(url))
    with redis_server.client() as client:
        data = json.dumps({"serverUrl": url, "targetUrl": f"{url}/x", "payload": "{}"})
        write_failed(client, "1", queue="federation-delivery", data=data)

    def words(_line: str) -> Mapping[str, str]:
        payload = {"NAME": "deliver-post", "JSON": """'{"method": "FEDERATE_POST"}'"""}
        return {"redis://HOST/0": redis_url, **payload, "TEXT": "spam"}

    run_all("federation", tmp_path, words)


def run_chapter(document: str, folder: Path, words: Mapping[str, str]) -> None:
    """Run the lines of the chapter about data without spooldeck in a folder."""
    chapter = read(document).partition("## Getting data back without spooldeck\n")[2]
    for line in re.findall(r"(?ms)^```$(.*?)^```$", chapter)[0].strip().splitlines():
        for old, new in words.items():
            line = line.replace(old, new)
        subprocess.run(["sh", "-c", line], cwd=folder, check=True, stdout=subprocess.PIPE)


def answers(folder: Path, *words: str) -> list[dict[str, Any]]:
    """What a command prints with --json."""
    run = command.run([*words, "--json"], cwd=folder, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def hold_and_purge(folder: Path, place: str) -> list[dict[str, Any]]:
    """Hold the first task of a place and purge the second; return both as they were."""
    tasks = answers(folder, "queue", "list", place)[:2]
    for verb, task in zip(("hold", "purge"), tasks, strict=True):
        more = ["--include-all"] if verb == "purge" else []
        state = ("--state", task["state"])
        answers(folder, verb, place, *state, "--id", task["id"], "--apply", "1", *more)
    return tasks


def test_files_of_tasks_are_moved_back_without_spooldeck(tmp_path: Path) -> None:
    """By the commands of its page, a held and a purged task wait again."""
    spool = new_spool(tmp_path / "q")
    for number in (1, 2):
        path = Path(spool.pending, f"{a_task(number).id}.task")
        path.write_bytes(text_of(a_task(number)))
    held, purged = hold_and_purge(tmp_path, "./q")
    words = {"held/ID": f"held/{held['id']}", "trash/ID": f"trash/{purged['id']}"}
    (tmp_path / "q/queue/.spooldeck/corrupt").mkdir(exist_ok=True)
    run_chapter("engine/formats/nftban/MANUAL.md", tmp_path / "q", words)
    states = [task["state"] for task in answers(tmp_path, "queue", "list", "./q")]
    assert states == ["pending", "pending"]


def test_links_of_mail_are_moved_back_without_spooldeck(tmp_path: Path) -> None:
    """By the commands of its page, a held and a purged recipient are in the queue again."""
    (tmp_path / "mail").write_text("Subject: x\n\nHi\n")
    answers(tmp_path, "kannader", "init", "k")
    to = ("--to", "c@d.example", "--to", "e@f.example")
    answers(tmp_path, "kannader", "enqueue", "--from", "a@b.example", *to, "mail", "./k")
    held, purged = hold_and_purge(tmp_path, "./k")
    words = {"hold/ID": f"hold/{held['id']}", "trash/ID": f"trash/{purged['id']}"}
    run_chapter("engine/formats/kannader/MANUAL.md", tmp_path / "k", words)
    tasks = {task["id"]: task["state"] for task in answers(tmp_path, "queue", "list", "./k")}
    assert tasks == {held["id"]: "queue", purged["id"]: "queue"}


def test_rows_are_read_without_spooldeck(tmp_path: Path) -> None:
    """By the command of its page, each held and purged row is printed in full."""
    needs("sqlite3")
    answers(tmp_path, "zgb", "init", "q.db")
    with closing(sqlite3.connect(tmp_path / "q.db")) as database, database:
        database.execute("INSERT INTO registrations (number) VALUES (7)")
    answers(tmp_path, "zgb", "enqueue", "7", "q.db")
    hold_and_purge(tmp_path, "q.db")
    line = "sqlite3 DB.spooldeck 'SELECT state, image FROM aside'"
    assert line in read("engine/formats/zgb/MANUAL.md")
    run = subprocess.run(
        ["sh", "-c", line.replace("DB", "q.db")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.count('"mail_type"') == 2


def test_a_kept_message_is_sent_again_without_spooldeck(tmp_path: Path) -> None:
    """A held recipient waits again after the scheduler has removed the message."""
    spool = Spool(tmp_path / "p").make()
    control = spool.put(1, recipient(), recipient(user="e@f.example"))
    (waiting, _) = hold_and_purge(tmp_path, "./p")
    control.unlink()
    (spool.root / "queue/1").unlink()
    run_chapter("engine/formats/zmailer/MANUAL.md", spool.root, {"NAME": "1"})
    tasks = answers(tmp_path, "queue", "list", "./p")
    assert [task["state"] for task in tasks] == [waiting["state"]] * 2
