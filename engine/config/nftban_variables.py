"""Read the real program's settings: `NFTBAN_*` variables, nftban.conf, nftban.conf.local.

The files are never executed: only plain assignments are parsed (`engine.config.shell_assignments`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.config import shell_assignments, validators
from engine.config.shell_assignments import Variable
from engine.config.validators import Check, ConfigError, ConfigLocation
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

DATA_DIR = "/var/lib/nftban"
CONFIG_DIR = "/etc/nftban"
OWN_CONFIG_DIR = "/etc/spooldeck"
"""The folder that is read if `CONFIG_DIR` does not exist; `mail setup` then writes there."""

RUN_DIR = "/run/nftban"
LOG_DIR = "/var/log/nftban"

CONFIG_FILES = ("nftban.conf", "nftban.conf.local")
"""Its configuration files, in the folder `NFTBAN_CONFIG_DIR`; the later one wins."""


_DATA_DIR = "NFTBAN_DATA_DIR"

PASSWORD_VARIABLE = "NFTBAN_SMTP_PASS"
"""The password variable: never shown, logged, put on a command line or passed on without need."""


EVERYWHERE, PLACE, TASKS = "everywhere", "place", "tasks"
"""Where a variable counts: for every place; only for the data folder that is meant, as it names a
folder or file there; only in that data folder itself, as a place sets its own task folders."""


class ReadFrom(NamedTuple):
    """The variable that sets a field: `NAME: Annotated[TYPE, CHECK, ReadFrom(...)]`."""

    name: str
    check: Check | None = None
    """The check of its value; None: that of the field."""
    scope: str = EVERYWHERE


class VariableRow(NamedTuple):
    """How to read a variable."""

    name: str
    field: str
    check: Check
    """Gets a string, or a number if it `is_number`."""
    scope: str = EVERYWHERE
    is_number: bool = False


def variable_rows(settings: type) -> tuple[VariableRow, ...]:
    """The variables that set the fields of these settings."""
    return tuple(
        VariableRow(
            note.name,
            field,
            note.check or hint.__metadata__[0],
            note.scope,
            is_number=hint.__origin__ in (int, float, float | None),
        )
        for field, hint in settings.__annotations__.items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, ReadFrom)
    )


class VariableValue(NamedTuple):
    """The value of a variable, or why it cannot be known without running a shell."""

    text: str
    at: ConfigLocation
    problem: str = ""

    @property
    def source(self) -> str:
        """Where it is set, as text: "variable NAME", or FILE:LINE."""
        if self.at.file == "environment":
            return f"variable {self.at.key}"
        return self.at.file.replace(": line ", ":")

    def require_text(self) -> str:
        """Return the text. Raises ConfigError: only a shell could evaluate it."""
        if self.problem:
            raise self.at.error(self.problem)
        return self.text


class NftbanVariables(NamedTuple):
    """Values from the environment and the files, before it is decided which of them apply."""

    environ: Mapping[str, VariableValue]
    conf: Mapping[str, VariableValue]
    applies_anywhere: bool
    """True if the files apply to any place: NFTBAN_CONFIG_DIR names their folder, or they are our
    own, as NFTBan is not installed."""
    unreadable: str = ""
    """Why the files exist but cannot be read; "" if they can."""

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str],
        table: Sequence[VariableRow],
        names: Sequence[str] = CONFIG_FILES,
    ) -> "NftbanVariables":
        """Read these variables from the environment and from the files with these names."""
        variable_names = (*(row.name for row in table), _DATA_DIR)
        from_environ = {
            name: VariableValue(environ[name], ConfigLocation("environment", name))
            for name in variable_names
            if environ.get(name)  # as in a shell's ${NAME:-...}, empty is not set
        }
        folder = config_dir(environ)
        conf, unreadable = _read_files(folder, environ, names)
        applies_anywhere = folder != CONFIG_DIR or bool(environ.get("NFTBAN_CONFIG_DIR"))
        return cls(from_environ, conf, applies_anywhere, unreadable)

    @property
    def data_dir(self) -> str:
        """The data folder that they name; an invalid value in the files is ignored."""
        variable = self.environ.get(_DATA_DIR)
        if variable is not None:
            return validators.check_path(variable.text, variable.at)
        named = self.conf[_DATA_DIR].text if _DATA_DIR in self.conf else ""
        return os.path.normpath(named) if named.startswith("/") else DATA_DIR

    def is_nftban_at(self, root: str) -> bool:
        """True if `root` is NFTBan's data folder, as the environment or its configuration names it.
        Raises ConfigError: the one of the environment is no absolute path."""
        return is_same_folder(root, self.data_dir)

    def installed_at(self, root: str) -> bool:
        """True if this is the real program's data folder, so that its lock must be shared."""
        home = DATA_DIR if _DATA_DIR in self.environ else self.data_dir
        return is_same_folder(root, home)

    def values(self, root: str, table: Sequence[VariableRow]) -> dict[str, Any]:
        """The fields that they set for the queue at `root`. Raises ConfigError: a value that
        applies here is invalid."""
        values = {}
        for row, variable in self.applied(root, table):
            value = _parse_number(variable) if row.is_number else variable.text
            values[row.field] = row.check(value, variable.at)
        return values

    def applied(
        self, root: str, table: Sequence[VariableRow]
    ) -> Iterator[tuple[VariableRow, VariableValue]]:
        """Yield the variables that set a field of the queue at `root`. Raises ConfigError: a value
        that applies here is not known without a shell."""
        is_data_dir = is_same_folder(root, self.data_dir)
        if is_data_dir or self.applies_anywhere:
            if self.unreadable:
                raise ConfigError(self.unreadable)
            named = self.conf.get(_DATA_DIR)
            if named is not None and named.require_text():
                validators.check_path(named.text, named.at)
        for row in table:
            variable = (
                self.environ.get(row.name) if self._environ_counts(row, is_data_dir) else None
            )
            conf_counts = is_data_dir or (self.applies_anywhere and row.scope == EVERYWHERE)
            if variable is None and conf_counts:
                variable = self.conf.get(row.name)
            if variable is not None and variable.require_text():
                yield row, variable

    def valid_part(self, root: str | None, table: Sequence[VariableRow]) -> "NftbanVariables":
        """Return the variables without those that `values` would refuse for the queue at `root`
        (None: at their data folder). Files that cannot be read count as missing. Raises nothing."""
        valid = self
        try:
            root = root or valid.data_dir
        except ConfigError:
            valid = valid._replace(
                environ={k: v for k, v in valid.environ.items() if k != _DATA_DIR}
            )
            root = valid.data_dir
        try:
            valid.values(root, ())
        except ConfigError:
            valid = valid._replace(conf={}, unreadable="")
        for row in table:
            try:
                valid.values(root, [row])
            except ConfigError:
                environ, conf = dict(valid.environ), dict(valid.conf)
                environ.pop(row.name, None)
                conf.pop(row.name, None)
                valid = valid._replace(environ=environ, conf=conf)
        return valid

    def _environ_counts(self, row: VariableRow, is_data_dir: bool) -> bool:
        if is_data_dir or row.scope == EVERYWHERE:
            return True
        return row.scope == PLACE and _DATA_DIR not in self.environ


