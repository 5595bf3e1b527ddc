"""`mta instances`: the mail servers of this host that can be opened as places."""

from __future__ import annotations

from collections.abc import Mapping

from engine.formats.known_formats import installed_places
from engine.system.command_errors import print_error
from engine.text.safe import safe_line
from tui.cli.setup.output import Answer, note_if_empty


def instances() -> Answer:
    """Print the places that the programs of mail servers know; exit 1 if one does not answer."""
    rows: list[dict[str, object]] = []
    problems = 0
    for form, places, problem in installed_places():
        rows += [
            {
                "place": one.place,
                "format": form.name,
                "name": one.name,
                "enabled": one.is_enabled,
            }
            for one in places
        ]
        if problem:
            problems = 1
            print_error(problem)
    width = max((len(str(row["place"])) for row in rows), default=0)

    def line(row: Mapping[str, object]) -> str:
        name = f"  {row['name']}" if row["name"] else ""
        disabled = "" if row["enabled"] else "  disabled"
        return safe_line(f"{row['place']:<{width}}  {row['format']}{name}{disabled}")

    noted = note_if_empty(rows, "mail servers")
    return Answer(lambda: noted, lambda: map(line, noted), problems)
