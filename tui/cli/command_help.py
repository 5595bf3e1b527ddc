"""The end of each command's help: an example, the exit codes and the keys of `--json`.

The table has a row for each command: its words, the name of its exit codes, and the arguments of
the example. The codes from 64 are those of all commands (`EXIT_CODES`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

from engine.system.command_errors import (
    EX_CONFIG,
    EX_IOERR,
    EX_NOPERM,
    EX_OSERR,
    EX_TIMEOUT,
    EX_UNAVAILABLE,
    EX_USAGE,
    NOT_PRINTED,
)
from tui.cli.json_schemas import json_schemas
from tui.terminal.crash_report import EX_SOFTWARE

EXIT_CODES: Mapping[int, str] = {
    0: "done, or nothing needs attention",
    1: "nothing to do, queue full, not all of it done, or something needs attention",
    2: "another process holds the lock; tasks are claimed by a worker; a place is unreadable",
    3: "the handler failed (`process-next`)",
    NOT_PRINTED: "the task was added, but its id could not be printed: do not repeat the command",
    EX_USAGE: "wrong usage",
    EX_UNAVAILABLE: "unavailable for now: no queue, disk full",
    EX_SOFTWARE: "internal error; the line names the crash report",
    EX_OSERR: "the system lacks a process, a thread, memory or descriptors",
    EX_IOERR: "I/O error",
    EX_TIMEOUT: "the time of `wait` is over; a task was not tried, as the worker lacks something",
    EX_NOPERM: "no permission",
    EX_CONFIG: "wrong configuration",
    130: "interrupted by Ctrl-C",
}
"""All exit codes of all commands; the manual has the same table. From 64: sysexits.h."""

_OWN_CODES = {
    "read": "0 printed",
    "done": "0 done",
    "attention": "0 OK, 1 needs attention, 2 unreadable",
    "findings": "0 none, 1 some",
    "plan": "0 done or shown, 1 not all done or another count, 2 a worker holds the tasks",
    "one": "0 done or shown, 1 no such task, or it has changed",
    "some": "0 done, 1 not all of it",
    "added": "0 added and on the disk, 1 queue full, 4 added but the id could not be printed",
    "process": "0 done, 1 nothing due, 2 locked, 3 the handler failed",
    "work": "0 stopped, 2 locked, 3 an outcome could not be stored",
    "loop": "0 stopped or idle",
    "recover": "0 free, 2 not taken, 74 a task could not be recovered",
    "sent": "0 accepted by the transport, 1 not",
    "spooled": "0 accepted by the transport, 1 spooled",
    "mail": "0 OK, 1 no transport, 2 suspended or not running",
    "wait": "0 reached, 1 a task failed or was purged or held, 75 the time is over",
}
"""The codes below 64 of a kind of command, and those that mean something special there."""

_TABLE = """
demo | read | --tasks 200
status | attention | /srv/queue --json
overview | attention | /srv/queue /srv/mail
top | read | /srv/queue
wait | wait | --id 20261126T060005Z-report-390a56fc --timeout 60 /srv/queue
groups | read | /srv/queue --by kind
clusters | read | /srv/queue --json
workers | attention | /srv/queue
kinds | attention | /srv/queue
locks | attention | /srv/queue
transports | findings | /srv/queue
destinations | findings | probe https://example.org /srv/queue --apply 1
log | read | /srv/queue --since -2h --level warn
control | one | pause redis://localhost/0 --value 1 --dry-run
edit | one | 20261126T060005Z-report-390a56fc /srv/queue --due +2h --apply 1
note | one | 20261126T060005Z-report-390a56fc 'waits for the supplier' /srv/queue
notes | read | /srv/queue --json
replay | plan | /srv/queue --filter 'error~timeout' --dry-run
rerun | plan | redis://localhost/0 --filter 'kind=report' --dry-run
purge | plan | /srv/queue --filter 'kind=report' --reason 'sent by hand' --apply 12
hold | plan | /srv/queue --id 20261126T060005Z-report-390a56fc --apply 1
release | plan | /srv/queue --dry-run
promote | plan | /srv/queue --filter 'kind=report' --dry-run
kill | plan | /srv/queue --dry-run
bounce | plan | /var/spool/postoffice --filter 'dest=smtp/old.example.org' --dry-run
expire | plan | /var/spool/postoffice --filter 'dest=smtp/old.example.org' --dry-run
reroute | plan | /var/spool/postoffice --filter 'dest=smtp/old.example.org' --dry-run
restore | plan | /srv/queue --filter 'kind=report' --dry-run
expunge | plan | /srv/queue --state trash --dry-run
undo | plan | 20261126T044000Z-1a2b3c4d /srv/queue --dry-run
journal | plan | /srv/queue --since -2h --json
trash list | read | /srv/queue --json
trash restore | some | 20261126T060005Z-report-390a56fc /srv/queue
trash expunge | some | /srv/queue --dry-run
trash sweep | some | /srv/queue --dry-run
init | done | /srv/queue
doctor | findings | /srv/queue --json
mail send | sent | 'The disk is full.' admin@example.org --subject Disk
mail send-with-retry | spooled | - admin@example.org Report /srv/queue
mail setup | done | admin@example.org --all
mail status | mail | /srv/queue --json
mail test | sent | admin@example.org --transport postfix
mail spool list | read | /srv/queue --json
mail spool show | some | mail-20261126T060005Z-report-390a56fc /srv/queue
mail spool retry | some | --all /srv/queue
mail suspend | done | postfix 'the relay is down' /srv/queue
mail resume | done | postfix /srv/queue
kannader init | done | /srv/spool
kannader enqueue | added | --from a@example.org --to b@example.org mail.eml /srv/spool
kannader work | loop | /srv/spool --until-idle
kannader recover | some | /srv/spool --dry-run
shell-init | read |
completion | read | bash
install-units | done | /tmp/units /srv/queue
bullmq work | loop | redis://localhost/0 --queue reports --until-idle
bullmq add | added | reports daily redis://localhost/0 --delay 15m
bullmq doctor | findings | redis://localhost/0
zmailer check | findings | /etc/zmailer/scheduler.conf
zmailer doctor | findings | /var/spool/postoffice
zmailer scheduler | loop | -i -P /var/spool/postoffice -f scheduler.conf
zmailer agent | read | smtp -c smtp -l /var/log/smtp
zmailer statistics | read | /var/log/mail/scheduler.stats
zmailer mailq | read | mail.example.org -Q
zmailer why | some | smtp/mx.example.org --conf scheduler.conf
federation work | loop | redis://localhost/0 --until-idle
federation enqueue | added | https://example.org deliver-post redis://localhost/0 --payload -
federation keys | read | redis://localhost/0
federation doctor | findings | redis://localhost/0
zgb init | done | mail.db
zgb enqueue | added | 7 mail.db
zgb work | work | mail.db
zgb doctor | findings | mail.db
queue status | attention | /srv/queue --json
queue add | added | report 'Daily report' '' /srv/queue
queue process-next | process | /srv/queue --quiet
queue work | work | /srv/queue --concurrency 4
queue list | read | /srv/queue --state dlq --json
queue recover | recover | /srv/queue --dry-run
queue corrupt list | some | /srv/queue
queue corrupt put-back | some | 20261126T060005Z-report-390a56fc.task /srv/queue
queue count | read | /srv/queue
queue count-dlq | read | /srv/queue
queue metrics | read | /srv/queue
queue dlq list | read | /srv/queue
queue dlq show | some | 20261126T060005Z-report-390a56fc /srv/queue
queue dlq retry | some | 20261126T060005Z-report-390a56fc /srv/queue
queue dlq retry-all | some | /srv/queue --dry-run
queue dlq expunge | some | 30 /srv/queue --dry-run
queue dlq purge | some | 30 /srv/queue --dry-run
"""


class CommandHelp(NamedTuple):
    """What the help of a command ends with."""

    codes: str
    """Its exit codes below 64, and special ones."""
    example: str
    """A complete command line."""


def _parse_rows() -> dict[str, CommandHelp]:
    rows = {}
    for line in _TABLE.strip().splitlines():
        words, codes, example_arguments = (cell.strip() for cell in f"{line} ".split(" |", 2))
        rows[words] = CommandHelp(
            _OWN_CODES[codes], f"spooldeck {words} {example_arguments}".rstrip()
        )
    return rows


COMMAND_HELP: Mapping[str, CommandHelp] = _parse_rows()
"""Example and exit codes by the words of a command."""


def help_end(path: tuple[str, ...], columns: int) -> str:
    """The last lines of a command's help, of at most so many columns; "" for a command without a
    row.
    """
    row = COMMAND_HELP.get(" ".join(path))
    if row is None:
        return ""
    common = ", ".join(
        f"{code} {EXIT_CODES[code].partition(':')[0]}"
        for code in (EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_NOPERM, EX_CONFIG)
    )
    lines = [f"example: {row.example}", f"exit codes: {row.codes}, {common}"]
    if schema := json_schemas().get(" ".join(path)):
        lines.append(f"--json: {schema.field_list} (the manual explains the types)")
    return "\n\n".join(textwrap.fill(line, columns, subsequent_indent="  ") for line in lines)
