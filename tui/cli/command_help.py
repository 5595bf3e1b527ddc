"""The end of each command's help: an example, the exit codes and the keys of `--json`.

The table `_TABLE` has a row for each command: its words, the name of its exit codes, and the
arguments of the example. The codes from 64 are those of all commands (`EXIT_CODES`).

A row of `SCHEMAS` has commands, one of `OBJECTS` the name of an object inside others; then the keys
of what is printed with `--json`. `JSON.md` has the same rows, and the help of a command its own. A
type is one of these, with a `?` behind it if the value may be null:

    text, number, flag      a string, a number, true or false
    time                    two keys: NAME in epoch seconds UTC, and NAME_at as RFC 3339 text
    object, list            of any content
    NAME                    an object with the keys of the row NAME
    TYPE[], TYPE{}          a list of them; an object with them by name

`+NAME` are all keys of the row NAME. `...` at the end: more keys, which depend on the format of the
place or on the options.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from functools import cache

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
from engine.values import NamedTuple
from tui.terminal.crash_report import EX_SOFTWARE

EXIT_CODES: Mapping[int, str] = {
    0: "done, or nothing needs attention",
    1: "nothing to do, queue full, not all of it done, or something needs attention",
    2: "another process holds the lock; tasks are claimed by a worker; a place is unreadable; a "
    "task with the key waits (`queue add`)",
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
    "found": "0 found, 1 none, or a lookup gave no answer",
    "plan": "0 done or shown, 1 not all done or another count, 2 a worker holds the tasks",
    "one": "0 done or shown, 1 no such task, or it has changed",
    "some": "0 done, 1 not all of it",
    "added": "0 added and on the disk, 1 queue full, 4 added but the id could not be printed",
    "task": "0 added and on the disk, 1 queue full, 2 one with the key waits, "
    "4 added but the id could not be printed",
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
find | found | --json
info | read | /srv/queue
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
retry | one | /srv/queue --id 20261126T060005Z-report-390a56fc --apply 1
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
mta instances | some | --json
mta trail | some | bob@example.org /etc/mta --since -2h
mta ages | read | /etc/mta --by sender-domain --state deferred
mta why | some | bob@example.org /etc/mta
kannader init | done | /srv/spool
kannader enqueue | added | --from a@example.org --to b@example.org mail.eml /srv/spool
kannader work | loop | /srv/spool --until-idle
kannader recover | some | /srv/spool --dry-run
shell-init | read |
completion | read | bash
install-units | done | /tmp/units /srv/queue
bullmq work | loop | redis://localhost/0 --queue reports --until-idle
bullmq add | added | reports daily redis://localhost/0 --delay 15m
bullmq schedulers | one | edit mails/daily redis://localhost/0 --pattern '0 6 * * *' --dry-run
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
queue add | task | report 'Daily report' --data day.csv --delay 10m --root /srv/queue
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
        example = f"spooldeck {words} {example_arguments}".rstrip()
        rows[words] = CommandHelp(_OWN_CODES[codes], example)
    return rows


COMMAND_HELP: Mapping[str, CommandHelp] = _parse_rows()
"""Example and exit codes by the words of a command."""


def help_end(path: tuple[str, ...], columns: int) -> str:
    """The last lines of a command's help, of at most so many columns; "" for a command without a
    row."""
    row = COMMAND_HELP.get(" ".join(path))
    if row is None:
        return ""
    common = ", ".join(
        f"{code} {EXIT_CODES[code].partition(':')[0]}"
        for code in (EX_USAGE, EX_UNAVAILABLE, EX_IOERR, EX_NOPERM, EX_CONFIG)
    )
    lines = [f"example: {row.example}", f"exit codes: {row.codes}, {common}"]
    if schema := json_schemas().get(" ".join(path)):
        lines.append(f"--json: {schema.field_list} (types: man spooldeck-json)")
    return "\n\n".join(textwrap.fill(line, columns, subsequent_indent="  ") for line in lines)


SCHEMAS = """
status, queue status | queue text, tasks number{}, sampled number?, oldest_pending_age number?, \
stalled flag, kinds figures[]?, lock lock?, mail mails?, facts text{}, problems problem[], \
attention text[], accepted text[], forecasts forecast{}
info | version text, program text, system text{}, packages text{}, terminal text{}, problem text?, \
files config_file[], place text?, format text?, settings config_value[], paths text{}, route \
text{}, variables text[]
overview | places place[]
overview --at | places past[]
workers | workers worker[]
locks | locks examined[]
kinds | seconds number, kinds kind[]
top | time time, seconds number, kinds kind[]
wait | place text, result text, seconds number, pending number, active number, dead number, tasks \
text{}
groups | by text, unit text, total number, ...
clusters | mark text, count number, code text, error text, kinds text[], first time?, last time?, \
example text, same_now text, evidence text[]
transports | place text, selected text?, selected_unknown text, transports transport[], others \
number, sources source[]
destinations | place text, unknown text?, destinations destination[]
destinations --dry-run | verb text, destination text, effect text, now text?, count number, \
command text
destinations --apply | destination text, done text, op text?
log | when time?, level text, text text, log text, hidden_bytes number, torn flag, output text?
control | place text, facts text{}, warnings text[], facts_unknown text?, controls control[]
control --dry-run | +control, order object, would text, count number, command text?
control --apply | control text, said text[], op text?
edit | id text, dry_run flag, values object
note | id text, text text?
notes | id text, when time, who text, text text
retry, replay, rerun, purge, hold, release, promote, kill, bounce, expire, reroute, restore, \
expunge, trash restore, bullmq schedulers --dry-run, undo --dry-run | verb text, filter text, \
scope text, undoes text?, planned number, acted_on number, refused text?, bytes number?, \
measured number, oldest time?, newest time?, facts text{}, warnings text[], exact flag, \
undo text, twin text, rows row[]
--apply, bullmq schedulers --apply | verb text, op text?, planned number, done text[], gone \
text[], failed text{}, excluded text{}, unapplied text{}, new_ids text{}, notes number{}, exact \
flag, trouble text, ...
journal, undo | op text, when time, ended time?, standing text, verb text, who who, reason text, \
filter text, scope text, undoes text?, follows text?, values object, pace object?, planned \
number, open number, kept flag, notes object[], damaged number, ...
trash list | +task, trash_since time?, bytes number, from text, how text, op text?, ...
trash expunge, trash sweep | dry_run flag, expunged number, left number, notes number
init, kannader init, zgb init | place text, made text[]
doctor, bullmq doctor, zmailer doctor, federation doctor, zgb doctor | check text, grade text, \
problem text, fix text
bullmq schedulers | id text, queue text, job text, rule text?, zone text?, last time?, next time?, \
left number?, limited flag?, end time?, made_by text, problem text?, unknown text{}
queue list | +task, lease lease?, ...
queue add, bullmq add, federation enqueue, queue dlq list | +task, ...
queue dlq show | +task, lines text[], ...
queue dlq retry, queue dlq retry-all, queue dlq expunge, queue dlq purge, queue corrupt put-back \
| verb text, dry_run flag, done text[], gone text[], failed text{}
queue corrupt list | name text, state text?, since time?, former_name text, reason text
queue count, queue count-dlq | place text, state text, count number
queue metrics | place text, metrics number{}
queue recover, kannader recover | place text, dry_run flag, done flag, lines text[]
queue process-next, queue work, kannader work, bullmq work, federation work | done number, failed \
number, gone number, owed number, refused text{}, last_failure text?, trouble text?
mail send, mail send-with-retry | result text, recipient text?, task text?, reason text?
mail setup | file text, dry_run flag, done flag, lines text[]
mail setup --show | file text, file_exists flag, recipient text?, sender text?, method text?, \
relay text?, port number, user text?, password_set flag, triggers object
mail status | transport text?, method text?, recipient text?, transports counted{}, queue_problem \
text?, problems text{}, spool object?, last_success time?, last_failure time?, \
last_failure_reason text?
mail test | dry_run flag, accepted flag, steps step[]
mail spool list | +mail
mail spool show | +mail, lines text[]?
mail spool retry | queued number, failed number, lines text[]
mail suspend, mail resume | transport text, suspended flag, text text
find, mta instances | place text, format text, name text, enabled flag, problem text
mta trail | word text, log text, files number, since time?, problems text[], cut flag, events \
logged[]
mta ages | state text, by text, unit text, bounds number[], rows object, total number[], \
unknown number
mta why | id text, state text, sender text, recipients text[], account text, client text, created \
time?, reason text, reason_at time?, suspended flag, due time?, next_try text, attempts_seen \
number?, log_since time?, next text, command text, events logged[]
kannader enqueue | id text
zgb enqueue | +task, is_new flag, ...
zgb work | place text, text text
zmailer check | file text, errors remark[], warnings remark[], clauses clause[], params text{}
zmailer check --diff | old text, new text, changes text[], threads text[]
zmailer why | target text, clauses clause[], settings setting{}, warning text?
zmailer statistics | file text, unread number, hosts ends[]
federation keys | keys text{}, fingerprint text, servers text{}
install-units | folder text, lines text[]
"""

OBJECTS = """
task | id text, state text, kind text, queue text, created time?, due time?, attempts number?, \
priority number?, description text, destination text, sender text, recipients text[], \
account text?, bytes number?, error text, payload text, owner text?, since time?, rev text, \
extra object
lease | owner text, since time?, until time?
mail | id text, to text, subject text, created time, sent time?, transport text?, in_doubt time?, \
refused text?, task text?, task_state text?, error text?
row | id text, state text, rev text, odd text, bytes number?, outcome text
place | place text, queues queued[], unavailable text, tasks number{}?, complete flag, \
due number?, oldest_pending_age number?, in_per_second number?, out_per_second number?, course \
text, stalled flag, drain_seconds number?, drain_unknown text?, drain_is_least flag, drained \
time?, alerts alert[], workers worker[], kinds kind[], host host?, forecasts forecast{}, \
tokens bucket[]?, ages object?
queued | queue text, tasks number{}, oldest_pending_age number?, out_per_second number?
past | place text, unavailable text, tasks number{}?, complete flag, due number?, \
oldest_pending_age number?, in_per_second number?, out_per_second number?, course text, stalled \
flag, drain_seconds number?, drain_unknown text?, drain_is_least flag, drained time?, \
alerts alert[], lock lock?, forecasts forecast{}, tokens bucket[]?, transports transport[]?, ...
alert | level text, what text, place text, words text, since time?, where text, state text?
worker | place text, pid number?, owner text?, connection text?, task text?, kind text?, started \
time?, running_seconds number?, limit_seconds number?, lease_seconds number?, destination text?, \
heartbeat_seconds number?, stuck flag, note text
kind | place text, kind text, per_minute number?, failures_share number?, wait_p50 number?, \
wait_p95 number?, run_p50 number?, run_p95 number?, source text?, unknown text
lock | verdict text, pid number?, since time?, reason text, ...
examined | place text, verdict text?, pid number?, heartbeat time?, reason text, doubt text, \
evidence text{}, certainty text?, finding text, processes process[], in_work work[], \
ran_per_second_before number?, due number?, oldest_due time?, due_by_kind number{}?
process | pid number, unknown text, state text, does text, waits_in text, seconds number?, \
cpu_seconds number?, bytes_moved number?, files_below text[]?, children number[]?
work | id text, kind text, abandoned flag, accepted flag?, log text, recommended text?
mails | spooled number?, oldest_age number?, without_task number?, refused_or_lost number?, \
suspended suspension[]
suspension | name text, since time, who text, why text
stop | since time, who text, why text
counted | attempts number, success number, failures number, why_not text?, suspended suspension?
errors | mark text, pattern text, times number, first time, last time, example text
failure | when time?, word text, text text, line text, task text
who | user text, sudo text, ssh text, host text, pid number
host | device number, used_bytes number, total_bytes number, load number, cpus number
bucket | name text, tokens number, burst number, next time?, per_hour number?, paused flag
figures | kind text, per_minute number?, failures_share number?, wait_p50 number?, wait_p95 \
number?, run_p50 number?, run_p95 number?, source text, unknown text
problem | where text, what text
forecast | seconds number?, is_least flag, words text, unknown text?, ...
transport | transport text, state text, used text?, why_not text?, suspended stop?, totals \
number{}?, windows object, last_success time?, last_failure time?, errors errors[], failures \
failure[]
source | name text, when time?, known_since time?, problem text
destination | destination text, state text, blocked text?, blocked_since time?, healthy flag?, \
reason text?, since time?, probes number, probe_skipped text?, next_probe time?, \
last_success time?, last_failure time?, waiting number?, oldest time?, failed \
number{}?, fingerprints text{}
control | name text, summary text, now text?, target text?, value text?, choices text{}?, bounds \
list?, targets object[]?, pauses flag, undoable flag, refused text?
step | step text, text text
logged | when time?, id text, what text, address text, text text, relay text, account text, client \
text, other text, ...
remark | line number, column number, text text
clause | line number, pattern text, settings text{}
config_file | path text, status text
config_value | key text, value text, source text
setting | value text, line number?
ends | channel text, host text, states number{}, queued_p50 number, queued_p95 number, \
delivery_p50 number, delivery_p95 number
"""


class JsonSchema(NamedTuple):
    """The keys of an object."""

    keys: Mapping[str, str]
    """The type of each key; a time is two keys, of type number and text."""
    is_open: bool
    """True if it may have more keys."""
    field_list: str
    """The keys as the table and the manual have them."""


def schema_rows(table: str) -> Iterator[tuple[str, str]]:
    """The names and the keys of the rows of a table."""
    for line in table.strip().splitlines():
        names, _, field_list = line.partition(" | ")
        yield names, field_list


@cache
def json_objects() -> Mapping[str, JsonSchema]:
    """The objects that are in others, by name."""
    objects: dict[str, JsonSchema] = {}
    for name, field_list in schema_rows(OBJECTS):
        objects[name] = _parse(field_list, objects)
    return objects


@cache
def json_schemas() -> Mapping[str, JsonSchema]:
    """The schemas by the words of the commands; `COMMAND --dry-run`, `--apply`, `--show`, `--at` or
    `--diff` where an option changes it, and `--apply` for all that apply a plan."""
    return {
        name: _parse(field_list, json_objects())
        for names, field_list in schema_rows(SCHEMAS)
        for name in names.split(", ")
    }


def _parse(field_list: str, objects: Mapping[str, JsonSchema]) -> JsonSchema:
    keys: dict[str, str] = {}
    fields = field_list.split(", ")
    is_open = fields[-1] == "..."
    for field in fields[: -1 if is_open else None]:
        name, _, kind = field.partition(" ")
        if name.startswith("+"):
            keys |= objects[name[1:]].keys
        elif kind.removesuffix("?") == "time":
            # The text is null too for "since ever".
            keys |= {name: f"number{kind[4:]}", f"{name}_at": "text?"}
        else:
            keys[name] = kind
    return JsonSchema(keys, is_open, field_list)
