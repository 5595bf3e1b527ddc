"""The commands on a ZMailer spool."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.formats.base.format import Setup
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.mail.host import this_host
from tests.console_operator import an_operator
from tests.engine.formats.zmailer.scheduler.test_spool_controls import scheduler
from tests.engine.formats.zmailer.scheduler.test_spool_watch import (
    NOW,
    BusyQueue,
    a_spool,
    setup_of,
)
from tests.json_answers import check_run
from tests.mailq_server import serving
from tests.nftban_queues import Run
from tests.store_contents import every_file
from tests.zmailer_spool import Spool, dead_pid, recipient, write_lock
from tui import cli
from tui.cli.setup.places import open_places
from tui.task.screen import TaskScreen


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with three messages: two hosts, and one recipient with a lock that is left."""
    spool = Spool(tmp_path / "post").make()
    spool.put(1001, recipient(), recipient(user="e@f.example"))
    spool.put(1002, recipient(host="other.example"), folder="O/")
    write_lock(spool.put(1003, recipient(channel="local", host="-", user="rayan")), 91, dead_pid())
    return spool


Output = Callable[..., str]


@pytest.fixture
def run(spool: Spool, capsys: pytest.CaptureFixture[str]) -> Output:
    """Run a command on the spool, in this process; returns its output."""

    def run(*words: str) -> str:
        code, printed = cli.main([*words, str(spool.root)]), capsys.readouterr()
        assert code in (0, 1) and not printed.err.startswith("spooldeck:"), printed.err
        if "--json" in words:
            check_run([*words], printed.out)
        return printed.out

    return run


def test_the_commands_work_on_a_spool(spool: Spool, run: Output) -> None:
    """Status, groups, hold, purge, restore, release and undo, each on the lines of the files."""

    def counts() -> dict[str, int]:
        with closing(ZmailerStore(str(spool.root))) as store:
            return {store.states[state]: n for state, n in store.count_tasks().items() if n}

    before = {"waiting": 3, "locked": 1}
    assert before.items() <= json.loads(run("status", "--json"))["tasks"].items()
    made = sorted(path.name for path in spool.root.iterdir())
    assert made == ["queue", "router", "transport"], "no folder of ours is made by looking"
    listed = [one.split(" | ")[4:6] for one in run("queue", "list").splitlines()]
    assert ["local/-", "rayan"] in listed
    for words, *texts in (
        ("groups", "smtp/mx.example", "local/-"),
        ("groups --by channel", "4 tasks by channel, 2 groups"),
        ("groups --by ring", "RING"),
        ("overview", "waiting by host"),
        ("control", "tidy"),
        ("control tidy --dry-run", "nothing to remove"),
    ):
        output = run(*words.split())
        assert all(text in output for text in texts), output
    assert run("groups", "--by", "ring", "--json").count("{") > 1
    run("hold", "--filter", "group=mx.example", "--apply", "2")
    assert counts() == {"waiting": 1, "locked": 1, "held": 2}
    (held,) = map(json.loads, run("journal", "--json").splitlines())
    run("undo", held["op"], "--apply", "2")
    assert counts() == before
    run("purge", "--state", "waiting", "--filter", "group=other.example", "--apply", "1")
    run("restore", "--apply", "1")
    assert counts() == before
    run("release", "--state", "locked", "--apply", "1")
    assert counts() == {"waiting": 4}
    assert not list((spool.root / ".spooldeck" / "kept").rglob("10*"))


def test_a_configuration_is_checked_and_explained(tmp_path: Path, spooldeck: Run) -> None:
    """`check` prints each error with its place, or the clauses; `why` the lines of each setting."""
    path = tmp_path / "scheduler.cf"
    path.write_text("*/* interval=1m\nsmtp/*\n  maxring=x \x1b[31m\n")
    ended = spooldeck("zmailer", "check", str(path))
    assert (ended.returncode, "\x1b" in ended.stdout) == (1, False)
    assert f"{path}:3:11: maxring: expected a number from 0 to 1000000, not x" in ended.stdout
    assert f"{path}:3:13: unknown keyword" in ended.stdout
    assert spooldeck("zmailer", "why", "smtp/x", "-f", str(path)).returncode == 1

    path.write_text("*/* interval=1m\nsmtp/* maxring=2 command=smtp\n")
    good = spooldeck("zmailer", "check", str(path))
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "2 clauses, no errors")
    why = spooldeck("zmailer", "why", "smtp/x", MAILSHARE=str(tmp_path))
    assert why.returncode == 0, why.stderr
    rows = [" ".join(line.split()) for line in why.stdout.splitlines()]
    assert {"maxring 2 line 2", "overfeed 150 default", "expiry2 86400 default"} <= {*rows}
    path.write_text("smtp/* expiry2=0 command=smtp\n")
    why = spooldeck("zmailer", "why", "smtp/x", "-f", str(path))
    assert "expiry2           0 (a day) " in why.stdout
    path.write_text("smtp/* command=smtp\n")
    none = spooldeck("zmailer", "why", "uucp/x", "--conf", str(path))
    assert (none.returncode, none.stdout.splitlines()[-1]) == (1, "no command: nothing delivers it")
    path.write_text(f"smtp/*\n  command={tmp_path}/none\nhold/*\n  command=hold\n")
    lost = spooldeck("zmailer", "check", str(path), MAILBIN=str(tmp_path))
    *warnings, last = [lost.stdout.splitlines()[at] for at in (0, 1, -1)]
    assert (lost.returncode, last) == (0, "2 clauses, no errors, 2 warnings")
    for text, line, clause, program in zip(
        warnings, (2, 4), ("smtp/*", "hold/*"), ("none", "ta/hold"), strict=True
    ):
        why_not = f"never delivered on this host: {tmp_path}/{program}: no such program"
        assert text == f"{path}:{line}:1: warning: {clause}: {why_not}"


