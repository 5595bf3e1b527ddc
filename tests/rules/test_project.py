"""The shape of the project itself: its folders, its packages, its declared needs."""

import ast
import importlib.metadata
import importlib.resources
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.version import VERSION
from tests.rules.syntax_trees import parsed, walked
from tests.tables import each
from tui.packaging.backend import PANDOC, SHTAB
from tui.packaging.locks import BUILD_LOCK, FOLDER, LOCKS, read_project

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"engine", "tui", "themes", "tests", "screenshots", ".ci", ".github"}
PACKAGES = ["engine", "tui", "themes"]
RUNTIME = {"textual", "watchfiles", "pyyaml", "humanize", "prometheus-client", "google-re2"}
OPTIONAL = {"redis", "bullmq", "msgpack", "croniter", "psycopg", "httpx", "httpcore", "pytest"}
OPTIONAL |= {"cryptography", "nacl"}
"""What an extra brings and only its own modules import; msgpack and croniter come with bullmq."""
BUILD = {"hatchling", "shtab", "pypandoc"}
"""What only the build of a package imports."""


def git_files(*options: str) -> list[Path]:
    """Return the files git lists here, or skip the test where there is no git to ask."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not in a git working tree")
    trusted = ["-c", f"safe.directory={ROOT}"]
    listed = subprocess.run(
        ["git", *trusted, "ls-files", "-z", *options], cwd=ROOT, capture_output=True, check=True
    )
    names = listed.stdout.decode().split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


def pyproject() -> dict[str, Any]:
    """Return pyproject.toml as read."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    """Return the distribution names of some requirement lines."""
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in requirements}


def test_top_level_folders() -> None:
    """The top level holds no folder that is not one of the named ones."""
    files = git_files("--cached", "--others", "--exclude-standard")
    assert {file.parts[0] for file in files if len(file.parts) > 1} <= FOLDERS


MESSAGES = [
    ("Read the log once", 0),
    ("Read the log once\n\nIt was read twice.", 0),
    ("Read the log once\n# a comment of git", 0),
    ("Merge branch 'x' of a very long name that git itself has written, longer than others.", 0),
    ("amend! Read the log once", 0),
    ("é" * 72, 0),
    ("A" * 73, 1),
    ("Read the log once.", 1),
    ("read the log once", 1),
    ("", 1),
    ("Read the log once\nIt was read twice.", 1),
]


@each(("message", "code"), MESSAGES)
def test_the_form_of_a_commit_message(message: str, code: int, tmp_path: Path) -> None:
    """The hook refuses a message of another form, in one line."""
    path = tmp_path / "message"
    path.write_text(message)
    hook = ROOT / ".ci/hooks/commit-msg"
    run = subprocess.run([hook, path], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.count("\n")) == (code, code), run.stderr


def test_a_package_runs_nothing_and_has_types() -> None:
    """Importing one runs nothing but its docstring; no folder of tests is a package."""
    for package in PACKAGES:
        tree = ast.parse((ROOT / package / "__init__.py").read_text())
        assert ast.get_docstring(tree) and len(tree.body) == 1, package
    assert all((ROOT / package / "py.typed").is_file() for package in ("engine", "tui"))
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_wheel_packages_and_command() -> None:
    """The wheel has the engine, the console and the themes in one package, and one command."""
    assert pyproject()["project"]["scripts"] == {"spooldeck": "spooldeck:main"}
    wheel = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == PACKAGES
    assert wheel["sources"] == {name: f"spooldeck/{name}" for name in PACKAGES}


def test_themes_are_package_data() -> None:
    """Every theme can be read as package data and is a YAML mapping."""
    theme_files = [
        f for f in importlib.resources.files("themes").iterdir() if f.name.endswith(".yaml")
    ]
    assert theme_files
    assert all(isinstance(yaml.safe_load(theme.read_text()), dict) for theme in theme_files)


def test_version_is_kept_once() -> None:
    """The installed version is the one in engine/version.py, and no other file repeats it."""
    assert importlib.metadata.version("spooldeck") == VERSION
    modules = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    holding = [file for file in (*modules, ROOT / "pyproject.toml") if VERSION in file.read_text()]
    assert holding == [ROOT / "engine/version.py"]


def test_each_runtime_dependency_is_imported() -> None:
    """What engine, tui and themes import is declared, and what is declared is imported."""
    assert names(pyproject()["project"]["dependencies"]) == RUNTIME
    known = {"yaml": "pyyaml", "re2": "google-re2", "prometheus_client": "prometheus-client"}
    roots = {
        name.partition(".")[0]
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in walked(parsed(path))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    # rich belongs to textual; the others are imported for type checkers only, which have them.
    known_elsewhere = {"rich", "_typeshed", "typing_extensions"}
    unlisted = roots - sys.stdlib_module_names - {*PACKAGES, "spooldeck", *known_elsewhere}
    assert {known.get(name, name) for name in unlisted} - OPTIONAL - BUILD == RUNTIME


def test_runtime_dependencies_are_bounded() -> None:
    """Every runtime dependency has a lower bound and a cap."""
    project = pyproject()["project"]
    extras = project["optional-dependencies"]
    users = ("bullmq", "deliver", "postgres", "federation")
    lines = project["dependencies"] + [line for name in users for line in extras[name]]
    lines = [line for line in lines if not line.startswith("spooldeck[")]
    assert [line for line in lines if ">=" not in line or ",<" not in line] == []


def test_extras_have_exact_tools() -> None:
    """The tests draw with one exact version of textual; `package` has what builds a wheel."""
    extras = pyproject()["project"]["optional-dependencies"]
    assert {SHTAB, PANDOC} <= {*extras["package"]}
    (pin,) = [line for line in extras["test"] if line.startswith("textual=")]
    assert pin == f"textual=={importlib.metadata.version('textual')}"


def test_speaks_only_of_itself() -> None:
    """No text file of the project points to a shared folder outside it."""
    outside = ("../" + "shared").encode()
    tracked = git_files("--cached", "--others", "--exclude-standard")
    assert [file for file in tracked if outside in (ROOT / file).read_bytes()] == []


def test_a_test_file_is_named_after_what_it_tests() -> None:
    """Its name begins with that of a module or package of the folder that it mirrors."""
    astray = []
    for path in (
        path for top in ("engine", "tui") for path in (ROOT / "tests" / top).rglob("test_*.py")
    ):
        folder = path.parent.relative_to(ROOT / "tests")
        names = {folder.name, *(each.stem for each in (ROOT / folder).glob("*"))}
        aspect = path.stem.removeprefix("test_")
        if not any(aspect == name or aspect.startswith(f"{name}_") for name in names):
            astray.append(str(path))
    assert not astray


def test_the_lock_files_have_what_pyproject_asks_for() -> None:
    """Each version is allowed there, none is missing, each has a hash: else `make lock` is due."""
    build, extras = read_project()
    assert {path.stem for path in FOLDER.iterdir()} == {*LOCKS, BUILD_LOCK}
    for name in (*LOCKS, BUILD_LOCK):
        pinned: dict[str, list[str]] = {}
        text = (FOLDER / f"{name}.txt").read_text().replace("\\\n", " ")
        for line in (line for line in text.splitlines() if not line.startswith("#")):
            package, _, rest = line.partition("==")
            pinned.setdefault(package, []).append(rest.split()[0])
            assert " --hash=sha256:" in rest, line
        wanted = build if name == BUILD_LOCK else required(extras, "", *LOCKS[name])
        for one in map(Requirement, wanted):
            versions = pinned.get(canonicalize_name(one.name), [])
            assert versions and all(one.specifier.contains(each) for each in versions), one


def required(extras: Mapping[str, list[str]], *names: str) -> Iterator[str]:
    """The requirements of some extras, and of those that they name."""
    for line in (line for name in names for line in extras[name]):
        if line.startswith("spooldeck["):
            yield from required(extras, *Requirement(line).extras)
        else:
            yield line
