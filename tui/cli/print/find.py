"""`find`: the queues of this host, and why one is not opened; `mta instances`: those of its mail
servers."""

from __future__ import annotations

import os

from engine.formats.base.format import Setup
from engine.system.command_errors import print_error
from tui.cli.setup.find_places import FoundPlaces, find_places
from tui.cli.setup.output import Answer, note_if_empty

FOUND, NONE = 0, 1


def find(setup: Setup) -> Answer:
    """Print the places of this host, and where was looked if there are none; exit 1 if there are
    none, or if a lookup gave no answer."""
    found = find_places(setup.config, os.environ)
    if not found.places:
        print_error(f"no queue found; looked at {', '.join(found.looked_at)}")
    return _answer(found, is_good=bool(found.places))


def instances(setup: Setup) -> Answer:
    """Print the places of mail servers; exit 1 if one does not answer."""
    found = find_places(setup.config, os.environ, mail_servers=True)
    return _answer(found._replace(places=[*note_if_empty(found.places, "mail servers")]))


def _answer(found: FoundPlaces, *, is_good: bool = True) -> Answer:
    for problem in found.problems:
        print_error(problem)
    rows = [
        {
            "place": one.installed.place,
            "format": one.format_name,
            "name": one.installed.name,
            "enabled": one.installed.is_enabled,
            "problem": one.installed.problem,
        }
        for one in found.places
    ]
    code = FOUND if is_good and not found.problems else NONE
    return Answer(lambda: rows, lambda: found._replace(problems=()).lines, code)
