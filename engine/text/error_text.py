"""The reason of a failed call in words, without its number and path."""

from __future__ import annotations


def error_text(error: BaseException) -> str:
    """What the system says of an error, `No such file or directory`; else the error's own text, or
    the name of its class if it has none.

    `OSError.strerror` alone is None where a library raises the error itself, as `socket.timeout`.
    """
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
