"""The Exim of this host: its spool, as `exim -bP` names it."""

from __future__ import annotations

import os

from engine.formats.base.format import InstalledPlace
from engine.formats.exim.lines import parse_settings
from engine.formats.exim.programs import PROGRAMS
from engine.programs.prefix import HERE
from engine.store import Unavailable


def find_instances() -> list[InstalledPlace]:
    """List the spools of the installed programs, in their order; one is often a link to another.

    Raises:
        Unavailable: a program does not name its spool.
    """
    spools: dict[str, InstalledPlace] = {}
    for program in dict.fromkeys(map(os.path.realpath, filter(os.path.exists, PROGRAMS))):
        lines, end = HERE.run((program, "-bP", "spool_directory"))
        spool = parse_settings(lines).get("spool_directory", "")
        if not os.path.isabs(spool):
            why = HERE.why_failed(end) or end.last_error or f"status {end.status}"
            raise Unavailable(f"{program} -bP spool_directory: {why}")
        spools[os.path.realpath(spool)] = InstalledPlace(spool)
    return [*spools.values()]
