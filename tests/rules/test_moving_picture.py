"""The moving picture of the README, made of the recorded triage."""

import json

from rich.style import Style

from tests.tui.record_cast import CAST, LAST_SECONDS, PICTURE, frames


def test_what_a_terminal_shows_at_once_is_one_frame() -> None:
    """Changes within a quarter of a second are one frame, in their colours; the last one stays."""
    head = {"version": 2, "width": 8, "height": 2}
    events = [(0.0, "\x1b[1;1Ha"), (0.1, "\x1b[31mb\x1b[0m"), (2.0, ""), (3.0, "\x1b[2;1Hc")]
    lines = [json.dumps(head), *(json.dumps([when, "o", text]) for when, text in events)]
    (before, first), (after, second) = frames("\n".join(lines))
    assert (before, after) == (2.9, LAST_SECONDS)
    assert [line.plain.rstrip() for line in first] == ["ab", ""]
    assert [line.plain.rstrip() for line in second] == ["ab", "c"]
    assert Style.parse("color(1)") in {span.style for span in first[0].spans}


def test_the_picture_is_of_this_recording() -> None:
    """The picture in screenshots/ is as long as its recording, and small enough to be loaded."""
    data = PICTURE.read_bytes()
    assert len(data) <= 2_000_000
    # A frame begins with a graphic control extension, which has its time (GIF89a, chapter 23).
    times = [data[at + 4] + (data[at + 5] << 8) for at in _find_all(data, b"\x21\xf9\x04")]
    drawn = [round(100 * seconds) for seconds, _ in frames(CAST.read_text(encoding="utf-8"))]
    assert len(times) == len(drawn)
    assert all(abs(time - wanted) <= 1 for time, wanted in zip(times, drawn, strict=True))


def _find_all(data: bytes, part: bytes) -> list[int]:
    found, at = list[int](), data.find(part)
    while at >= 0:
        found.append(at)
        at = data.find(part, at + 1)
    return found
