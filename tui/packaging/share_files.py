"""The files of a package beside its code: manual pages and completion scripts.

`python -m tui.packaging.share_files FOLDER` writes them below FOLDER as in a prefix such as /usr:
share/man, share/bash-completion, share/zsh and share/fish.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tui.cli.completion import make_script
from tui.packaging.man_pages import write_pages

PACKAGE_FILES = {
    "spooldeck.py": "__init__.py",
    "tui/cli/__main__.py": "__main__.py",
    "engine/py.typed": "py.typed",
}
"""Files of the repository -> their names in the package of the wheel."""

COMPLETIONS = {
    "bash": "share/bash-completion/completions/spooldeck",
    "zsh": "share/zsh/site-functions/_spooldeck",
    "fish": "share/fish/vendor_completions.d/spooldeck.fish",
}
"""Where the shells find the scripts, below a prefix."""


def write_share_files(source: Path, prefix: Path) -> None:
    """Write the manual pages and completion scripts of a source tree below `prefix`.

    Raises:
        ImportError: shtab or pypandoc is missing.
    """
    write_pages((source / "MANUAL.md").read_text(encoding="utf-8"), prefix / "share/man")
    for shell, name in COMPLETIONS.items():
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_script(shell), encoding="utf-8")


if __name__ == "__main__":
    write_share_files(Path(__file__).parents[2], Path(sys.argv[1]))
