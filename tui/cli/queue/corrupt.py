"""`queue corrupt`: files that were set aside because they are no tasks, and their way back."""

from __future__ import annotations

from argparse import Namespace

from engine.policy import at
from engine.store import StoreError
from engine.system.files import Refused
from engine.text.safe import shown
from tui.cli.setup.setup import Setup, complain


def list_corrupt(setup: Setup, arguments: Namespace) -> int:
    """One line for each file: its name here, where it lay, since when, and what is wrong.

    Exit 1 when something else lies where a folder of such files should be.
    """
    store = setup.open()
    try:
        for aside in store.corrupt():
            since = at(aside.since) if aside.since else "unknown"
            parts = (aside.name, aside.word or "unknown", since, aside.was, aside.reason)
            print(" | ".join(shown(part) for part in parts))
        in_the_way = list(store.obstacles())
        for problem in in_the_way:
            complain(f"{shown(problem.where)}: {problem.what}")
    finally:
        store.close()
    return 1 if in_the_way else 0


def put_back(setup: Setup, arguments: Namespace) -> int:
    """Mended files back to where they lay; exit 1 when one of them was not moved."""
    setup.require_change()
    store = setup.open()
    left = 0
    try:
        for name in dict.fromkeys(arguments.names):
            try:
                where = store.put_back(name)
            except (Refused, StoreError) as error:
                left += 1
                complain(f"{shown(name)}: not put back: {shown(str(error))}")
                continue
            print(f"{name} is back as {where}")
            setup.log_if_allowed("INFO", f"Put back: {name} as {where}")
    finally:
        store.close()
    return 1 if left else 0
