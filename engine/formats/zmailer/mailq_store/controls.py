"""What a user may do at a scheduler by the rights that it gave at the login: edges and controls.

The controls start a host, or delete a message or a thread and check that it is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.formats.zmailer.mailq.acl import Right
from engine.formats.zmailer.mailq_store.source import ThreadSource
from engine.model import Edge, Edges, State, accept_only_now
from engine.store import Control, Outlook, Unavailable, Unsupported, refuse_all

_KILL = "the scheduler deletes the message for all its hosts, without a report to its sender"
_START = "the scheduler starts all threads of the host, for all their messages"

_KILL_EDGES: Edges = {
    (State.PENDING, None): Edge(warning=_KILL, undoable=False, exact=False, shared_field="payload")
}
_START_EDGES: Edges = {
    (State.PENDING, State.PENDING): Edge(
        frozenset({"due"}),
        warning=_START,
        undoable=False,
        value_problem=accept_only_now,
        exact=False,
        shared_field="group",
    )
}

START, KILL_MESSAGE, KILL_THREAD = "start", "kill-message", "kill-thread"
"""Names of controls."""

_CONTROLS = {
    KILL_MESSAGE: Control(
        "delete a message, also one that an agent has, without a report to its sender",
        target="control file or spool id",
    ),
    KILL_THREAD: Control(
        "delete all messages of a thread, without reports to their senders",
        target="CHANNEL/HOST",
        has_forecast=True,
    ),
    START: Control("start all threads of a host now", target="HOST", has_forecast=True),
}


class SchedulerControls:
    """The edges and controls that a user has at one server."""

    def __init__(self, source: ThreadSource, user: str) -> None:
        self._source = source
        self.edges: Edges = {}
        """Refused without the right to them, as `controls`; without any right there are none."""
        self.controls: Mapping[str, Control] = {}
        if source.rights:
            why_no_kill, why_no_start = (
                "" if right in source.rights else f"user {user} has no right {right} at this server"
                for right in (Right.KILL, Right.ETRN)
            )
            self.edges = {
                **refuse_all(_KILL_EDGES, why_no_kill),
                **refuse_all(_START_EDGES, why_no_start),
            }
            self.controls = {
                name: one._replace(refusal=why_no_start if name == START else why_no_kill)
                for name, one in _CONTROLS.items()
            }

    def run(self, name: str, target: str = "", value: str = "") -> str:
        """Start the threads of a host, or delete all messages of a thread; then read them again.
        Raises Unsupported: it is refused, or no such control or thread; Unavailable: the server
        cannot be reached, or has not done it."""
        self._require_control(name)
        if name == START:
            return self._source.request(f"ETRN {target}")
        if name == KILL_MESSAGE:
            return self._kill_message(target)
        channel, host, before = self._thread(target)
        answer = self._source.request(f"KILL THREAD {channel} {host}")
        remaining_jobs = len(self._source.jobs(channel, host).jobs)
        if remaining_jobs:
            raise Unavailable(
                f"{target}: answered {answer!r}, but {remaining_jobs:,} messages are there"
            )
        return f"messages deleted in {target}: {before:,}"

    def _kill_message(self, target: str) -> str:
        answer = self._source.request(f"KILL MSG {target}")
        spool_id = re.fullmatch(r"S(\d+)[A-Z].*", target)
        number = spool_id[1] if spool_id else target.rpartition("/")[2]
        for thread in self._source.threads():
            jobs = self._source.jobs(thread.channel, thread.host).jobs
            if any(job.path.rpartition("/")[2] == number for job in jobs):
                where = f"it is still in {thread.channel}/{thread.host}"
                raise Unavailable(f"{target}: answered {answer!r}, but {where}")
        return f"message deleted: {target}"

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """Report how many tasks a control would affect. Raises Unsupported, Unavailable: see
        `control`."""
        self._require_control(name)
        if name == KILL_MESSAGE:
            raise Unsupported(f"no forecast of {name}")
        if name == START:
            threads = [thread for thread in self._source.threads() if thread.host == target]
            amount = sum(thread.jobs for thread in threads)
            return Outlook(f"threads to start: {len(threads):,}, with {amount:,} messages", amount)
        amount = self._thread(target)[2]
        return Outlook(f"messages to delete: {amount:,}", amount)

    def _thread(self, target: str) -> tuple[str, str, int]:
        """Channel, host and number of jobs of a thread that is there."""
        channel, slash, host = target.partition("/")
        if not slash or not channel or not host:
            raise Unsupported(f"{target!r}: expected CHANNEL/HOST")
        amount = len(self._source.jobs(channel, host).jobs)
        if not amount:
            raise Unsupported(f"{target!r}: no such thread")
        return channel, host, amount

    def _require_control(self, name: str) -> None:
        if name not in self.controls:
            raise Unsupported(f"no control {name}")
        if why := self.controls[name].refusal:
            raise Unsupported(why)
