"""What a format of another program's brings along, and a place in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.policy import RetryPolicy
from engine.store import Store

if TYPE_CHECKING:
    from engine.limits import Left
    from tui.place import Facts


class Format(NamedTuple):
    """How places of one format are opened, worked and told of."""

    title: str
    """What a person calls such a place."""
    check: Callable[[Any, Any], Any]
    """What `stores` says of it, and where -> its settings; raises ConfigError."""
    open: Callable[[str, Any], Store]
    """Path and settings -> its store."""
    desk: Callable[[str], str]
    """Path -> the folder for what is ours there: journal, notes, log, figures."""
    folders: Callable[[str], tuple[str, str, str]]
    """Path -> the folders that must be there, and be ours to write, where anything is changed; what
    we make belongs to the owner of the first."""
    work: tuple[str, ...]
    """The command that works it, after the words that name the place."""
    retry: Callable[[Any], RetryPolicy]
    """Settings -> how failures are counted there."""
    unworkable: Callable[[Any], str]
    """Settings -> why no worker of ours could do anything there; "" when one could."""
    doctor: str
    """Module below `tui.cli` and function that say what is wrong with one."""
    facts: Callable[[Site], Facts] | None = None
    """What is told of the queue as a whole; None where there is nothing."""
    tokens: Callable[[Site], tuple[Left, ...]] | None = None
    """What its bucket holds; None where it has none."""
    logs: Callable[[Site], tuple[str, ...]] = lambda site: ()
    """Logs to follow besides ours."""


class Site(NamedTuple):
    """A place of another program's format."""

    name: str
    """The format's name: a key of `stores` in the configuration, and the word of its commands."""
    path: str
    """Absolute."""
    format: Format
    settings: Any
    """As the format's own `check` made them."""

    @property
    def desk(self) -> str:
        """The folder for what is ours there."""
        return self.format.desk(self.path)

    def open(self) -> Store:
        """Its store.

        Raises:
            Unavailable: it cannot be reached.
        """
        return self.format.open(self.path, self.settings)
