"""Findings about what may not be read, and commands that show a file or a repair."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator

from engine.doctor.finding import Finding, hidden, join_first
from engine.formats.nftban.doctor.place_facts import PlaceFacts, is_hidden
from engine.system import files


def access_denied(what: str) -> Finding:
    """Finding for evidence that we may not read."""
    return hidden(f"{what}: permission denied")


def denied_paths(paths: list[str]) -> Iterator[Finding]:
    """One finding for all paths that we may not read, the first ones by name."""
    if paths:
        yield access_denied(join_first(paths))


def report_unseen(facts: PlaceFacts, paths: Iterable[str]) -> Iterator[Finding]:
    """Report folders that we may not see."""
    yield from denied_paths(
        [p for p in paths if isinstance(facts.folder_stats.get(p), PermissionError)]
    )


def report_unread(paths: Iterable[str]) -> Iterator[Finding]:
    """Report files that we may not read and folders that we may not list."""
    yield from denied_paths([path for path in dict.fromkeys(paths) if is_hidden(path)])


def report_missing(path: str, stat_or_error: os.stat_result | OSError) -> Finding:
    """Finding for a check that lacks a folder."""
    if isinstance(stat_or_error, PermissionError):
        return access_denied(path)
    return hidden(f"{path} does not exist")


def list_names(folder: str) -> list[str]:
    """Names in a folder, sorted; none if it cannot be listed."""
    try:
        return files.list_names(folder)
    except OSError:
        return []  # missing, reported by another check, or unreadable: see `report_unread`


def recover_command(facts: PlaceFacts) -> str:
    """Command that shows how a worker would repair what another one left."""
    return f"{facts.spooldeck} queue recover --dry-run"


def show_owner_command(path: str) -> str:
    """Command that shows a file's owner, mode and type."""
    return f"ls -ld -- {shlex.quote(path)}"


def show_content_command(path: str) -> str:
    """Command that shows a file's content safely: it does not block, follow links or flood the
    terminal."""
    try:
        file_stat = os.lstat(path)
    except OSError:
        return show_owner_command(path)
    plain = stat.S_ISREG(file_stat.st_mode) and file_stat.st_nlink == 1
    return f"head -c 2000 -- {shlex.quote(path)} | cat -v" if plain else show_owner_command(path)
