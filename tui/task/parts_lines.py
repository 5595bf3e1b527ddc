"""Text of a task's parts: payload, spooled mail, raw bytes, file facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.mail.spool_meta import parse_meta
from engine.model import Part
from engine.system.files import Refused
from engine.text import render_bytes
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.lines import (
    BLANK_LINE,
    Line,
    Run,
    fact_lines,
    fit_text_end,
    folded_lines,
    part_line,
)
from tui.text.times import format_time_with_age


class Opened(NamedTuple):
    """A part and its content."""

    part: Part
    data: bytes = b""
    refused: str = ""
    """Why it was not read; "" if it was."""


def bytes_per_row(width: int) -> int:
    """Bytes per row of a hex dump."""
    return 16 if width >= 80 else 8


def payload_lines(opened: Sequence[Opened], now: float, width: int) -> list[Line]:
    """The payload; of a spooled mail, the recipient first."""
    if len(opened) < 2:
        nothing: list[Line] = [((" no payload; task file:", "muted"),)]
        return [*nothing, *(line for each in opened for line in _part_lines(each, width))]
    if _is_spooled(opened[1]):
        return _mail_lines(opened[1], opened[2:], now, width)
    return [line for each in opened[1:] for line in _part_lines(each, width)]


def _part_lines(each: Opened, width: int) -> list[Line]:
    is_html, is_wire = each.part.name.endswith(HTML), each.part.is_wire_format
    text = render_bytes.render_data(
        each.data, bytes_per_row(width), is_html=is_html, is_wire=is_wire
    )
    kind = "empty" if text.kind == "nothing" else text.kind
    return [*_head_lines(each, kind, width), *_text(text.lines, width)]


# Spooled mail: contract, "Mail Spool".

META, HTML = "/meta.sh", ".html"
_MAIL, _BODY, _KEYS = "mail-", "mail/body.", "MAIL_"
_MARKER_STATES = {
    "mail/trying": "being sent",
    "mail/sent": "sent",
    "mail/refused": "refused",
}
"""Our marker files beside a mail, and their meaning."""


def _is_spooled(first: Opened) -> bool:
    folder = first.part.where.removesuffix(META)
    return folder != first.part.where and folder.rpartition("/")[2].startswith(_MAIL)


def _mail_lines(meta: Opened, siblings: Sequence[Opened], now: float, width: int) -> list[Line]:
    marks = [each for each in siblings if each.part.name in _MARKER_STATES]
    bodies = [each for each in siblings if each.part.name.startswith(_BODY)]
    others = [each for each in siblings if each not in marks and each not in bodies]
    try:
        lines = _envelope_lines(_parse_assigned(meta), now, width)
    except Refused as error:
        lines = _head_lines(meta, "not parsed", width)
        why = f"not parsed: {safe_line(str(error))}; not executed. Content:"
        lines += folded_lines(why, width, "warn")
        lines += _text(render_bytes.render_verbatim(meta.data, bytes_per_row(width)).lines, width)
    for each in [*bodies, *others]:
        lines += _part_lines(each, width)
    for each in marks:
        lines += _marker_lines(each, now, width)
    return lines


def _parse_assigned(each: Opened) -> dict[str, str]:
    """Parse shell assignments without executing them. Raises Refused: invalid, or not read."""
    if each.refused or each.part.refusal:
        raise Refused(each.refused or each.part.refusal)
    return parse_meta(each.data, lambda key: key.replace("_", "").isalpha())


def _envelope_lines(assigned: Mapping[str, str], now: float, width: int) -> list[Line]:
    created = assigned.get("MAIL_CREATED_EPOCH", "")
    rows: list[Run] = [
        ("To", safe_line(assigned.get("MAIL_TO", "")) or UNKNOWN),
        (
            "Subject",
            safe_line(render_bytes.decode_header_words(assigned.get("MAIL_SUBJECT", "")))
            or UNKNOWN,
        ),
        ("created", _time(created, now) if created else UNKNOWN),
    ]
    known = ("MAIL_TO", "MAIL_SUBJECT", "MAIL_CREATED_EPOCH")
    other_fields = [(key, value) for key, value in assigned.items() if key not in known]
    for key, value in other_fields:
        name = safe_line(key).removeprefix(_KEYS).lower().replace("_", " ")
        rows.append((name, safe_line(value)))
    return [part_line("spooled mail"), *fact_lines(rows, width), BLANK_LINE]


def _marker_lines(each: Opened, now: float, width: int) -> list[Line]:
    word = _MARKER_STATES[each.part.name]
    try:
        assigned = _parse_assigned(each)
    except Refused as error:
        text = f"{word} (marker not readable: {safe_line(str(error))})"
    else:
        since, by = assigned.get("SINCE", ""), safe_line(assigned.get("TRANSPORT", ""))
        pieces = [word, f"by {by}" if by else "", f"since {_time(since, now)}" if since else ""]
        text = " ".join(filter(None, pieces))
        text += f": {safe_line(assigned['WHY'])}" if assigned.get("WHY") else ""
    title = part_line(safe_line(each.part.name))
    return [title, *folded_lines(text, width, "warn"), BLANK_LINE]


def _head_lines(each: Opened, kind: str, width: int) -> list[Line]:
    part, refused = each.part, each.refused or each.part.refusal
    size = "" if part.size is None else f", {format_count(part.size, 'byte')}"
    words = safe_line(part.name) if refused else f"{safe_line(part.name)}: {kind}{size}"
    lines = [part_line(fit_text_end(words, min(len(words), width - 4)))]
    lines += folded_lines(part.where, width, "muted")
    if refused:
        why = f"not read: {safe_line(refused)}"
        return lines + folded_lines(why, width, "warn")
    return [*lines, *_cut_note(each)]


def _cut_note(each: Opened) -> list[Line]:
    """That a file is longer than what was read of it."""
    size = each.part.size
    if size is None or size <= len(each.data) or each.refused or each.part.refusal:
        return []
    return [((f"  first {len(each.data):,} bytes shown", "warn"),)]


def _text(lines: Sequence[str], width: int) -> list[Line]:
    return [*(piece for line in lines for piece in folded_lines(line, width)), BLANK_LINE]


_TIMES = ("modified", "changed")


def file_lines(parts: Sequence[Part], now: float, width: int) -> list[Line]:
    """Path, size, owner, mode and times of each part."""
    lines = [line for part in parts for line in _file_facts(part, now, width)]
    return lines or [((" no files left", "muted"),)]


def _file_facts(part: Part, now: float, width: int) -> list[Line]:
    name = safe_line(part.name)
    lines = [part_line(fit_text_end(name, min(len(name), width - 4)))]
    size = [] if part.size is None else [format_count(part.size, "byte")]
    facts = [*size, *(f"{key} {safe_line(t)}" for key, t in part.facts if key not in _TIMES)]
    times = [f"{key} {_time(text, now)}" for key, text in part.facts if key in _TIMES]
    runs = [(safe_line(part.where), "strong"), (", ".join(facts), ""), (", ".join(times), "")]
    runs.append((f"not read: {safe_line(part.refusal)}" if part.refusal else "", "warn"))
    for text, style in runs:
        lines += folded_lines(text, width, style) if text else []
    return lines


def stored_lines(opened: Sequence[Opened], now: float, width: int) -> list[Line]:
    """Each file as stored, below its facts; never interpreted, binary data as a hex dump."""
    lines: list[Line] = []
    for each in opened:
        text = render_bytes.render_verbatim(each.data, bytes_per_row(width))
        lines += _file_facts(each.part, now, width)
        if each.refused and not each.part.refusal:
            lines.append(((f"  not read: {safe_line(each.refused)}", "warn"),))
        lines += [*_cut_note(each), BLANK_LINE, *_text(text.lines, width)]
    return lines or [((" no files left", "muted"),)]


def _time(text: str, now: float) -> str:
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return format_time_with_age(float(text), now)
    return safe_line(text)
