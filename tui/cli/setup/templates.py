"""Fill in texts of our own: shell functions, units, files of packages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

TEXTS = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/texts"
"""The folder of units and of files of packages."""

HOUSEKEEPING_SECONDS = 300
"""Seconds that a timer's run gets in addition to its handler: to free a lock, recover orphaned
tasks and delete expired ones."""


def fill_template(path: str, values: Mapping[str, str]) -> str:
    """Fill in a text: replace each @name@; remove lines that consist of one empty value."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for key, value in values.items():
        if not value:
            text = text.replace(f"@{key}@\n", "")
    return re.sub("@([a-z_]+)@", lambda match: values[match[1]], text)
