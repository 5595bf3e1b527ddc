"""Copy to the operator's clipboard through the terminal, with OSC 52.

Source: xterm's control sequences ("Operating System Commands", Ps = 52); tmux(1) on `set-clipboard`
and `allow-passthrough`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

DEFAULT_LIMIT_BYTES = 74_994
"""Default limit in encoded bytes: terminals drop longer texts (value from k9s)."""

LIMIT_VARIABLE = "SPOOLDECK_OSC52_MAX"
"""Environment variable with another limit, in encoded bytes."""


class ClipboardTooLong(Exception):
    """The text is longer than the terminal accepts; the message gives both sizes."""


def osc52_sequence(text: str, environ: Mapping[str, str]) -> str:
    """The control sequence that puts the text on the terminal's clipboard.

    Inside tmux it is sent twice: to tmux's own clipboard (`set-clipboard`), and through tmux to the
    outer terminal (`allow-passthrough`).

    Raises:
        ClipboardTooLong: the text is longer than the limit.
    """
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    setting = environ.get(LIMIT_VARIABLE, "")
    cap = int(setting) if setting.isascii() and setting.isdigit() else DEFAULT_LIMIT_BYTES
    if len(encoded) > cap:
        raise ClipboardTooLong(
            f"{len(encoded):,} bytes encoded; a terminal takes {cap:,} ({LIMIT_VARIABLE})"
        )
    plain = f"\x1b]52;c;{encoded}\x07"
    if not environ.get("TMUX"):
        return plain
    return f"{plain}\x1bPtmux;{plain.replace(chr(27), chr(27) * 2)}\x1b\\"
