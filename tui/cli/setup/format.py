"""What a format of another program's brings along, and a place in one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from engine.policy import RetryPolicy
from engine.store import Store


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
    # What follows names a module below `tui.cli` and a function of it, which is handed the Setup:
    # it is loaded when it is asked for. "" where there is none.
    doctor: str
    """Says what is wrong with a place; takes the command's arguments besides."""
    facts: str = ""
    """What is told of the queue as a whole: `tui.session.place.Facts`."""
    tokens: str = ""
    """What its bucket holds: a tuple of `engine.locks.token_buckets.Left`."""
    shut: str = ""
    """Why a worker would claim no task of a kind now, which it is handed besides: text, "" when one
    would."""
    logs: str = ""
    """Paths of logs to follow besides ours."""
    mails: bool = False
    """Whether its workers send by the ways of the mail settings, and write down in mail.log and
    mail.prom on our desk how those fare."""
    takes_by: str = ""
    """The order in which due tasks are claimed, by the names of `engine.index.backlog`; "" if it is
    unknown."""


def part(where: str) -> Callable[..., Any]:
    """The function that such a name means."""
    module, name = where.split(":")
    found: Callable[..., Any] = getattr(import_module(f"tui.cli.{module}"), name)
    return found


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
