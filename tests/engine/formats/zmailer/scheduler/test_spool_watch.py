"""What console and tasks show of a ZMailer spool: from its scheduler, files and configuration."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.config.validators import ConfigLocation
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from engine.formats.zmailer.environment import ZmailerSettings, read_files
from engine.formats.zmailer.mailq.queue_view import AgentView, SchedulerView, ThreadView
from engine.formats.zmailer.scheduler.queue_facts import MailqFacts, find_server
from engine.formats.zmailer.scheduler.spool_watch import SpoolWatch
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import WAITS_KEY, Task
from engine.store import Unavailable
from engine.waiting_reasons import Circumstances, why_waiting
from tests.engine.formats.zmailer.scheduler.test_process import Place, place, until
from tests.engine.formats.zmailer.scheduler.test_spool_controls import scheduler
from tests.mailq_server import SampleQueue, serving
from tests.zmailer_spool import Spool, recipient
from tui.cli import main
from tui.cli.setup.places import open_places

NOW = 1_795_170_000.0
CONF = """PARAMmailqsock=UNIX:{folder}/mailq.sock
PARAMauthfile={folder}/auth
smtp/a.test
smtp/*
  maxring=5 command=smtp
"""


class BusyQueue(SampleQueue):
    """A queue with an agent, and a thread that a limit stops."""

    def view(self, *, with_jobs: bool) -> SchedulerView:
        """The first thread has an agent, the second one waits for it."""
        view = super().view(with_jobs=with_jobs)
        groups = (
            group._replace(
                threads=tuple(map(self._busy, group.threads)),
                idle=(2, 2) if group.channel == "smtp" else (0, 0),
            )
            for group in view.groups
        )
        totals = view.totals._replace(agents=3, idle=2)
        return view._replace(groups=tuple(groups), totals=totals)

    def _busy(self, thread: ThreadView) -> ThreadView:
        if thread.host == "a.test":
            agent = AgentView(77, self.now - 3, self.now - 1, 2, "STUFF")
            return thread._replace(agents=(agent,), unfed=5, wakeup=None)
        return thread._replace(pending=">MaxRing", wakeup=None)


def a_spool(tmp_path: Path) -> Spool:
    """A spool with two threads of a ring, and the configuration of its scheduler."""
    spool = Spool(tmp_path / "post").make()
    spool.put(1001, recipient(host="a.test"), recipient(host="a.test", user="two"))
    spool.put(1002, recipient(host="b.test"), recipient(channel="local", host="-"))
    (tmp_path / "scheduler.conf").write_text(CONF.format(folder=tmp_path))
    auth = tmp_path / "auth"
    auth.write_text("qonly:pw:SNMP:\nroot:s3cret:ALL:\n")
    auth.chmod(0o600)
    return spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """That spool."""
    return a_spool(tmp_path)


def setup_of(spool: Spool, more: str = "") -> Setup:
    """Its setup, with a configuration that names the scheduler.conf, and more settings."""
    folder = spool.root.parent
    config = folder / "config.yaml"
    settings = f"scheduler_conf: {folder}/scheduler.conf{more}"
    config.write_text(f"stores: {{zmailer: {{{settings}}}}}\n")
    return setup_for(queue_config.load_config(str(config), {}), str(spool.root), {})


def with_statistics(spool: Spool) -> Setup:
    """Its setup with a statistics log of a minute ago: 4 delivered, 5 failed."""
    log = spool.root.parent / "statistics"
    ends = ["ok3 smtp/a.test"] * 4 + ["error smtp/b.test"] * 4 + ["expire smtp/a.test"]
    log.write_text("".join(f"S1001AbmK1I4JTrjU8 0 2 {end}\n" for end in ends))
    os.utime(log, (NOW - 60, NOW - 60))
    return setup_of(spool, f", statistics: {log}")


@pytest.fixture
def running(spool: Spool) -> Iterator[Setup]:
    """A scheduler that answers by MAILQ, and the setup of its spool."""
    with scheduler(spool), serving(spool.root.parent, BusyQueue(now=NOW)):
        yield setup_of(spool)


def test_a_running_scheduler_shows_agents_and_pending_reasons(running: Setup) -> None:
    """By the user of its authfile that may see threads; agents are listed as workers."""
    watch = SpoolWatch(running, lambda: NOW)
    figures = watch.figures()
    facts = watch.facts(["smtp/a.test", "smtp/b.test", "local/-"])
    assert (figures.has_worker, len(figures.workers), watch.obstacle("smtp")) == (True, 1, "")
    assert dict(figures.rows)["scheduler"].endswith("the original one")
    assert dict(figures.rows)["threads"] == "3, 2 pending; 3 agents, 2 idle"
    assert [(agent.name, agent.text) for agent in figures.connected] == [
        ("PID 77", "smtp/a.test: waits for 2 answers, 5 not fed, asked 3s ago, fed 1s ago; STUFF"),
        *[("idle", "smtp/*: IDLE, for the next thread of its ring")] * 2,
    ]
    assert figures.warnings == (
        "hold/ns:c.test/any: 1 recipient never delivered: no clause of scheduler.conf matches",
    )
    busy, waiting, unknown = facts.values()
    assert (busy.ring, busy.agents, busy.pending) == ("smtp/a.test", 1, "")
    agent = ("agent", "PID 77: waits for 2 answers, 5 not fed, asked 3s ago, fed 1s ago; STUFF")
    assert {agent, ("settings", "maxring=5")} <= {*busy.rows}
    assert (waiting.ring, waiting.agents, waiting.pending) == ("smtp/*", 0, ">MaxRing")
    assert (unknown.ring, unknown.agents) == ("(no clause)", None)


def test_failures_of_finished_messages_are_counted(running: Setup, spool: Spool) -> None:
    """By the statistics log, with a warning if many and young; without a log they are unknown."""
    unknown = SpoolWatch(running, lambda: NOW).figures()
    assert dict(unknown.rows)["failures"].startswith("? no statistics log: option -l")
    assert unknown.failed is None
    setup = with_statistics(spool)
    figures = SpoolWatch(setup, lambda: NOW).figures()
    row = "5 of the last 9 ended (56%): smtp/b.test 4, smtp/a.test 1; as of 1m ago"
    assert (dict(figures.rows)["failures"], figures.failed) == (row, 5)
    assert figures.gone_failures == {"smtp/b.test": 4, "smtp/a.test": 1}
    text = "5 of the last 9 recipients failed, 4 of them for smtp/b.test"
    assert text in figures.warnings
    assert text not in SpoolWatch(setup, lambda: NOW + 7200).figures().warnings


def test_mails_that_wait_for_the_router_are_seen(spool: Spool) -> None:
    """How many, how many of them reports, and how old; after ten minutes with a warning."""
    router, setup = spool.root / "router", setup_of(spool)
    assert dict(SpoolWatch(setup, lambda: NOW).figures().rows)["router"] == "no mail waits for it"
    (router / ".new").write_text("channel error\n")
    for name, envelope in (
        ("1234", "channel error\nerrormsg\nto <a@x.test>\nenv-end\n"),
        ("1235", "from <channel error>\nto <a@x.test>\nenv-end\n"),
    ):
        (router / name).write_text(envelope)
        os.utime(router / name, (NOW - 60, NOW - 60))
    figures = SpoolWatch(setup, lambda: NOW).figures()
    assert dict(figures.rows)["router"] == "2 mails, 1 report, the oldest for 1m"
    assert not any("router" in warning for warning in figures.warnings)
    late = SpoolWatch(setup, lambda: NOW + 600).figures().warnings
    assert "router/: 2 mails, 1 report, the oldest for 11m: does the router run?" in late


def test_finished_failures_are_clusters(spool: Spool, capsys: pytest.CaptureFixture[str]) -> None:
    """Each thread of finished messages is a cluster, and FAILED of the overview counts them."""
    with_statistics(spool)
    words = ["--config", f"{spool.root.parent}/config.yaml", "--root", str(spool.root)]
    assert main(["clusters", "--json", *words]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = [(row["error"], row["count"], row["same_now"]) for row in rows]
    why = "failed, message finished"
    assert counts == [(f"smtp/b.test: {why}", 4, "?"), (f"smtp/a.test: {why}", 1, "?")]
    main(["overview", *words])
    printed_lines = capsys.readouterr().out.splitlines()
    title = next(at for at, line in enumerate(printed_lines) if " FAILED " in line)
    end = printed_lines[title].index(" FAILED ") + len(" FAILED")
    assert printed_lines[title + 1][:end].split()[-1] == "5"


def test_of_a_stopped_spool_only_what_is_known_is_shown(spool: Spool) -> None:
    """The clauses, but no agents and no reasons; without a configuration no ring either. Of a
    scheduler that does not answer threads and agents are unknown, with the reason."""
    watch = SpoolWatch(setup_of(spool))
    figures = watch.figures()
    assert (dict(figures.rows)["scheduler"], figures.has_worker) == ("not running", False)
    assert figures.server is not None
    assert figures.server.describe(3, 0.0) == "no scheduler is running: 3 wait"
    assert watch.obstacle("smtp") == "no scheduler is running: its agents deliver"
    (facts,) = watch.facts(["smtp/b.test"]).values()
    assert (facts.ring, facts.agents, facts.wakeup) == ("smtp/*", None, None)
    with scheduler(spool):
        watch = SpoolWatch(setup_of(spool))
        assert dict(watch.figures().rows)["threads"].startswith("? ")
        assert watch.facts(["smtp/a.test"])["smtp/a.test"].agents is None
    (spool.root.parent / "scheduler.conf").unlink()
    (facts,) = SpoolWatch(setup_of(spool)).facts(["smtp/b.test"]).values()
    assert facts.ring == "?"


def test_a_spool_has_its_schedulers_log(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the settings, else `scheduler` in LOGDIR; if neither is known, none."""
    setup = setup_of(spool)
    monkeypatch.setenv("ZCONFIG", "/dev/null")
    monkeypatch.delenv("LOGDIR", raising=False)

    def logs(**section: str) -> tuple[str, ...]:
        stores = {"zmailer": (section, ConfigLocation("", "stores.zmailer"))}
        (place,) = open_places(
            setup._replace(config=setup.config._replace(stores=stores)), [setup.place]
        )
        return tuple(place.logs)

    own = (setup.log_path,)
    assert logs() == own
    assert logs(log="/l/main") == (*own, "/l/main")
    monkeypatch.setenv("LOGDIR", "/l")
    assert logs() == (*own, "/l/scheduler")


def test_the_server_is_that_of_the_configuration(tmp_path: Path) -> None:
    """PARAMmailqsock in both spellings, port 174 without it; else the reason."""
    (tmp_path / "auth").write_text("qonly:pw:SNMP:\n")
    (tmp_path / "auth").chmod(0o600)
    conf = tmp_path / "scheduler.conf"
    for params, where in (
        ("", "127.0.0.1:174"),
        ("PARAMmailqpath=TCP:1740\n", "127.0.0.1:1740"),
        ("PARAMmailqsock=/run/m\n", "/run/m"),
        ("PARAMmailqsock=TCP:no-such\n", "expected a path, or TCP: and a port"),
        (f"PARAMauthfile={tmp_path}/auth\n", "no user may see the threads"),
        (f"PARAMauthfile={tmp_path}/none\n", "none"),
        ("x=1\n", "has errors"),
    ):
        conf.write_text(params)
        try:
            text = find_server(read_files(ZmailerSettings(scheduler_conf=str(conf)), {})).text
        except Unavailable as error:
            text = str(error)
        assert where in text


# ---- what tasks show of a running scheduler


__all__ = ["place"]

DEFER = r"""printf '#hungry\n'; while read -r file host && [ -n "$file" ]; do
case $file in '#idle') ;; *) id=${file##*/}
for at in $(grep -abo '^r ' $file | cut -d: -f1); do
printf '%s/%s\t\tdeferred \r<<- RCPT To\r->> 450 try later\n' $id $at; done
esac; printf '#hungry\n'; done"""
"""An agent that defers all recipients."""

THREADS_CONF = """PARAMmailqsock="UNIX:{root}/mailq"
{more}*/*
  interval=1h expiry=3d user={uid} group={gid}
slow/*
  command={root}/slow.sh
full/*
  maxring=1 command={root}/full.sh
etrn/*
  queueonly command={root}/slow.sh
none/*
  interval=2h
gone/*
  command={root}/none.sh
"""


def read_tasks(store: ZmailerStore, clock: list[float]) -> dict[str, Task]:
    """The tasks by their hosts, with what the scheduler shows now."""
    clock[0] += 1000.0
    return {item.group: item for item in store.scan() if isinstance(item, Task)}


@pytest.mark.parametrize("version", [1, 2])
def test_each_recipient_shows_why_it_waits(place: Place, version: int) -> None:
    """A deferred one shows tries, answer and next try; the others the reason of their thread."""
    place.write_agent("slow", DEFER)
    place.write_agent("full", "exec sleep 60")
    auth = place.root / "auth"
    auth.write_text("root:s3cret:ALL:\n")
    auth.chmod(0o600)
    more = f"PARAMauthfile={auth}\n" if version == 2 else ""
    text = THREADS_CONF.format(root=place.root, more=more, uid=os.getuid(), gid=os.getgid())
    place.conf.write_text(text)
    hosts = ("slow/deferred", "full/first", "full/second", "etrn/asked", "none/bare", "gone/lost")
    for number, thread in enumerate(hosts, 70):
        place.put(number, *thread.split("/"))
    settings = ZmailerSettings(scheduler_conf=str(place.conf))
    clock = [0.0]  # stands still while a spool is read
    facts = MailqFacts(lambda: read_files(settings, {}), monotonic=lambda: clock[0])
    with closing(ZmailerStore(str(place.root), facts=facts)) as store:
        assert {task.due for task in read_tasks(store, clock).values()} == {None}
        with place.running():
            until(lambda: read_tasks(store, clock)["deferred"].attempts)
            until(lambda: ">Max" in str([task.extra for task in read_tasks(store, clock).values()]))
            tasks, now = read_tasks(store, clock), time.time()
    deferred = tasks["deferred"]
    assert deferred.due is not None and now + 3500 < deferred.due < now + 3700
    assert (deferred.attempts, deferred.error) == (1, "450 try later")
    assert "expires" in deferred.extra and WAITS_KEY not in deferred.extra
    limited = next(tasks[name] for name in ("first", "second") if ">Max" in str(tasks[name].extra))
    due = {name: task.due for name, task in tasks.items()}
    assert (limited.due, due["asked"], due["bare"]) == (0.0, None, None)
    assert due["lost"] is not None and now < due["lost"] < now + 61
    reasons = {
        limited.group: ">MaxRing: all agents of its ring (maxring) are in use",
        "asked": "QueueOnly: queueonly: only ETRN starts it",
        "bare": "ConfBUG:NoCmdDefined!: its clause has no command: never delivered",
        "lost": "System:ForkFailure!: its agent cannot be started: the scheduler's log has the "
        "reason",
    }
    for name, reason in reasons.items():
        task = tasks[name]
        assert (task.extra[WAITS_KEY], task.error) == (reason, f"waits: {reason}")
        assert reason in why_waiting(task, now, Circumstances())
