"""Division of the screen between the panes of the overview, by its size and by what they hold."""

from __future__ import annotations

from collections.abc import Mapping

from engine.values import NamedTuple
from tui.text.frames import BOX, NARROW_COLUMNS, RULE, WALL_COLUMNS, share_lines

LOW_LINES, HIGH_LINES = 15, 30
"""Heights in lines: up to LOW only queues and alerts, from HIGH on two columns of panes."""
WIDE_CELLS = 120
"""Minimum width in cells for two columns of panes."""
WALL_LINES = 60
"""Smallest height for three columns of panes, from `WALL_COLUMNS` on."""
MIN_AGE_LINES = 5
"""Lines of the smallest age table: titles, total, two names or the others, the sentence below."""
MAX_AGE_LINES = 12
"""Maximum height of the age table; lines beyond it go to the log."""
NO_TABLE = -1
MIN_GRAPH_LINES = 10
MAX_GRAPHS = 4
"""Places with a graph on a wall."""


class PaneNeeds(NamedTuple):
    """How many rows the panes have to show."""

    queues: int = 0
    alerts: int = 0
    ages: int = 0
    """Rows with names, total and others; `NO_TABLE` for a line only that says why there is none."""
    outlook: int = 0
    """Lines of forecast and rate limits."""
    kinds: int = 0
    other_ages: int = 0
    """Rows of the age table of a second place."""
    sides: Mapping[str, int] = {}
    """Lines of each pane at the right, from the top."""
    graphs: int = 1
    """Places with a graph on a wall."""
    filler: str = ""
    """The pane at the right that gets what is left; "" for the last one."""
    places: int = 0
    """Those among the rows of queues: each has a line before other panes share the rest."""


class OverviewFrame(NamedTuple):
    """Number of lines for each pane of the overview, with its frame; 0 hides it."""

    alerts: int = 0
    queues: int = 0
    """Includes the line of titles."""
    ages: int = 0
    """Includes the line of titles and the sentence below."""
    other_ages: int = 0
    outlook: int = 0
    """Forecast and rate limits."""
    kinds: int = 0
    """Includes the line of titles."""
    log: int = 0
    border: int = 0
    """Lines that the frame of a pane takes: 0 for none, 1 for a rule, 2 for a box."""
    hints: int = 1
    next: int = 1
    sides: Mapping[str, int] = {}
    """Lines of the panes at the right, on a wide screen only."""
    graphs: tuple[int, ...] = ()
    """Lines of the graphs in the middle, on a wall only."""
    left_width: int = 0
    middle_width: int = 0
    """Width of the graphs on a wall, in cells; 0 elsewhere."""

    @property
    def is_wide(self) -> bool:
        """True if panes are side by side."""
        return self.border == BOX

    @property
    def is_wall(self) -> bool:
        """True if the panes are those of all places."""
        return bool(self.middle_width)

    @property
    def upper(self) -> int:
        """Lines of the left column above the log."""
        return self.queues + self.ages + self.other_ages + self.outlook + self.kinds

    def inside(self, lines: int) -> int:
        """Lines within the frame of a pane that takes `lines`."""
        return max(0, lines - self.border)


def pane_border(width: int, height: int) -> int:
    """The frames of the panes on a screen of that size: `BOX`, `RULE`, or 0 for none, where only
    queues and alerts have room."""
    if width <= NARROW_COLUMNS or height <= LOW_LINES:
        return 0
    return BOX if width >= WIDE_CELLS and height >= HIGH_LINES else RULE


def divide_screen(width: int, height: int, needs: PaneNeeds) -> OverviewFrame:
    """Divide the lines of the screen between its panes."""
    border = pane_border(width, height)
    if not border:
        return _divide_small_screen(width, height, needs)
    wide = border == BOX
    wall = wide and width >= WALL_COLUMNS and height >= WALL_LINES
    # Ages and graphs give way to them: an alert that is not seen is not acted on.
    most_alerts = 2 if height < 22 else 6 if height < HIGH_LINES else height // 5
    alerts = border + max(1, min(needs.alerts, most_alerts))
    height_below = height - 3 - alerts  # header, next step, hints
    third = max(1, (height_below - 2 * border) // 3, min(needs.places, height_below // 2 - border))
    listed = border + 1 + min(max(needs.queues, 1), third)
    free = height_below - listed
    log = border + (12 if wall else 3 if wide else 2)
    log = log if free - log >= MIN_AGE_LINES + border else min(log, max(0, free))
    free -= log
    ages = _age_lines(needs.ages, free, border)
    free -= ages
    kinds = other = 0
    if wide:
        kinds = min(free, border + 1 + max(1, needs.kinds))
        kinds = kinds if kinds >= border + 2 else 0
        free -= kinds
    if wall:
        other = _age_lines(needs.other_ages, free, border) if needs.other_ages else 0
        free -= other
    outlook = min(free, needs.outlook + border) if needs.outlook and free > border else 0
    outlook = 0 if wide and outlook < needs.outlook + border else outlook
    log += free - outlook  # the log always fills its lines
    frame = OverviewFrame(
        alerts, listed, ages, other, outlook, kinds=kinds, log=log, border=border, left_width=width
    )
    if not wide:
        return frame
    side_heights = {name: lines + border for name, lines in needs.sides.items()}
    sides = share_lines(height_below, side_heights, needs.filler)
    if not wall:
        return frame._replace(sides=sides, left_width=width * 5 // 8)  # at 120 cells 75 and 45
    graphs = max(1, min(needs.graphs, MAX_GRAPHS, frame.upper // MIN_GRAPH_LINES))
    lines, more = divmod(frame.upper, graphs)
    return frame._replace(
        sides=sides,
        graphs=(lines + more, *[lines] * (graphs - 1)),
        left_width=width * 79 // 200,
        middle_width=width * 62 // 200,
    )


def _age_lines(rows: int, free: int, border: int) -> int:
    if rows == NO_TABLE:
        return min(free, border + 1)
    lines = min(free, border + max(MIN_AGE_LINES, min(rows + 2, MAX_AGE_LINES)))
    return lines if lines >= MIN_AGE_LINES + border else 0


def _divide_small_screen(width: int, height: int, needs: PaneNeeds) -> OverviewFrame:
    """Small screens: queues first, then alerts, message line and hints if they fit; the lines that
    no queue needs are for more alerts."""
    height_below = height - 1
    alerts = 3 if height_below >= 14 else int(height_below >= 2)
    word, hints = int(height_below >= 5), int(height_below >= 6)
    free = height_below - word - hints - max(1, needs.queues) - 1  # below the titles
    alerts = max(alerts, min(needs.alerts, free))
    queues = max(0, height_below - alerts - word - hints)
    return OverviewFrame(alerts, queues, next=word, hints=hints, left_width=width)
