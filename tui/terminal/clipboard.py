"""Copying to the operator's own clipboard, through whatever lies between: OSC 52.

Source: xterm's control sequences ("Operating System Commands", Ps = 52); tmux(1) on
`set-clipboard` and `allow-passthrough`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

CAP = 74_994
"""Bytes of encoded text that terminals take without dropping all of it (as k9s has it)."""

CAP_NAME = "SPOOLDECK_OSC52_MAX"
"""The environment variable that says another cap, in encoded bytes."""


class TooLong(Exception):
    """More than a terminal would take; the message says how much."""


def sequence(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal so that its clipboard holds the text.

    Inside tmux both ways are taken: by its own clipboard, where `set-clipboard` is on, and past it
    to the terminal outside, where `allow-passthrough` is.

    Raises:
        TooLong: the text is longer than the cap.
    """
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    cap = _cap(environ.get(CAP_NAME, ""))
    if len(encoded) > cap:
        raise TooLong(f"{len(encoded):,} bytes encoded; a terminal takes {cap:,} ({CAP_NAME})")
    plain = f"\x1b]52;c;{encoded}\x07"
    if not environ.get("TMUX"):
        return plain
    return f"{plain}\x1bPtmux;{plain.replace(chr(27), chr(27) * 2)}\x1b\\"


def _cap(said: str) -> int:
    return int(said) if said.isascii() and said.isdigit() else CAP
