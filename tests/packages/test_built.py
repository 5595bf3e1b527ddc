"""What the wheel and the source archive contain, and what a reader of the manual pages gets."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from engine.version import VERSION
from tests.programs import needs
from tui.cli.commands import COMMAND_WORDS
from tui.packaging.share_files import COMPLETIONS, PACKAGE_FILES, split_sections

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def share(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files for the folder `share` of a prefix."""
    folder = tmp_path_factory.mktemp("share")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / f"spooldeck-{VERSION}.data" / "data" / "share"


def test_both_packages_are_complete(built: Path, wheel: Path) -> None:
    """The wheel needs no tool to make its pages, as the source archive has them too."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.endswith("/")}
        metadata = message_from_bytes(archive.read(f"spooldeck-{VERSION}.dist-info/METADATA"))
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        source_names = {name.partition("/")[2] for name in source.getnames()}
    data = f"spooldeck-{VERSION}.data/data/"
    pages = {name.removeprefix(data) for name in inside if "/share/man/" in name}
    files = [
        path.relative_to(ROOT).as_posix()
        for package in ("engine", "tui", "themes")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]

    build_only = ("tui/packaging/", "tui/cli/texts/debian/")
    names = {name: PACKAGE_FILES.get(name, name) for name in (*files, "spooldeck.py")}
    expected = {
        f"spooldeck/{name}"
        for file, name in names.items()
        if not file.startswith(build_only) and not file.endswith(".md")
    }
    completions = {f"spooldeck/tui/cli/texts/completion/spooldeck.{shell}" for shell in COMPLETIONS}
    others = {f"{data}{name}" for name in (*pages, *COMPLETIONS.values())}
    assert {name for name in inside if ".dist-info/" not in name} == expected | completions | others
    groups = {word.path[0] for word in COMMAND_WORDS if not word.function and len(word.path) == 1}
    named = {"spooldeck.1", "spooldeck.yaml.5", "spooldeck-json.5", "spooldeck-console.7"}
    named |= {f"spooldeck-{one}.7" for one in ("delivery", "exim", "nftban", "postfix")}
    assert {Path(name).name for name in pages} == named | {f"spooldeck-{one}.1" for one in groups}
    assert f"spooldeck-{VERSION}.dist-info/licenses/LICENSE" in inside
    assert source_names >= {f"build/{name}" for name in pages} | {
        *files,
        "spooldeck.py",
        "tests/packages/test_built.py",
    }
    assert metadata["Version"] == VERSION
    assert "Development Status :: 4 - Beta" in (metadata.get_all("Classifier") or [])
    run = [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())]
    checked = subprocess.run(run, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.deep
def test_a_wheel_made_from_a_clone_needs_no_pandoc(tmp_path: Path) -> None:
    """It has the completion scripts and no pages; a source archive is not made without."""
    (tmp_path / "pypandoc.py").write_text("raise ImportError('not here')\n")
    clone = tmp_path / "clone"
    others = shutil.ignore_patterns(".*", "build", "dist", "screenshots", "tests")
    shutil.copytree(ROOT, clone, ignore=others)

    def python(*words: str, path: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path)}
        argv = [sys.executable, *words]
        return subprocess.run(argv, cwd=clone, env=environ, capture_output=True, text=True)

    build = ("-m", "build", "--no-isolation")
    assert [python(*build, kind).returncode for kind in ("--wheel", "--sdist")] == [0, 1]
    (wheel,) = clone.glob("dist/*")
    data = f"spooldeck-{VERSION}.data/data/"
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(data)]
    assert {name.removeprefix(data) for name in names} == {*COMPLETIONS.values()}
    wanted = "from backend import *; print(get_requires_for_build_wheel())"
    needed = python("-c", wanted, path=clone / "tui" / "packaging").stdout
    assert "pandoc" not in needed and "shtab" in needed


def test_manual_pages_have_no_error_and_no_warning(share: Path) -> None:
    """mandoc and groff find nothing wrong with any page on a terminal of 80 columns."""
    pages = sorted(str(path) for path in share.glob("man/man*/*"))
    assert len(pages) > 8
    environ = {"PATH": "/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    lint, formatted = (
        subprocess.run([*words, *pages], env=environ, capture_output=True, text=True)
        for words in (
            [needs("mandoc"), "-Tlint", "-Wwarning"],
            [needs("man"), "--warnings", "-E", "UTF-8", "-l"],
        )
    )
    assert (lint.returncode, lint.stdout + lint.stderr) == (0, "")
    assert (formatted.returncode, formatted.stderr) == (0, "")
    text = " ".join(formatted.stdout.split())
    for word in COMMAND_WORDS:
        if word.function and word.path != ("console",):
            assert f" spooldeck {' '.join(word.path)} " in text, word.path
    for phrase in ("--canary N,M", "token bucket: one token for each attempt", "sysexits.h"):
        assert phrase in text


def test_sections_are_found_by_their_headings() -> None:
    """With those below it, one level higher; a comment in a code block is none."""
    text = "# A\n\nintro\n\n## B\n\n```\n# no heading\n```\n\n### C\n\nlast\n\n## D\n\nd"
    sections = split_sections(text)
    assert sections["B"] == "```\n# no heading\n```\n\n## C\n\nlast"
    assert (sections["C"], sections["D"]) == ("last", "d")
