"""The message line of a screen: one text that stays for some seconds."""

from __future__ import annotations

from collections.abc import Callable

from engine.text.safe import safe_line
from tui.text.lines import Line

MESSAGE_SECONDS = 6.0


class Message:
    """A message to the operator; "" if none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns epoch seconds; when it is set back, the message ends."""
        self._clock = clock
        self.text = self._style = ""
        self._said_at = 0.0

    def say(self, text: str, style: str = "warn") -> None:
        """Show another text, without control characters."""
        self.text, self._style, self._said_at = safe_line(text), style, self._clock()

    @property
    def line(self) -> Line:
        """The message as a line; () if none."""
        return ((f" {self.text}", self._style),) if self.text else ()

    def clear(self) -> None:
        """Show none: what it covers must be seen."""
        self.text = ""

    def ends(self) -> bool:
        """True if its time is over; then it is cleared."""
        is_over = bool(self.text) and not 0 <= self._clock() - self._said_at < MESSAGE_SECONDS
        if is_over:
            self.text = ""
        return is_over
