"""The keys of a screen as rows: what a key is called, what it does, and why it is refused now.

`P` are the parts of one screen, plain objects: a row is pressed, and asked, without any screen. `C`
are the flags of what an action changed there: no more is painted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tui.text.keys import Hint, Key

P = TypeVar("P")
C = TypeVar("C")


def no_words(parts: object) -> str:
    """Not refused; nothing to advise."""
    return ""


def never(parts: object) -> bool:
    """Always offered."""
    return False


def own_label(parts: object) -> None:
    """The words of the key."""


@dataclass(frozen=True)
class KeyRow(Generic[P, C]):
    """A key of one screen."""

    key: Key
    act: Callable[..., C]
    """Called with the parts, and with the pressed key if `key.passes_key`."""
    refusal: Callable[[P], str] = no_words
    """Why the key is refused now; "" if it is not. Reads memory only: each cursor move asks."""
    advice: Callable[[P], str] = no_words
    """What to do in place of it: said behind the refusal."""
    is_absent: Callable[[P], bool] = never
    """True if the place or the console has no use for the key: no hint, no help."""
    label: Callable[[P], str | None] = own_label
    """The words of its hint now, "" for no hint; None for those of the key."""


def press(rows: Iterable[KeyRow[P, C]], pressed: str, parts: P, say: Callable[[str], C]) -> C:
    """Do what a key does, or say why it is refused."""
    row = next(row for row in rows if pressed in row.key.keys)
    if why := row.refusal(parts):
        return say(why + row.advice(parts))
    return row.act(parts, pressed) if row.key.passes_key else row.act(parts)


def absent_actions(rows: Iterable[KeyRow[P, C]], parts: P) -> set[str]:
    """The actions that are not offered: help and palette leave them out."""
    return {row.key.action for row in rows if row.is_absent(parts)}


def hints_of(rows: Iterable[KeyRow[P, C]], parts: P, stays: Collection[str] = ()) -> Iterable[Hint]:
    """The hints now: grey where a key is refused. Those are dropped first, but not the actions of
    `stays`.
    """
    for row in rows:
        label = row.label(parts)
        text = row.key.hint if label is None else label
        if text and not row.is_absent(parts):
            is_refused = bool(row.refusal(parts))
            is_minor = row.key.is_minor or (is_refused and row.key.action not in stays)
            yield Hint(row.key.shown, text, is_refused, is_minor)


def refusals_of(rows: Iterable[KeyRow[P, C]], parts: P) -> Mapping[str, str]:
    """Why the keys that open plans are refused, by the key; without those that have no hint."""
    offered = (row for row in rows if row.key.verb and row.label(parts) != "")
    whys = {row.key.shown: row.refusal(parts) for row in offered if not row.is_absent(parts)}
    return {shown: why for shown, why in whys.items() if why}
