"""The pieces of a task, as lines: what they say, what they are, and their very bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.model import Part
from engine.system.files import MAIL_RAW, Refused, parse_assignments
from engine.text import render_bytes
from engine.text.render_bytes import RenderedBytes
from engine.text.safe import shown
from tui.format import present
from tui.format.present import BLANK, Line, Run


class Opened(NamedTuple):
    """A part of a task that was read."""

    part: Part
    data: bytes = b""
    """Its beginning."""
    refused: str = ""
    """Why it was not to be had; "" when it was."""


def per_row(width: int) -> int:
    """How many bytes of a dump fit in a row."""
    return 16 if width >= 80 else 8


def payload(opened: Sequence[Opened], now: float, width: int) -> list[Line]:
    """What the parts beside the task itself say; a spooled mail first whom it is for."""
    if len(opened) < 2:
        nothing: list[Line] = [((" it has no payload; this is all there is of it", "dim"),)]
        return [*nothing, *(line for each in opened for line in _said(each, width))]
    if _is_spooled(opened[1]):
        return _spooled(opened[1], opened[2:], now, width)
    return [line for each in opened[1:] for line in _said(each, width)]


def _said(each: Opened, width: int) -> list[Line]:
    is_html, is_wire = each.part.name.endswith(HTML), each.part.wire
    text = render_bytes.read(each.data, per_row(width), is_html=is_html, is_wire=is_wire)
    return [*_headed(each, _kind(each, text), width), *_text(text.lines, width)]


# A spooled mail: contract, "Mail Spool".

META, HTML = "/meta.sh", ".html"
_MAIL, _BODY, _KEYS = "mail-", "mail/body.", "MAIL_"
_MARKS = {
    "mail/trying": "being sent",
    "mail/sent": "sent",
    "mail/refused": "refused",
}
"""Marks of our own beside a mail, and what each says of it."""


def _is_spooled(first: Opened) -> bool:
    folder = first.part.where.removesuffix(META)
    return folder != first.part.where and folder.rpartition("/")[2].startswith(_MAIL)


def _spooled(meta: Opened, beside: Sequence[Opened], now: float, width: int) -> list[Line]:
    """A mail as one reads it: to whom, about what, its body, and how far it has come."""
    marks = [each for each in beside if each.part.name in _MARKS]
    bodies = [each for each in beside if each.part.name.startswith(_BODY)]
    others = [each for each in beside if each not in marks and each not in bodies]
    try:
        lines = _envelope(_assigned(meta), now, width)
    except Refused as error:
        lines = _headed(meta, "not understood", width)
        why = f"it is not read as a mail: {shown(str(error))}; nothing of it was run. It says:"
        lines += [((f"  {piece}", "warning"),) for piece in present.folded(why, width - 3)]
        lines += _text(render_bytes.verbatim(meta.data, per_row(width)).lines, width)
    for each in [*bodies, *others]:
        lines += _said(each, width)
    for each in marks:
        lines += _mark(each, now, width)
    return lines


def _assigned(each: Opened) -> dict[str, str]:
    """What a file of assignments says.

    Raises:
        Refused: it is none, or could not be read.
    """
    if each.refused or each.part.refused:
        raise Refused(each.refused or each.part.refused)
    return parse_assignments(each.data, lambda key: key.replace("_", "").isalpha(), MAIL_RAW)


def _envelope(said: Mapping[str, str], now: float, width: int) -> list[Line]:
    """Whom it is for, and the rest that its meta.sh says."""
    created = said.get("MAIL_CREATED_EPOCH", "")
    rows: list[Run] = [
        ("To", shown(said.get("MAIL_TO", "")) or "?"),
        ("Subject", shown(render_bytes.decoded(said.get("MAIL_SUBJECT", ""))) or "?"),
        ("created", _time(created, now) if created else "?"),
    ]
    known = ("MAIL_TO", "MAIL_SUBJECT", "MAIL_CREATED_EPOCH")
    rest = [(key, value) for key, value in said.items() if key not in known]
    rows += [(_title(key), shown(value)) for key, value in rest]
    return [present.heading("spooled mail", width), *present.labelled(rows, width), BLANK]


def _title(key: str) -> str:
    return shown(key).removeprefix(_KEYS).lower().replace("_", " ")


def _mark(each: Opened, now: float, width: int) -> list[Line]:
    """How far it has come, as one of our own marks says."""
    word = _MARKS[each.part.name]
    try:
        said = _assigned(each)
    except Refused as error:
        text = f"{word}, as its mark says, which is not understood: {shown(str(error))}"
    else:
        since, by = said.get("SINCE", ""), shown(said.get("TRANSPORT", ""))
        pieces = [word, f"by {by}" if by else "", f"since {_time(since, now)}" if since else ""]
        text = " ".join(filter(None, pieces))
        text += f": {shown(said['WHY'])}" if said.get("WHY") else ""
    lines: list[Line] = [present.heading(shown(each.part.name), width)]
    return [*lines, *[((f"  {p}", "warning"),) for p in present.folded(text, width - 3)], BLANK]


def raw(opened: Sequence[Opened], width: int) -> list[Line]:
    """Every part as it is; what is no text as its bytes."""
    lines: list[Line] = []
    for each in opened:
        text = render_bytes.verbatim(each.data, per_row(width))
        lines += _headed(each, "bytes" if text.kind == "bytes" else "as it is stored", width)
        lines += _text(text.lines, width)
    return lines


def _kind(each: Opened, text: RenderedBytes) -> str:
    return "empty" if text.kind == "nothing" else text.kind


def _headed(each: Opened, kind: str, width: int) -> list[Line]:
    part, refused = each.part, each.refused or each.part.refused
    size = "" if part.size is None else f", {present.count(part.size, 'byte')}"
    words = shown(part.name) if refused else f"{shown(part.name)}: {kind}{size}"
    lines = [present.heading(present.fit_end(words, min(len(words), width - 4)), width)]
    lines += [((f"  {piece}", "dim"),) for piece in present.folded(shown(part.where), width - 3)]
    if refused:
        why = f"not read: it {shown(refused)}"
        return lines + [((f"  {piece}", "warning"),) for piece in present.folded(why, width - 3)]
    if part.size is not None and part.size > len(each.data):
        lines.append(((f"  only its first {len(each.data):,} bytes are shown", "warning"),))
    return lines


def _text(lines: Sequence[str], width: int) -> list[Line]:
    room = max(8, width - 3)
    folded = [((f"  {piece}", ""),) for line in lines for piece in present.folded(line, room)]
    return [*folded, BLANK]


_TIMES = ("modified", "changed")


def files(parts: Sequence[Part], now: float, width: int) -> list[Line]:
    """What each part is: where, how big, since when, and whose."""
    lines: list[Line] = []
    for part in parts:
        name = shown(part.name)
        lines.append(present.heading(present.fit_end(name, min(len(name), width - 4)), width))
        size = [] if part.size is None else [present.count(part.size, "byte")]
        facts = [*size, *(f"{key} {shown(t)}" for key, t in part.facts if key not in _TIMES)]
        times = [f"{key} {_time(text, now)}" for key, text in part.facts if key in _TIMES]
        said = [(shown(part.where), "strong"), (", ".join(facts), ""), (", ".join(times), "")]
        said.append((f"not read: it {shown(part.refused)}" if part.refused else "", "warning"))
        for text, look in said:
            pieces = present.folded(text, width - 3) if text else []
            lines += [((f"  {piece}", look),) for piece in pieces]
    return lines or [((" nothing of it is there any more", "dim"),)]


def _time(text: str, now: float) -> str:
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return present.moment(float(text), now)
    return shown(text)