def test_a_statistics_log_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both forms of the log: numbers by state, and the median and p95 of both delays."""
    path = tmp_path / "ends"
    new = [f"S3309638AbmKTJ5Ym690J {n} {10 * n} ok smtp/mx\n" for n in range(1, 20)]
    old = "812876256 90401-2 40 500 expiry smtp/mx\n812876256 90401 0 1 error local/\x1b[2J\n"
    path.write_text("".join([*new, old, "torn 1"]))
    assert cli.main(["zmailer", "statistics", str(path)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "OK ERROR EXPIRY DT1 p50 p95 DT2 p50 p95 CHANNEL/HOST"
    assert lines[1].startswith("0 1 0 0 0 1 1 local/") and "\x1b" not in lines[1]
    assert lines[2] == "19 0 1 10 19 100 190 smtp/mx"
    assert lines[3].startswith("recipients: 21; other lines: 1")
    assert cli.main(["zmailer", "statistics", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["unread"], answer["hosts"][1]["states"]) == (1, {"ok": 19, "expiry": 1})
    assert cli.main(["zmailer", "statistics", str(tmp_path)]) == 74
    assert capsys.readouterr().err == f"spooldeck: {tmp_path}: Is a directory\n"


def test_wrong_words_are_one_line(spooldeck: Run) -> None:
    """With what was expected."""
    for words, code, message in (
        ("why smtp", 64, "MAILSHARE is not set"),
        ("why smtp --conf /dev/null", 64, "expected CHANNEL/HOST"),
        ("check /nothing/here", 78, "No such file"),
        ("mailq -x", 64, "expected -Q -v -c -h -U -p"),
        ("mailq a b", 64, "b: expected one ADDRESS"),
        ("mailq -p mailq", 64, "expected a port or the path of a socket"),
    ):
        done = spooldeck("zmailer", *words.split())
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert message in done.stderr


def test_two_configurations_are_compared(spool: Spool, tmp_path: Path, spooldeck: Run) -> None:
    """Clauses and settings that differ, and the waiting threads that they affect."""
    old, new = tmp_path / "old.conf", tmp_path / "new.conf"
    old.write_text("smtp/* command=smtp\nlocal/* command=mailbox\n")
    new.write_text("smtp/other.example maxring=2 command=smtp\nsmtp/* command=smtp\n")
    words = ("zmailer", "check", str(new), "--diff", str(old))
    done = spooldeck(*words, "--spool", str(spool.root))
    assert done.stdout.splitlines() == [
        "clause local/*: removed",
        "clause smtp/other.example: added",
        "clause smtp/other.example: command: not set -> smtp",
        "clause smtp/other.example: maxring: not set -> 2",
        f"4 changes from {old} to {new}",
        "thread smtp/other.example, R=1: maxring: 0 -> 2",
        "1 waiting threads change",
    ]
    assert spooldeck(*words[:3], "--spool", str(spool.root)).returncode == 64
    old.write_text("x=1\n")
    assert spooldeck(*words).returncode == 1


def test_the_doctor_names_what_stops_mail(spool: Spool, tmp_path: Path, spooldeck: Run) -> None:
    """Each problem with the command that repairs it; nothing is changed."""
    conf, auth = tmp_path / "scheduler.conf", tmp_path / "auth"
    conf.write_text(f"PARAMauthfile={auth}\nsmtp/mx.* command=smtp\n")
    auth.write_text("root:x:ALL:\n")
    auth.chmod(0o644)
    for name, text in (
        (".pid.scheduler", f"{dead_pid()}\n"),
        (".scheduler.notify", ""),
        ("queue/1009", "external\n"),
        ("queue/1010", "external\n"),
        ("freezer/1010.1", "i 1010\nr torn"),
        ("transport/1008", "i 1008\nr torn"),
        (".spooldeck/frozen", ""),
    ):
        (spool.root / name).parent.mkdir(exist_ok=True)
        (spool.root / name).write_text(text)
        if name.startswith("queue"):
            os.utime(spool.root / name, (1, 1))
    spool.put(1005, recipient(), folder="A/")
    config = tmp_path / "config.yaml"
    config.write_text(f"stores: {{zmailer: {{scheduler_conf: {conf}}}}}\n")
    before = every_file(spool.root)

    done = spooldeck("--config", str(config), "zmailer", "doctor", str(spool.root))

    assert done.returncode == 1, done.stderr
    output = done.stdout
    for expected in (
        f"{auth}: mode 0644, it has passwords",
        "its pid file is there: a start may signal another one",
        "frozen by an operator",
        ".scheduler.notify: is not a socket",
        "1 recipient locked by agents that have ended",
        "4 recipients waiting",
        "smtp/other.example: never delivered: no clause of scheduler.conf matches: 1 recipient",
        "queue/1009: a message without its control file: never delivered",
        "transport/A/1005: in a folder that its number does not lead to",
        "not in hash folders",
        "transport/1008: torn",
        "overdue for expiry",
    ):
        assert expected in output, output
    assert "queue/1010" not in output  # its control file is in the freezer
    assert every_file(spool.root) == before


def test_a_missing_log_is_named_beside_that_of_the_scheduler(
    spool: Spool, tmp_path: Path, spooldeck: Run
) -> None:
    """Where the scheduler has no known log, one that the configuration names is named all the
    same if it does not exist."""
    config = tmp_path / "config.yaml"
    config.write_text(f"logs: [{tmp_path}/more.log]\n")
    printed = spooldeck("--config", str(config), "log", str(spool.root))
    assert f"{tmp_path}/more.log; no log of the scheduler is known: set" in printed.stderr


def test_the_doctor_of_a_spool_in_order_finds_nothing(tmp_path: Path, spooldeck: Run) -> None:
    """But that no scheduler is running here."""
    spool = Spool(tmp_path / "post").make()
    path = spool.put(1001, recipient())
    for name in ("transport", "queue"):
        os.utime(spool.root / name / path.name)
    (tmp_path / "scheduler.conf").write_text("smtp/* command=smtp\n")
    done = spooldeck("zmailer", "doctor", str(spool.root), MAILSHARE=str(tmp_path))
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("ok", " "))]
    assert lines == ["warn  scheduler no scheduler is running"]


def test_mail_is_given_up_and_rerouted(
    spool: Spool, run: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan warns, the router gets a mail for each, and the journal has the verbs."""
    assert "its sender gets a report" in run("bounce", "--dry-run", "--filter", "group=mx.example")
    run("bounce", "--filter", "group=mx.example", "--apply", "2")
    run("reroute", "--filter", "group=other.example", "--apply", "1")
    texts = [path.read_text() for path in (spool.root / "router").iterdir()]
    received = f'rcvdfrom STDIN ("??"@{this_host().name})'
    assert sorted(text.split("\n")[0] for text in texts) == ["channel error", received]
    verbs = [json.loads(line)["verb"] for line in run("journal", "--json").splitlines()]
    assert sorted(verbs) == ["bounce", "reroute"]
    spool.put(1004, recipient())
    cli.main(["promote", "--apply", "1", str(spool.root)])
    assert "no scheduler is running" in capsys.readouterr().err
    assert "no agent is started" in run("control", "freeze", "--value", "on", "--apply", "1")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Setup]:
    """A scheduler that answers by MAILQ, and the setup of its spool."""
    spool = a_spool(tmp_path)
    with scheduler(spool), serving(tmp_path, BusyQueue(now=NOW)):
        yield setup_of(spool)


async def test_groups_are_shown_by_thread_and_ring(running: Setup) -> None:
    """With messages, agents and why a thread waits; verbs act on the tasks of a ring's threads."""
    (place,) = await asyncio.to_thread(open_places, running, [running.place])
    async with an_operator(place, size=(120, 40), clock=time.time) as operator:
        await operator.sees("1001/91")
        await operator.opens(TaskScreen, "enter")
        await operator.press("question_mark")
        await operator.sees("plan to bounce waiting tasks")  # in the help of a task, too
        await operator.press("escape", "escape", "b")
        await operator.sees("THREAD", "channel", "smtp/a.test", ">MaxRing", "X purge", "H hold")
        assert "R retry" not in operator.text
        await operator.press("question_mark")
        await operator.types("waiting")
        old = "plan to give up waiting mail as too old"
        await operator.sees("plan to bounce waiting tasks", old)
        assert "without a worker as dead" not in operator.text
        await operator.press("escape", "h")
        await operator.sees("RING", "smtp/*", "(no clause)")
