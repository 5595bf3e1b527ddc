"""`queue corrupt`: list quarantined files, which are not valid tasks, and put them back."""

from __future__ import annotations

from contextlib import closing

from engine.formats.base.format import Setup
from engine.formats.nftban.quarantine import QuarantinedFile
from engine.formats.nftban.queue_folders import open_spool
from engine.store import StoreError
from engine.system.command_errors import print_error
from engine.system.files import Refused
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.formats.nftban.dlq import acted_row
from tui.cli.setup.output import Answer, note_if_empty, print_json
from tui.text.task_row import time_fields


def list_corrupt(setup: Setup) -> Answer:
    """Print the quarantined files; exit 1 if a folder of them is blocked by something else."""
    with closing(open_spool(setup, "doctor")) as store:
        files = list(store.list_quarantined())
        in_the_way = list(store.find_obstacles())
    for problem in in_the_way:
        print_error(f"{safe_line(problem.where)}: {problem.what}")
    noted = note_if_empty(files, "quarantined files")
    return Answer(lambda: map(_values, noted), lambda: map(_line, noted), int(bool(in_the_way)))


def _values(aside: QuarantinedFile) -> dict[str, object]:
    return {
        "name": aside.name,
        "state": aside.state_word or None,
        **time_fields("since", aside.since or None),
        "former_name": aside.former_name,
        "reason": aside.reason,
    }


def _line(aside: QuarantinedFile) -> str:
    since = format_time(aside.since) if aside.since else "unknown"
    state = aside.state_word or "unknown"
    return " | ".join(map(safe_line, (aside.name, state, since, aside.former_name, aside.reason)))


def put_back(setup: Setup, names: list[str], *, json: bool) -> int:
    """Put repaired files back to their former paths, and print each when it was moved; exit 1 if
    one was not."""
    setup.require_writable()
    placed: dict[str, str] = {}
    failed: dict[str, str] = {}
    with closing(open_spool(setup, "doctor")) as store:
        for name in dict.fromkeys(names):
            try:
                where = store.restore_quarantined(name)
            except (Refused, StoreError) as error:
                failed[name] = str(error)
                print_error(f"{safe_line(name)}: not put back: {safe_line(str(error))}")
                continue
            placed[name] = where
            if not json:
                print(f"{name} put back as {where}")
            setup.log_if_allowed("INFO", f"Put back: {name} as {where}")
    if json:
        print_json(acted_row("put-back", placed, failed=failed.items()))
    return int(bool(failed))
