"""The schema of what each command prints with `--json`: its keys and their types.

A row of the table has the commands, or the name of an object inside others, and the keys. The
manual has the same rows, and the help of a command its own. A type is one of these, with a `?`
behind it if the value may be null:

    text, number, flag      a string, a number, true or false
    time                    two keys: NAME in epoch seconds UTC, and NAME_at as RFC 3339 text
    object, list            of any content
    NAME                    an object with the keys of the row NAME
    TYPE[], TYPE{}          a list of them; an object with them by name

`+NAME` are all keys of the row NAME. `...` at the end: more keys, which depend on the format of the
place or on the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

_TABLE = """
status, queue status | queue text, tasks number{}, sampled number?, oldest_pending_age number?, \
stalled flag, kinds figures[]?, lock lock?, mail mails?, facts text{}, problems problem[], \
attention text[], accepted text[], forecasts forecast{}
overview | places place[]
overview --at | places past[]
workers | workers worker[]
locks | locks examined[]
kinds | seconds number, kinds kind[]
top | time time, seconds number, kinds kind[]
wait | place text, result text, seconds number, pending number, active number, dead number, tasks \
text{}
groups | by text, total number, ...
clusters | mark text, count number, code text, error text, kinds text[], first time?, last time?, \
example text, same_now text, evidence text[]
transports | place text, selected text?, selected_unknown text, transports transport[], others \
number, sources source[]
destinations | place text, unknown text?, destinations destination[]
destinations --dry-run | verb text, destination text, effect text, now text?, count number, \
command text
destinations --apply | destination text, done text, op text?
log | when time?, level text, text text, log text, hidden_bytes number, torn flag
control | place text, facts text{}, warnings text[], facts_unknown text?, controls control[]
control --dry-run | +control, order object, would text, count number, command text?
control --apply | control text, said text[], op text?
edit | id text, dry_run flag, values object
note | id text, text text?
notes | id text, when time, who text, text text
replay, rerun, purge, hold, release, promote, kill, bounce, expire, reroute, restore, expunge, \
trash restore, undo --dry-run | verb text, filter text, scope text, undoes text?, planned number, \
acted_on number, refused text?, bytes number?, measured number, oldest time?, newest time?, facts \
text{}, warnings text[], exact flag, undo text, twin text, rows row[]
--apply | verb text, op text?, planned number, done text[], gone text[], failed text{}, excluded \
text{}, unapplied text{}, exact flag, trouble text, ...
journal, undo | op text, when time, ended time?, standing text, verb text, who who, reason text, \
filter text, scope text, undoes text?, follows text?, values object, pace object?, planned \
number, open number, kept flag, notes object[], damaged number, ...
trash list | +task, trash_since time?, bytes number, from text, how text, op text?, ...
trash expunge, trash sweep | dry_run flag, expunged number, left number, notes number
init, kannader init, zgb init | place text, made text[]
doctor, bullmq doctor, zmailer doctor, federation doctor, zgb doctor | check text, grade text, \
problem text, fix text
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

_OBJECTS = """
task | id text, state text, kind text, queue text, created time?, due time?, attempts number?, \
priority number?, description text, destination text, error text, payload text, owner text?, \
since time?, rev text, extra object
lease | owner text, since time, until time?
mail | id text, to text, subject text, created time, sent time?, transport text?, in_doubt time?, \
refused text?, task text?, task_state text?, error text?
row | id text, state text, rev text, odd text, bytes number?, outcome text
place | place text, queues queued[], unavailable text, tasks number{}?, complete flag, \
due number?, \
oldest_pending_age number?, in_per_second number?, out_per_second number?, course text, stalled \
flag, drain_seconds number?, drained time?, alerts alert[], workers worker[], kinds kind[], host \
host?, forecasts forecast{}, tokens bucket[]?, ages object?
queued | queue text, tasks number{}, oldest_pending_age number?, out_per_second number?
past | place text, unavailable text, tasks number{}?, complete flag, due number?, \
oldest_pending_age number?, in_per_second number?, out_per_second number?, course text, stalled \
flag, drain_seconds number?, drained time?, alerts alert[], lock lock?, forecasts forecast{}, \
tokens bucket[]?, transports transport[]?, ...
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
forecast | seconds number?, words text, unknown text?, ...
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
remark | line number, column number, text text
clause | line number, pattern text, settings text{}
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


def _rows(table: str) -> Iterator[tuple[str, str]]:
    for line in table.strip().splitlines():
        names, _, field_list = line.partition(" | ")
        yield names, field_list


def manual_rows() -> Iterator[str]:
    """The rows of the manual: first the commands, then the objects in them."""
    for names, field_list in _rows(_TABLE):
        yield f"| `{'`, `'.join(names.split(', '))}` | {field_list} |"
    for name, field_list in _rows(_OBJECTS):
        yield f"| {name} | {field_list} |"


@cache
def json_objects() -> Mapping[str, JsonSchema]:
    """The objects that are in others, by name."""
    objects: dict[str, JsonSchema] = {}
    for name, field_list in _rows(_OBJECTS):
        objects[name] = _parse(field_list, objects)
    return objects


@cache
def json_schemas() -> Mapping[str, JsonSchema]:
    """The schemas by the words of the commands; `COMMAND --dry-run`, `--apply`, `--show`, `--at` or
    `--diff` where an option changes it, and `--apply` for all that apply a plan.
    """
    return {
        name: _parse(field_list, json_objects())
        for names, field_list in _rows(_TABLE)
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
