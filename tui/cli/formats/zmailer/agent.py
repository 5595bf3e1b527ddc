"""The command `spooldeck zmailer agent`: a transport agent that a ZMailer scheduler starts.

Its options are letters, as those of the agents of ZMailer (smtp(8zm), hold(8zm), errormail(8zm)).
"""

from __future__ import annotations

import getopt
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from engine.formats.base.format import Setup
from engine.formats.zmailer import environment, spool_mail
from engine.formats.zmailer.agents.jobs import POSTOFFICE, AgentJobs, Deliver, run_agent
from engine.formats.zmailer.agents.router_agents import ErrormailAgent, HoldAgent
from engine.formats.zmailer.agents.smtp import SmtpAgent
from engine.formats.zmailer.log_file import SchedulerLog
from engine.formats.zmailer.reports import ReportSettings
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.submit import Router
from engine.mail.host import this_host
from engine.mail.send.smtp_client import SmtpDestination
from engine.store import Unavailable
from engine.system.command_errors import EX_USAGE, fail
from engine.text.decode import parse_digits
from engine.text.safe import safe_line
from engine.values import NamedTuple

EXPECTED_FOLDER = "expected the folder transport/ of a spool"


class _Agent(NamedTuple):
    """One kind of agent."""

    channel: str
    """That of its recipients, without -c."""
    letters: str
    """Its options, as for getopt(3)."""
    open_agent: Callable[[PostofficeFolders, Mapping[str, str]], Iterator[Deliver]]
    """Yields its function while it runs."""


def _open_smtp(folders: PostofficeFolders, options: Mapping[str, str]) -> Iterator[Deliver]:
    settings = SmtpDestination(
        "",
        port=_number(options, "-p", 25, 65535),
        helo=options.get("-h") or this_host().name,
        timeout=_number(options, "-T", 300, 86400),
    )
    log = SchedulerLog(options["-l"], time.time) if "-l" in options else None
    agent = SmtpAgent(settings, f"smtp[{os.getpid()}]", log.write if log else lambda text: None)
    try:
        yield agent.deliver
    finally:
        agent.close()
        if log:
            log.close()


def _open_hold(folders: PostofficeFolders, options: Mapping[str, str]) -> Iterator[Deliver]:
    yield HoldAgent(Router(folders.fd), this_host().name).deliver


def _open_errormail(folders: PostofficeFolders, options: Mapping[str, str]) -> Iterator[Deliver]:
    forms = environment.read_files(environment.ZmailerSettings(), os.environ).forms
    read_form = partial(spool_mail.read_form, forms)
    settings, name = ReportSettings(this_host().name), f"errormail[{os.getpid()}]"
    yield ErrormailAgent(Router(folders.fd), settings, read_form, name).deliver


_AGENTS = {
    "smtp": _Agent("smtp", "8ADeEHPrsSvVWxc:h:l:p:T:", _open_smtp),
    "hold": _Agent("hold", "vVc:", _open_hold),
    "errormail": _Agent("error", "vVc:", _open_errormail),
}


def _number(options: Mapping[str, str], letter: str, default: int, most: int) -> int:
    if letter not in options:
        return default
    number = parse_digits(options[letter], most)
    if not number:
        words = f"expected a number from 1 to {most}"
        fail(EX_USAGE, f"{letter} {safe_line(options[letter])}: {words}")
    return number


def _parse(kind: _Agent, words: Sequence[str]) -> tuple[dict[str, str], str]:
    """The options by their letters, and the host."""
    try:
        options, hosts = getopt.getopt(list(words), kind.letters)
    except getopt.GetoptError as error:
        fail(EX_USAGE, str(error))
    if len(hosts) > 1:
        fail(EX_USAGE, f"{safe_line(hosts[1])}: expected at most one host")
    return dict(options), hosts[0] if hosts else ""


def agent(setup: Setup, kind: str, words: list[str]) -> int:
    """Serve the jobs of a scheduler on standard input, until it ends; works in transport/."""
    known = _AGENTS[kind]
    options, host = _parse(known, words)
    try:
        folders = PostofficeFolders(POSTOFFICE)
    except Unavailable as error:
        fail(EX_USAGE, f"{safe_line(os.getcwd())}: {EXPECTED_FOLDER}: {safe_line(str(error))}")
    try:
        if not os.path.samestat(os.stat("."), folders.transport_status):
            fail(EX_USAGE, f"{safe_line(os.getcwd())}: {EXPECTED_FOLDER}")
        # At a slow stop the scheduler signals all agents: the job is finished first.
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        with contextmanager(known.open_agent)(folders, options) as deliver:
            channel = options.get("-c") or known.channel
            jobs = AgentJobs(folders, channel, host, deliver, time.time)
            run_agent(jobs.serve, sys.stdin.fileno(), sys.stdout.fileno())
    finally:
        folders.close()
    return 0
