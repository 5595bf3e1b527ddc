"""`queue corrupt`: list quarantined files, which are not valid tasks, and put them back."""

from __future__ import annotations

from argparse import Namespace

from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import open_spool
from engine.store import StoreError
from engine.system.command_errors import print_error
from engine.system.files import Refused
from engine.text.safe import safe_line
from engine.text.times import format_time
from tui.cli.formats.nftban.dlq import acted_row
from tui.cli.setup.output import note_if_empty, print_json
from tui.text.task_row import time_fields


def list_corrupt(setup: Setup, arguments: Namespace) -> int:
    """Print one line per file: name, former path, time, reason.

    Exit 1 if a folder of quarantined files is blocked by something else.
    """
    store = open_spool(setup, "doctor")
    try:
        for aside in note_if_empty(store.list_quarantined(), "quarantined files"):
            since = format_time(aside.since) if aside.since else "unknown"
            if arguments.json:
                values = {"name": aside.name, "state": aside.state_word or None}
                times = time_fields("since", aside.since or None)
                more = {"former_name": aside.former_name, "reason": aside.reason}
                print_json({**values, **times, **more})
                continue
            parts = (
                aside.name,
                aside.state_word or "unknown",
                since,
                aside.former_name,
                aside.reason,
            )
            print(" | ".join(safe_line(part) for part in parts))
        in_the_way = list(store.find_obstacles())
        for problem in in_the_way:
            print_error(f"{safe_line(problem.where)}: {problem.what}")
    finally:
        store.close()
    return 1 if in_the_way else 0


def put_back(setup: Setup, arguments: Namespace) -> int:
    """Put repaired files back to their former paths; exit 1 if one was not moved."""
    setup.require_writable()
    store = open_spool(setup, "doctor")
    placed: dict[str, str] = {}
    failed: dict[str, str] = {}
    try:
        for name in dict.fromkeys(arguments.names):
            try:
                where = store.restore_quarantined(name)
            except (Refused, StoreError) as error:
                failed[name] = str(error)
                print_error(f"{safe_line(name)}: not put back: {safe_line(str(error))}")
                continue
            placed[name] = where
            if not arguments.json:
                print(f"{name} put back as {where}")
            setup.log_if_allowed("INFO", f"Put back: {name} as {where}")
    finally:
        store.close()
    if arguments.json:
        print_json(acted_row("put-back", placed, failed=failed.items()))
    return 1 if failed else 0
