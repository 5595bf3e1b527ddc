"""Build backend: hatchling, and for wheels and source archives the tools that make their pages.

pyproject.toml names it (PEP 517, in-tree build backends). An editable installation, such as that of
`make demo`, has no manual pages and so needs no pandoc, which is 34 MB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling import build

build_wheel, build_sdist, build_editable = (
    build.build_wheel,
    build.build_sdist,
    build.build_editable,
)
get_requires_for_build_editable = build.get_requires_for_build_editable

TOOLS = ("shtab>=1.13,<2", "pypandoc_binary>=1.17,<2")
"""They make the completion scripts and manual pages."""


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What a wheel needs beside hatchling; that of a source archive needs no tools."""
    tools = () if Path("PKG-INFO").exists() else TOOLS
    return [*build.get_requires_for_build_wheel(config_settings), *tools]


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What a source archive needs beside hatchling."""
    tools = () if Path("PKG-INFO").exists() else TOOLS
    return [*build.get_requires_for_build_sdist(config_settings), *tools]
