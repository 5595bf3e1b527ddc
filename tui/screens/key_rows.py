"""The keys of a screen as rows: what a key is called, what it does, and why it is refused now.

`P` are the parts of one screen, plain objects: a row is pressed, and asked, without any screen. `C`
are the flags of what an action changed there: no more is painted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tui.screens.console_context import ConsoleContext
from tui.screens.target import SCREEN_TARGETS, Target
from tui.text import keys
from tui.text.keys import Hint, Key

if TYPE_CHECKING:
    from tui.screens.base import BaseScreen

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
    """The hints now: grey where a key is refused; those are dropped first, but not the actions of
    `stays`."""
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


C_contra = TypeVar("C_contra", contravariant=True)


class ScreenActions(Protocol[C_contra]):
    """What only a screen can do for its parts."""

    @property
    def is_current(self) -> bool:
        """It is on top: what its parts read can be seen."""

    @property
    def is_pasted(self) -> bool:
        """True if the current key came in a burst too fast for typing."""

    def go(self, target: Target) -> None:
        """Open another screen."""

    def request(self, what: str) -> None:
        """Run a global action of the app."""

    def show_change(self, change: C_contra) -> None:
        """Paint what an action changed after it had returned."""

    def open(self, opener: Callable[[BaseScreen], object]) -> None:
        """Let a dialog open above the screen."""

    def run(self, what: str, ask: Callable[[], Awaitable[C_contra]]) -> None:
        """Ask in the background and show what changed; cancels a question of the same name."""


class KeyParts(Protocol[C]):
    """What the parts of every screen with key rows have."""

    context: ConsoleContext

    @property
    def screen(self) -> ScreenActions[C]:
        """The screen."""

    def say(self, text: str) -> C:
        """Show a message for some seconds."""


PartsT = TypeVar("PartsT", bound=KeyParts[Any])


class RowMaker(Generic[PartsT, C]):
    """Makes the rows of one screen; `nothing` is the change of keys that leave it as it is."""

    def __init__(self, screen: str, nothing: C) -> None:
        self._screen, self._nothing = screen, nothing

    def own(
        self,
        words: str,
        act: Callable[..., C],
        *,
        refusal: Callable[[PartsT], str] = no_words,
        is_absent: Callable[[PartsT], bool] = never,
        label: Callable[[PartsT], str | None] = own_label,
    ) -> KeyRow[PartsT, C]:
        """The row of a key that only this screen has."""
        return KeyRow(self.own_key(words), act, refusal, is_absent=is_absent, label=label)

    def own_key(self, words: str) -> Key:
        """A key that only this screen has. `words`: action, keys, keys as shown, hint, heading of
        the help with flags, and description, as in the text table of `tui.text.keys`."""
        *named, heading, description = words.split(" | ")
        group, *flags = heading.split()
        row = " | ".join((*named, group, " ".join(flags), description))
        return self._called(keys.key_of_row(row))

    def key(self, action: str, of: str = keys.SHARED, *, is_minor: bool | None = None) -> Key:
        """The key of an action that another screen has, too, with its words."""
        key = self._called(keys.key_on(of, action))
        return key if is_minor is None else key._replace(is_minor=is_minor)

    def _called(self, key: Key) -> Key:
        return key._replace(call=f"key({key.keys[0]!r})", screens=frozenset({self._screen}))

    def moves(self, move: Callable[[PartsT, str], C]) -> Iterator[KeyRow[PartsT, C]]:
        """The keys that move; `move` gets the name of a motion."""
        for how in ("down", "up", "page_down", "page_up", "half_down", "half_up", "first", "last"):
            yield KeyRow(self.key(f"move('{how}')"), lambda parts, how=how: move(parts, how))

    def goes(
        self,
        key: Key,
        target: Target,
        label: str | None = None,
        *,
        is_absent: Callable[[PartsT], bool] = never,
    ) -> KeyRow[PartsT, C]:
        """A key that opens another screen."""

        def act(parts: PartsT) -> C:
            parts.screen.go(target)
            return self._nothing

        return KeyRow(key, act, is_absent=is_absent, label=lambda parts: label)

    def asks(self, key: Key) -> KeyRow[PartsT, C]:
        """A key for a global action of the app, which has its name."""

        def act(parts: PartsT) -> C:
            parts.screen.request(key.action)
            return self._nothing

        return KeyRow(key, act)

    def app(self, key: Key) -> KeyRow[PartsT, C]:
        """A key whose action is the app's."""
        return KeyRow(key._replace(call=""), lambda parts: self._nothing)

    def digits(self, label: str | None = None) -> KeyRow[PartsT, C]:
        """The digits, which open the same screens everywhere."""

        def act(parts: PartsT, digit: str) -> C:
            parts.screen.go(SCREEN_TARGETS[digit])
            return self._nothing

        return KeyRow(self.key("screen"), act, label=lambda parts: label)

    def repaint(self) -> KeyRow[PartsT, C]:
        """Paint the whole screen again."""

        def act(parts: PartsT) -> C:
            parts.screen.open(lambda screen: screen.action_repaint())
            return self._nothing

        return KeyRow(self.key("repaint"), act)

    def closes(self) -> KeyRow[PartsT, C]:
        """Back to the screen before."""

        def act(parts: PartsT) -> C:
            parts.screen.open(lambda screen: screen.dismiss())
            return self._nothing

        return KeyRow(self.key("back"), act)

    def views(self) -> Iterator[KeyRow[PartsT, C]]:
        """Other screens, and this one painted again, copied or as plain text."""
        yield self.digits()
        yield self.repaint()
        yield self.asks(self.key("yank"))
        yield self.asks(self.key("plain"))

    def ends(self) -> Iterator[KeyRow[PartsT, C]]:
        """The last keys of a screen that Esc closes: the last two hints are help and back."""
        yield self.asks(self.key("palette"))
        yield self.asks(self.key("help"))
        yield self.closes()
        yield self.app(self.key("app.freeze"))
        yield self.app(self.key("app.suspend_process"))

    def arm(
        self, changes: C, is_absent: Callable[[PartsT], bool] | None = None
    ) -> KeyRow[PartsT, C]:
        """Arm or disarm, which changes this; not by pasted input."""

        def act(parts: PartsT) -> C:
            from tui.screens.base import PASTED

            parts.say(PASTED if parts.screen.is_pasted else parts.context.arming.toggle())
            return changes

        return KeyRow(
            self.key("arm"),
            act,
            is_absent=is_absent or is_read_only,
            label=lambda parts: keys.arm_hint(parts.context.arming.is_armed),
        )


def is_read_only(parts: KeyParts[Any]) -> bool:
    """True if the console changes nothing."""
    return parts.context.arming.read_only
