"""What the tasks of a spool show of a running scheduler: tries, next try, last answer, reasons."""

import os
import time
from contextlib import closing

import pytest

from engine.formats.zmailer.environment import ZmailerSettings, read_files
from engine.formats.zmailer.scheduler.queue_facts import MailqFacts
from engine.formats.zmailer.spool.store import ZmailerStore
from engine.model import WAITS_KEY, Task
from engine.waiting_reasons import Circumstances, why_waiting
from tests.engine.formats.zmailer.scheduler.test_process import Place, place, until

__all__ = ["place"]

DEFER = r"""printf '#hungry\n'; while read -r file host && [ -n "$file" ]; do
case $file in '#idle') ;; *) id=${file##*/}
for at in $(grep -abo '^r ' $file | cut -d: -f1); do
printf '%s/%s\t\tdeferred \r<<- RCPT To\r->> 450 try later\n' $id $at; done
esac; printf '#hungry\n'; done"""
"""An agent that defers all recipients."""

CONF = """PARAMmailqsock="UNIX:{root}/mailq"
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
    text = CONF.format(root=place.root, more=more, uid=os.getuid(), gid=os.getgid())
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
