"""The Postfix instances of this host: postmulti(1)."""

from __future__ import annotations

import os

from engine.formats.base.format import InstalledPlace
from engine.programs.prefix import HERE
from engine.store import Unavailable
from engine.system.run_program import find_program
from engine.text.safe import safe_line


def find_instances() -> list[InstalledPlace]:
    """List the instances, the default one first; none if Postfix is not installed.

    Raises:
        Unavailable: postmulti fails, or prints something else.
    """
    program = find_program("postmulti")
    if not program:
        return []
    lines, end = HERE.run((program, "-l"))
    why = HERE.why_failed(end)
    if end.status and not why:  # without a terminal it writes its errors to the log alone
        why = end.last_error or f"status {end.status}: the mail log has the reason"
    if why:
        raise Unavailable(f"{program} -l: {why}")
    return [parse_instance(os.fsdecode(line)) for line in lines]


def parse_instance(line: str) -> InstalledPlace:
    """Parse a line of `postmulti -l`: name, group, y or n for enabled, configuration folder.

    Raises:
        Unavailable: it is no such line.
    """
    fields = line.split(None, 3)
    if len(fields) != 4 or fields[2] not in ("y", "n") or not os.path.isabs(fields[3]):
        raise Unavailable(f"postmulti -l: expected NAME GROUP y|n DIR: {safe_line(line)[:80]}")
    name, _, enabled, folder = fields
    return InstalledPlace(folder.rstrip(), "" if name == "-" else name, enabled == "y")