def config_dir(environ: Mapping[str, str]) -> str:
    """The folder of the files: NFTBAN_CONFIG_DIR, else that of NFTBan, else our own."""
    asked = environ.get("NFTBAN_CONFIG_DIR", "")
    return asked or (CONFIG_DIR if os.path.isdir(CONFIG_DIR) else OWN_CONFIG_DIR)


def is_same_folder(a: str, b: str) -> bool:
    """True if two paths lead to the same folder."""
    return a == b or os.path.realpath(a) == os.path.realpath(b)


def _parse_number(variable: VariableValue) -> int:
    """Convert plain digits to a number: the shell of the other program takes nothing else."""
    text = variable.text
    if not text.isascii() or not text.isdigit() or len(text) >= 16:
        raise variable.at.wrong_value("a whole number", text)
    return int(text)


def _read_files(
    folder: str, environ: Mapping[str, str], names: Sequence[str]
) -> tuple[dict[str, VariableValue], str]:
    """The variables set by the files in this folder, and why an existing one cannot be read."""
    read: dict[str, Variable] = {}
    variables: dict[str, VariableValue] = {}
    for name in names:
        path = f"{folder}/{name}"
        try:
            with open(files.open_file(path), "rb") as file:
                text = file.read().decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return {}, f"{safe_line(path)}: cannot be read: {error_text(error)}"
        parsed = shell_assignments.parse_variables(text, {**_FOLDERS, **read}, environ)
        for key, variable in parsed.items():
            at = ConfigLocation(f"{safe_line(path)}: line {variable.line}", key)
            variables[key] = VariableValue(variable.text, at, variable.problem)
        read |= parsed
    return variables, ""


_FOLDERS: Mapping[str, Variable] = {
    "NFTBAN_DATA_DIR": Variable(DATA_DIR),
    "NFTBAN_CONFIG_DIR": Variable(CONFIG_DIR),
    "NFTBAN_RUN_DIR": Variable(RUN_DIR),
    "NFTBAN_LOG_DIR": Variable(LOG_DIR),
}
"""Default values."""
