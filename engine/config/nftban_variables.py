"""What another program was told: `NFTBAN_*` variables, nftban.conf, nftban.conf.local.

None of its files is ever run: their plain assignments are read (`engine.config.shell_assignments`).
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.config import shell_assignments, validators
from engine.config.shell_assignments import Variable
from engine.config.validators import Check, ConfigError, ConfigLocation
from engine.system import files
from engine.text.safe import shown

DATA_DIR = "/var/lib/nftban"
CONFIG_DIR = "/etc/nftban"
RUN_DIR = "/run/nftban"
LOG_DIR = "/var/log/nftban"

PAIR = ("nftban.conf", "nftban.conf.local")
"""Its own configuration, in the folder that `NFTBAN_CONFIG_DIR` names; the later one wins."""


SECRET = "NFTBAN_SMTP_PASS"
"""The variable that is never shown, logged, put on a command line or handed on without need."""


class Table(NamedTuple):
    """Which variables are wanted, and what they mean."""

    variables: Mapping[str, str]
    """By the variable, the field that it sets."""
    checks: Mapping[str, Check]
    """By the field, what it may say; each takes a text, or a number where that is wanted."""
    numbers: frozenset[str] = frozenset()
    """The fields of which a text of digits is a number; they count for every place."""
    anywhere: frozenset[str] = frozenset()
    """The fields besides `numbers` that count for every place, since they name none."""
    tasks: tuple[str, ...] = ()
    """The fields that say where tasks lie: a place says that itself."""

    def binds(self, key: str) -> bool:
        """Whether a field belongs to a place, and so counts for that one only."""
        return key not in self.numbers and key not in self.anywhere


class VariableValue(NamedTuple):
    """The text of a variable, or why it cannot be known without running a shell."""

    text: str
    at: ConfigLocation
    problem: str = ""

    def known(self) -> str:
        """The text.

        Raises:
            ConfigError: only a shell could know it.
        """
        if self.problem:
            raise self.at.error(self.problem)
        return self.text


class Foreign(NamedTuple):
    """What the environment and the files say, before it is known whether it counts."""

    environ: Mapping[str, VariableValue]
    conf: Mapping[str, VariableValue]
    asked: bool
    """NFTBAN_CONFIG_DIR is set: its files count, whatever place is opened."""
    unreadable: str = ""
    """Why they could not be read though they are there."""

    @classmethod
    def read(
        cls, environ: Mapping[str, str], table: Table, names: Sequence[str] = PAIR
    ) -> "Foreign":
        """What is said of these variables, in the environment and in the files of these names."""
        wanted = (*table.variables, "NFTBAN_DATA_DIR")
        said = {
            name: VariableValue(environ[name], ConfigLocation("environment", name))
            for name in wanted
            if environ.get(name)  # as in a shell's ${NAME:-...}, empty is not set
        }
        asked = environ.get("NFTBAN_CONFIG_DIR", "")
        conf, unreadable = _conf(asked or CONFIG_DIR, environ, names)
        return cls(said, conf, bool(asked), unreadable)

    @property
    def data_dir(self) -> str:
        """The data folder that they name; what the files cannot mean, they do not name."""
        said = self.environ.get("NFTBAN_DATA_DIR")
        if said is not None:
            return validators.path(said.text, said.at)
        named = self.conf["NFTBAN_DATA_DIR"].text if "NFTBAN_DATA_DIR" in self.conf else ""
        return os.path.normpath(named) if named.startswith("/") else DATA_DIR

    def installed_at(self, root: str) -> bool:
        """Whether this is where the real program lives, and so where its lock must be shared."""
        home = DATA_DIR if "NFTBAN_DATA_DIR" in self.environ else self.data_dir
        return same_folder(root, home)

    def values(self, root: str, table: Table) -> dict[str, Any]:
        """The fields that they set for the queue at `root`.

        Raises:
            ConfigError: one that counts here cannot be meant.
        """
        own = same_folder(root, self.data_dir)
        if own or self.asked:
            if self.unreadable:
                raise ConfigError(self.unreadable)
            named = self.conf.get("NFTBAN_DATA_DIR")
            if named is not None and named.known():
                validators.path(named.text, named.at)
        values = {}
        for name, key in table.variables.items():
            said = self.environ.get(name) if self._environ_counts(key, own, table) else None
            if said is None and (own or (self.asked and not table.binds(key))):
                said = self.conf.get(name)
            if said is not None and said.known():
                values[key] = table.checks[key](_parsed(said.text, key in table.numbers), said.at)
        return values

    def _environ_counts(self, key: str, own: bool, table: Table) -> bool:
        if own or not table.binds(key):
            return True
        return key not in table.tasks and "NFTBAN_DATA_DIR" not in self.environ


def same_folder(a: str, b: str) -> bool:
    """Whether two paths lead to one folder."""
    return a == b or os.path.realpath(a) == os.path.realpath(b)


def _parsed(text: str, wanted: bool) -> object:
    """A number where one is wanted and given in plain digits; else the text, for its check."""
    numeric = wanted and text.isascii() and text.isdigit() and len(text) < 16
    return int(text) if numeric else text


def _conf(
    folder: str, environ: Mapping[str, str], names: Sequence[str]
) -> tuple[dict[str, VariableValue], str]:
    """What the files in this folder set, and why one could not be read though it is there."""
    read: dict[str, Variable] = {}
    said: dict[str, VariableValue] = {}
    for name in names:
        path = f"{folder}/{name}"
        try:
            with open(files.open_file(path), "rb") as file:
                text = file.read().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return {}, f"{shown(path)}: cannot be read: {error.strerror}"
        found = shell_assignments.variables(text, {**_FOLDERS, **read}, environ)
        for key, variable in found.items():
            at = ConfigLocation(f"{shown(path)}: line {variable.line}", key)
            said[key] = VariableValue(variable.text, at, variable.problem)
        read |= found
    return said, ""


_FOLDERS: Mapping[str, Variable] = {
    "NFTBAN_DATA_DIR": Variable(DATA_DIR),
    "NFTBAN_CONFIG_DIR": Variable(CONFIG_DIR),
    "NFTBAN_RUN_DIR": Variable(RUN_DIR),
    "NFTBAN_LOG_DIR": Variable(LOG_DIR),
}
"""What these are where nobody says otherwise."""
