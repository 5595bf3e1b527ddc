"""Saved filters: the texts behind `@name`, in `filters.yaml` of the user's state folder.

The file is read when a filter mentions a name, and written by fsync and rename under the flock of
its folder, with mode 0600. One line per filter: `name: "err~550 age>2h"`; comments are not kept.
A filter with operators or parentheses is in brackets: `name: ["kind=a or kind=b"]`. Without
brackets, such a text may be from an earlier version, to which they were words: it is refused.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TypeAlias

from engine.config import yaml_file
from engine.system import files, users
from engine.text.error_text import error_text
from engine.text.filter_words import quote_operators
from engine.text.safe import safe_line

FILE_NAME = "filters.yaml"

_HEADER = '# Saved filters, name: "err~550 age>2h"; :save rewrites the file without comments\n'
_IS_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,39}", re.ASCII).fullmatch


class SavedFilterError(ValueError):
    """A bad or unknown name, a text with unprintable characters, or a file that is unusable, too
    large or written by another process now; the message says where and what was expected."""


SavedTexts: TypeAlias = Mapping[str, "str | list[str]"]
"""Texts of saved filters by name: a list of one text if it has operators."""


def read_filters(environ: Mapping[str, str]) -> SavedTexts:
    """Read all saved filters by name; none if there is no file."""
    path = FILE_NAME
    try:
        path = f"{users.state_folder(environ)}/{FILE_NAME}"
        fd = files.open_file(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SavedFilterError(f"{path}: {error_text(error)}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise yaml_file.BadYaml("expected a regular file")
        data, _ = files.read_guarded(fd, yaml_file.MAX_BYTES)
        return _parse_filters(data)
    except (OSError, files.Refused, yaml_file.BadYaml) as error:
        raise SavedFilterError(f"{path}: {error_text(error)}") from error
    finally:
        os.close(fd)


def _parse_filters(data: bytes) -> SavedTexts:
    filters = yaml_file.load_yaml(data)
    if filters is None:
        return {}
    if not isinstance(filters, dict):
        raise yaml_file.BadYaml('expected lines such as name: "err~550"')
    for name, value in filters.items():
        texts = value if isinstance(value, list) else [value]
        is_text = len(texts) == 1 and isinstance(texts[0], str)
        if not (isinstance(name, str) and _IS_NAME(name) and is_text):
            label = safe_line(str(name))
            raise yaml_file.BadYaml(f'{label}: expected a line such as name: "err~550"')
        _require_printable(name, texts[0])
    return filters


def _require_printable(name: str, text: str) -> None:
    """Raise BadYaml at a character that a terminal obeys, or that YAML drops or refuses."""
    if character := next((c for c in text if not c.isprintable()), ""):
        raise yaml_file.BadYaml(
            f"{name}: expected printable characters, not U+{ord(character):04X}"
        )


def find_filter(saved: SavedTexts, name: str) -> str:
    """The text of a saved filter. Raises SavedFilterError: there is none, or a word of it is now
    an operator."""
    _require_name(name)
    if name not in saved:
        known = " ".join(f"@{each}" for each in sorted(saved))
        raise SavedFilterError(f"no such saved filter; {known or ':save @name saves one'}")
    text = saved[name]
    if isinstance(text, list):
        return text[0]
    if (quoted := quote_operators(text)) != text:
        words, operators = (json.dumps(new, ensure_ascii=False) for new in (quoted, [text]))
        raise SavedFilterError(
            f"write {words} to find the words, or {operators} for operators, in {FILE_NAME}"
        )
    return text


def lookup_in(environ: Mapping[str, str]) -> Callable[[str], str]:
    """A lookup for one command: it reads the file at each use, and raises as the two above."""
    return lambda name: find_filter(read_filters(environ), name)


def save_filter(environ: Mapping[str, str], name: str, text: str) -> bool:
    """Save a filter under a name; return True if it replaced another text."""
    _require_name(name)
    try:
        folder = users.state_folder(environ)
        files.make_folders(folder, 0o700)
        dir_fd = files.open_dir(folder)
    except OSError as error:
        raise SavedFilterError(f"{FILE_NAME}: {error.filename}: {error_text(error)}") from error
    try:
        if not files.claim_flock(dir_fd):
            raise SavedFilterError(f"{folder}: another process saves a filter: try again")
        before = read_filters(environ)
        _require_printable(name, text)
        has_operators = quote_operators(text) != text
        value = [text] if has_operators else text
        after = sorted({**before, name: value}.items(), key=itemgetter(0))
        # Not in ASCII: JSON escapes an emoji as two surrogates, which YAML refuses.
        lines = (f'"{key}": {json.dumps(value, ensure_ascii=False)}\n' for key, value in after)
        data = (_HEADER + "".join(lines)).encode()
        _parse_filters(data)  # a file over the limits of the reader would be lost to all
        files.replace_durably(FILE_NAME, dir_fd, data, mode=0o600)
    except (OSError, yaml_file.BadYaml) as error:
        why = error_text(error)
        raise SavedFilterError(f"{folder}/{FILE_NAME}: {why}") from error
    finally:
        os.close(dir_fd)
    return before.get(name, value) != value


def _require_name(name: str) -> None:
    if not _IS_NAME(name):
        raise SavedFilterError("expected a name of letters, digits, - and _, at most 40")
