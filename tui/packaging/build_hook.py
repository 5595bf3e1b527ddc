"""Build hook of hatchling: add manual pages and completion scripts to a wheel and a source archive.

hatchling loads this file by its path, which is in pyproject.toml. In a git tree the files are made
for each build, manual pages for a source archive only. It has them in `build/share`, so that its
wheel needs no tools."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShareHook(BuildHookInterface[Any]):
    """Add the folder `share` to a package, and its completion scripts to the command."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the files if there are none, and say where they belong."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from tui.packaging import share_files

        # Not `share` itself: hatchling adds no two files whose paths are the same before and after.
        prefix = Path(self.root, "build")
        if not Path(self.root, "PKG-INFO").exists():
            self._made = tempfile.TemporaryDirectory()
            prefix = Path(self._made.name)
            share_files.write_completions(prefix)
            if self.target_name == "sdist":
                share_files.write_pages(Path(self.root), prefix)
        if self.target_name == "sdist":
            build_data["force_include"][str(prefix / "share")] = "build/share"
            return
        build_data["shared_data"][str(prefix / "share")] = "share"
        for source, inside in share_files.PACKAGE_FILES.items():
            build_data["force_include"][str(Path(self.root, source))] = f"spooldeck/{inside}"
        for shell, name in share_files.COMPLETIONS.items():
            inside = f"spooldeck/tui/cli/texts/completion/spooldeck.{shell}"
            build_data["force_include"][str(prefix / name)] = inside
