"""Build backend: hatchling, and the tools that make manual pages and completion scripts.

pyproject.toml names it (PEP 517, in-tree build backends). Pages are made for a source archive, and
a wheel made from it has them. A wheel made straight from a git tree, as by `pip install .`, has
completion scripts but no pages, so that it needs no pandoc, which is 35 MB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling import build

build_wheel, build_sdist = build.build_wheel, build.build_sdist
build_editable = build.build_editable
get_requires_for_build_editable = build.get_requires_for_build_editable

SHTAB, PANDOC = "shtab>=1.13,<2", "pypandoc_binary>=1.17,<2"
"""They make the completion scripts, and the manual pages."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What a wheel needs beside hatchling; that of a source archive needs no tools."""
    tools = () if Path("PKG-INFO").exists() else (SHTAB,)
    return [*build.get_requires_for_build_wheel(config_settings), *tools]


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What a source archive needs beside hatchling."""
    tools = () if Path("PKG-INFO").exists() else (SHTAB, PANDOC)
    return [*build.get_requires_for_build_sdist(config_settings), *tools]
