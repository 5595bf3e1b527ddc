"""Why an agent of a clause cannot be started on this host: no command, program, user or group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from engine.formats.zmailer.scheduling.agent_process import agent_account, agent_program
from engine.formats.zmailer.spool.scheduler_conf import Match, Remark, SchedulerConf
from engine.system.supervisor import CannotRun


def why_undeliverable(
    match: Match, channel: str, host: str, environ: Mapping[str, str], folder: str
) -> str:
    """Why no agent can be started for a channel and host; "" if one can. `environ` has the values
    of zmailer.conf, `folder` is transport/, in which agents work."""
    if not match.clauses:
        return "no clause of scheduler.conf matches"
    if "command" not in match.settings:
        return f"its clause {match.clauses[-1].pattern} has no command"
    user, group, command = (str(match.settings[name].value) for name in _NAMES)
    try:
        agent_account(user, group)
    except CannotRun as error:
        return str(error)
    return _why_no_program(command, channel, host, environ, folder)


_NAMES = ("user", "group", "command")


def _why_no_program(
    command: str, channel: str, host: str, environ: Mapping[str, str], folder: str
) -> str:
    words = [word for word in command.split() if "=" not in word]
    if "MAILBIN" not in environ and words and "/" not in words[0]:
        return ""  # no zmailer.conf here: its folder is not known
    try:
        program = agent_program(command, channel, host, environ, None).argv[0]
    except CannotRun as error:
        return str(error)
    path = os.path.join(folder, program)
    if not os.path.isfile(path):
        return f"{program}: no such program"
    return "" if os.access(path, os.X_OK) else f"{program}: is not executable"


def host_warnings(conf: SchedulerConf, environ: Mapping[str, str]) -> Iterator[Remark]:
    """A warning for each command whose program is not on this host."""
    for clause in conf.clauses:
        command = clause.settings.get("command")
        if command is None:
            continue
        if why := _why_no_program(str(command.value), "CHANNEL", "HOST", environ, "/"):
            yield Remark(command.line, 1, f"{clause.pattern}: never delivered on this host: {why}")
