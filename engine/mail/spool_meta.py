"""Read a spooled mail's meta.sh: shell assignments, never executed."""

from __future__ import annotations

from collections.abc import Callable

from engine.system import files

UNESCAPED_KEYS = ("MAIL_SUBJECT",)
"""Keys that the contract's own program writes without escaping."""


def is_mail_key(key: str) -> bool:
    """True for the keys of the contract."""
    return key.startswith("MAIL_")


def parse_meta(data: bytes, known: Callable[[str], bool] = is_mail_key) -> dict[str, str]:
    """Parse a meta.sh strictly, but for values that were written without escaping; `known` decides
    which keys are allowed. Raises Refused: with the line number and what was expected."""
    return files.parse_assignments(data, known, UNESCAPED_KEYS)
