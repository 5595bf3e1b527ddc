"""Record screenshots/triage.cast: a triage on the real demo, for asciinema players (format v2).

Each step is a key and words that it must bring on screen: if a key has changed, the recording ends
with an error and the file stays as it was.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from tests.pseudo_terminals import PROGRAM, ROOT, UTF8, Screen, Terminal

SIZE = (80, 24)
CAST, PICTURE = (ROOT / "screenshots" / f"triage.{kind}" for kind in ("cast", "gif"))
MAX_BYTES = 300_000
KEY_SECONDS = 0.15
"""Between two keys of one step."""

FRAME_SECONDS = 0.25
"""Changes within this time are one frame: a key is drawn in several writes."""
LAST_SECONDS = 4.0
"""Of the last frame, before it begins again."""

READY = r"CRIT +wedged"
"""The lock of the demo counts as stuck a minute after its last heartbeat: recording begins then."""
READY_SECONDS = 150.0

CONFIRM = r"type (\d+) to"
"""The line of a plan with the count to type."""
COUNT = "count"
"""In place of keys: that count."""


class Step(NamedTuple):
    """Keys, a pattern that the screen shows then, and how long it is looked at."""

    keys: str
    shows: str
    seconds: float = 2.0


STEPS = (
    Step("\x0c", r"CRIT +wedged", 3.0),
    Step("U", r"STUCK", 4.0),
    Step("\x1b", r"Alerts", 1.5),
    Step("j", r"▶ +WARN +flowing", 1.5),
    Step("\r", r"DLQ \d+", 2.0),
    Step("c", r"STILL\?(.|\n)*F-[0-9A-F]{4}", 3.0),
    Step("G", r"▶ +F-[0-9A-F]{4} .* no ", 2.0),
    Step("!", r"ARMED 1", 1.5),
    Step("R", CONFIRM, 4.0),
    Step(COUNT, r"DONE", 3.0),
    Step("\x1b", r"STILL\?", 1.0),
    Step("g", r"▶ +F-[0-9A-F]{4}", 1.0),
    Step("X", CONFIRM, 3.0),
    Step(COUNT, r"\d+ purged", 2.5),
    Step("u", r"u undo", 2.0),
    Step("u", CONFIRM, 3.0),
    Step(COUNT, r"\d+ undone", 3.0),
)


class Recorder(Terminal):
    """A terminal that writes down what it is sent, and when."""

    events: list[tuple[float, bytes]] | None = None
    """Time in seconds and bytes; None before the recording."""

    def _read(self, seconds: float) -> bool:
        before = len(self.said)
        more = super()._read(seconds)
        if self.events is not None and len(self.said) > before:
            self.events.append((time.monotonic(), bytes(self.said[before:])))
        return more

    def look(self, seconds: float) -> None:
        """Read for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._read(left)

    def wait_until_ready(self) -> None:
        """Read until the demo has what is to be shown."""
        deadline = time.monotonic() + READY_SECONDS
        while not re.search(READY, self.screen.text):
            assert time.monotonic() < deadline, self.screen.text
            self.look(0.2)

    def do(self, step: Step) -> None:
        """Press the keys of a step; wait until it shows what it must."""
        asked = re.search(CONFIRM, self.screen.text)
        for key in asked[1] if step.keys == COUNT and asked else step.keys:
            self.send(key)
            self.look(KEY_SECONDS)
        pattern = re.compile(step.shows)
        self.until(lambda: pattern.search(self.screen.text))
        self.look(step.seconds)


def frames(cast: str) -> Iterator[tuple[float, list[Text]]]:
    """The screens of a recording, each with the seconds for which it is shown."""
    head, *events = (json.loads(line) for line in cast.splitlines())
    screen, shown, since = Screen(head["width"], head["height"]), list[Text](), 0.0
    for number, (when, _, text) in enumerate(events):
        screen.feed(text)
        is_last = number + 1 == len(events)
        if not is_last and events[number + 1][0] - when < FRAME_SECONDS:
            continue
        lines = screen.styled_lines
        if lines != shown:
            if shown:
                yield when - since, shown
            shown, since = lines, when
    yield LAST_SECONDS, shown


def record() -> str:
    """The text of the cast."""
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor", **UTF8}
    terminal = Recorder([*PROGRAM, "demo"], colours, size=SIZE)
    with terminal:
        terminal.wait_until_ready()
        began, terminal.events = time.monotonic(), []
        for step in STEPS:
            terminal.do(step)
        events = list(terminal.events)  # without those of the end
        terminal.process.terminate()
        terminal.end()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    header = {"version": 2, "width": SIZE[0], "height": SIZE[1], "title": "spooldeck: triage"}
    lines = [[round(when - began, 3), "o", decode(data)] for when, data in events]
    return "".join(json.dumps(line) + "\n" for line in (header, *lines))


def main() -> int:
    """Record, and write the file."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=CAST, help="the file to write")
    target = parser.parse_args().to
    text = record()
    if len(text) > MAX_BYTES:
        print(f"{len(text):,} bytes: expected at most {MAX_BYTES:,}", file=sys.stderr)
        return 1
    target.write_text(text, encoding="utf-8")
    print(f"{target}: {len(text):,} bytes, {json.loads(text.splitlines()[-1])[0]:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
