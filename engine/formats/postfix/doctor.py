"""The doctor's checks of one Postfix instance: master process, rights, configuration files,
settings, what a listing shows, log and disk."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from engine.doctor.finding import Finding, Grade, bad, hidden, ok, warn
from engine.formats.postfix import facts
from engine.formats.postfix.facts import ListingCounts
from engine.formats.postfix.instance import CONFIG_FILES, Instance
from engine.formats.postfix.server import PostfixServer
from engine.model import Problem
from engine.programs.mail_log import check_log
from engine.store import Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import describe_limit

NO_ID = "000000"
"""An id of no message: postcat says so only to a user who may run it."""
START, STATUS = "postfix -c {} start", "postfix -c {} status"


def check_instance(
    instance: Instance,
    open_server: Callable[[Callable[[ListingCounts], None]], PostfixServer],
) -> Iterator[tuple[str, Finding]]:
    """Yield the name of each check and what it found; `open_server` opens it with a function that
    gets the counts of a listing."""
    where = f"Postfix {instance.settings['mail_version']}: {instance.folder}"
    yield "program", ok(f"{where}, queue {instance.queue_folder}")
    yield from (("files", finding) for finding in _check_files(instance))
    listed, server, why = list[ListingCounts](), None, ""
    try:
        server = open_server(listed.append)
        records = {}
        for item in server.list_mails():
            if not isinstance(item, Problem):
                records[item.id] = item.record
        server.complete(records)
    except Unavailable as error:
        why = str(error)
    counts = listed[-1] if listed else None
    running = _check_running(instance, counts)
    yield "running", running
    if why and running.grade is not Grade.BAD:  # stopped, it lists nothing to any user
        if instance.uid == 0:
            yield "listing", bad(f"unknown what waits: {why}", "see its log")
        else:
            yield "rights", bad(f"this user may not list: {why}", _sudo_fix(instance))
    if server is not None and not why:
        yield from (("rights", finding) for finding in _check_rights(instance, server))
    if counts is not None:
        yield from _check_counts(counts, can_find=server is not None and server.has_times)
    yield from _check_settings(instance)
    yield "log", check_log(facts.log_of(instance))
    texts = [*facts.space_warnings(instance)]
    yield from (("disk", bad(text, "delete or move files there")) for text in texts)
    if not texts:
        yield "disk", ok("room for the queue")


_match_stat = re.compile(r"(\d+) ([0-7]+) (.*)").fullmatch


def _sudo_fix(instance: Instance) -> str:
    lines, end = instance.prefix.plain.run(["id", "-un"])
    user = safe_line(lines[-1].decode("utf-8", "replace")) if lines and not end.status else "USER"
    where = f"visudo on {instance.prefix.name}" if instance.prefix.name else "visudo"
    return f"{where}: {instance.sudo_rule.replace('USER', user, 1)}"


def _check_files(instance: Instance) -> Iterator[Finding]:
    """A configuration that others may write runs their programs as root."""
    paths = [instance.folder, *(f"{instance.folder}/{name}" for name in CONFIG_FILES)]
    lines, end = instance.prefix.run(["stat", "-L", "-c", "%u %a %n", *paths])
    is_right = True
    for line in lines:
        match = _match_stat(line.decode("utf-8", "replace"))
        if match is None:
            yield hidden(
                f"stat printed something else: {safe_line(line.decode('utf-8', 'replace'))}"
            )
            return
        uid, mode, path = match.groups()
        if uid != "0" or int(mode, 8) & 0o022:
            is_right = False
            problem = f"{safe_line(path)}: others than root may write it: uid {uid}, mode {mode}"
            yield bad(problem, f"chown root {safe_line(path)}; chmod go-w {safe_line(path)}")
    if len(lines) != len(paths):
        yield hidden(f"owner and mode of its files are unknown: {end.last_error}")
    elif is_right:
        yield ok("only root may write main.cf and master.cf")


def _check_running(instance: Instance, counts: ListingCounts | None) -> Finding:
    state = facts.server_state(facts.find_master(instance), counts)
    text = state.describe(None if counts is None else counts.waiting, time.time())
    if state.is_running is False:
        return bad(text, START.format(instance.folder))
    return ok(text) if state.is_running else hidden(text, STATUS.format(instance.folder))


def _check_rights(instance: Instance, server: PostfixServer) -> Iterator[Finding]:
    """What this user may run, or its prefix; without a right, its fix has the line for sudo."""
    refused = []
    if instance.uid not in (0, None):
        refused.append("postsuper: only root may change messages")
    _, end = instance.run("postcat", "-eq", NO_ID)
    if why := instance.prefix.why_failed(end):
        refused.append(f"postcat: {why}")
    elif b"Permission denied" in end.errors:
        refused.append("postcat: envelopes, accounts and the look before an act are unknown")
    if not server.has_times:
        refused.append("find: due times are unknown, nothing is purged for good")
    _, end = instance.prefix.plain.run(["cat", "/proc/locks"])
    if end.status:
        refused.append("/proc/locks: which messages are being delivered is unknown")
    fix = _sudo_fix(instance) if refused else ""
    yield from (warn(f"not allowed: {one}", fix) for one in refused)
    if not refused:
        yield ok("list, look, change, times of files, processes that deliver")


def _check_counts(counts: ListingCounts, *, can_find: bool) -> Iterator[tuple[str, Finding]]:
    for name in counts.damaged:
        fix = f"postcat shows corrupt/{name[:1]}/{name} or corrupt/{name}; then delete it by hand"
        yield "corrupt", bad(f"corrupt/{name}: a damaged file, never delivered", fix)
    if not can_find:
        yield "corrupt", hidden("damaged files are unknown: this user may not find them")
    elif not counts.damaged:
        yield "corrupt", ok("no damaged file")
    if counts.suspended:
        words = f"destinations not asked now, {facts.describe_suspended(counts)}"
        yield "suspended", warn(words, "see why: spooldeck mta why DOMAIN; then control flush")
    if counts.delivered:
        words = f"{format_count(counts.delivered, 'message')} delivered while held"
        yield "held", warn(words, "release: Postfix then removes them")
    for line in facts.other_warnings(counts):
        yield "printed", warn(safe_line(line), "correct what it names")


def _check_settings(instance: Instance) -> Iterator[tuple[str, Finding]]:
    texts = [*facts.setting_warnings(instance)]
    for text in texts:
        name = text.partition(" ")[0]
        to = f"-c {instance.folder}"
        yield "settings", warn(text, f"postconf {to} -X {name}; postfix {to} reload")
    names = ("maximal_queue_lifetime", "bounce_queue_lifetime", "queue_run_delay")
    limits = (f"{name} {describe_limit(instance.seconds(name))}" for name in names)
    yield "settings", ok(", ".join(limits))
    if instance.settings["enable_long_queue_ids"] != "yes":
        remark = "short ids come again: identity, queue and hold are compared before each act"
        yield "settings", ok(f"enable_long_queue_ids = no: {remark}")
