"""Who may import whom: the packages of the engine and the console, held to one table."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.rules.syntax_trees import FUNCTIONS, parsed, walked

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = {
    "engine.values": "",
    "engine.text": "engine.values",
    "engine": "engine.text",
    "engine.system": "engine",
    "engine.locks": "engine.system",
    "engine.logs": "engine.system",
    "engine.mail": "engine.system",
    "engine.operations": "engine.system",
    "engine.config": "engine.locks",
    "engine.destinations": "engine.config",
    "engine.index": "engine.destinations engine.operations",
    "engine.live": "engine.index",
    "engine.mail.message": "engine.config engine.mail",
    "engine.mail.transports": "engine.config engine.mail",
    "engine.monitor": "engine.destinations engine.logs",
    "engine.mail.send": "engine.mail.message engine.mail.transports engine.monitor",
    "engine.replay": "engine.monitor engine.operations",
    "engine.doctor": "engine.monitor engine.operations",
    "engine.programs": "engine.doctor engine.config engine.logs",
    "engine.work": "engine.mail.send engine.operations",
    "engine.delivery": "engine.destinations engine.work",
    "engine.demo": "engine.work",
    "engine.places": "engine.index engine.work",
    "engine.formats.base": "engine.delivery engine.demo engine.doctor engine.places "
    "engine.programs",
    "engine.formats.nftban": "engine.formats.base",
    "engine.formats.nftban.doctor": "engine.formats.nftban",
    "engine.formats.nftban.format": "engine.formats.nftban.doctor",
    "engine.formats.kannader": "engine.formats.base",
    "engine.formats.kannader.format": "engine.formats.kannader",
    "engine.formats.zgb": "engine.formats.base",
    "engine.formats.zgb.format": "engine.formats.zgb",
    "engine.formats.bullmq": "engine.formats.base",
    "engine.formats.bullmq.federation": "engine.formats.bullmq",
    "engine.formats.bullmq.format": "engine.formats.bullmq.federation",
    "engine.formats.postfix": "engine.formats.base engine.programs",
    "engine.formats.postfix.format": "engine.formats.postfix",
    "engine.formats.exim": "engine.formats.base engine.programs",
    "engine.formats.exim.format": "engine.formats.exim",
    "engine.formats.zmailer.scheduling": "engine.config",
    "engine.formats.zmailer.mailq": "engine.config",
    "engine.formats.zmailer.mailq_store": "engine.formats.zmailer.mailq",
    "engine.formats.zmailer.spool": "engine.formats.base",
    "engine.formats.zmailer": "engine.formats.zmailer.scheduling engine.formats.zmailer.spool",
    "engine.formats.zmailer.scheduler": "engine.formats.zmailer engine.formats.zmailer.mailq",
    "engine.formats.zmailer.agents": "engine.mail.send engine.formats.zmailer",
    "engine.formats.zmailer.format": "engine.formats.zmailer.mailq_store "
    "engine.formats.zmailer.scheduler",
    "engine.formats": "engine.formats.bullmq.format engine.formats.exim.format "
    "engine.formats.kannader.format engine.formats.nftban.format engine.formats.postfix.format "
    "engine.formats.zgb.format engine.formats.zmailer.format",
    "themes": "",
    "tui.text": "engine.live engine.monitor",
    "tui.session": "engine.places engine.replay tui.text",
    "tui.terminal": "tui.text",
    "tui.widgets": "engine.config tui.terminal themes",
    "tui.screens": "tui.session tui.widgets",
    "tui.confirm": "tui.screens",
    "tui.plan": "tui.confirm",
    "tui.log": "tui.screens",
    "tui.operations": "tui.plan",
    "tui.transports": "tui.plan",
    "tui.task": "engine.mail tui.transports",
    "tui.locks": "tui.operations tui.task",
    "tui.queue": "tui.operations tui.task",
    "tui.groups": "tui.queue",
    "tui.overview": "tui.queue",
    "tui": "tui.groups tui.locks tui.log tui.overview",
    "tui.cli.setup": "engine.formats tui.session",
    "tui.cli.plans": "tui.cli.setup tui.locks tui.operations",
    "tui.cli.queue": "tui.cli.plans",
    "tui.cli.formats.nftban": "tui.cli.queue",
    "tui.cli.formats.nftban.mail": "tui.cli.formats.nftban",
    "tui.cli.formats.kannader": "tui.cli.queue",
    "tui.cli.formats.zgb": "tui.cli.queue",
    "tui.cli.formats.bullmq": "tui.cli.queue",
    "tui.cli.formats.zmailer": "engine.formats.zmailer.agents tui.cli.queue",
    "tui.cli": "tui tui.cli.setup",
    "tui.cli.print": "tui.cli tui.cli.queue",
    "tui.cli.mta": "tui.cli.print",
    "tui.packaging": "tui.cli",
}
"""For each package, or module that counts as one, those that it may import, each with all that they
may import."""


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    by_name = {}
    for package in ("engine", "tui", "themes"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            by_name[".".join(parts).removesuffix(".__init__")] = path
    return by_name


MODULES = modules()


def package_of(name: str) -> str:
    """The package of a module. A package, or a module with a row in PACKAGES, is its own package:
    the module with a format's object stands above all other packages of its format.
    """
    is_own = name in PACKAGES or MODULES[name].name == "__init__.py"
    return name if is_own else name.rpartition(".")[0]


@cache
def tree(name: str) -> ast.Module:
    """The syntax tree of a module."""
    return parsed(MODULES[name])


@cache
def imported(name: str) -> frozenset[str]:
    """The modules that a module imports, also inside functions, by their full names."""
    return frozenset(_imports(name))


def _imports(name: str) -> Iterator[str]:
    for node in walked(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(dots, package_of(name)) if node.level else dots
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield whole if whole in MODULES or alias.name.startswith("_") else source


@cache
def allowed(package: str) -> frozenset[str]:
    """The packages that a package may import: those of its line, and all that those may import."""
    direct = PACKAGES[package].split()
    return frozenset({package, *direct}.union(*map(allowed, direct)))


def test_a_package_imports_only_what_its_line_allows() -> None:
    """A module imports its own package, the packages of its line, and what those may import."""
    wrong = {
        f"{name} imports {other}"
        for name in MODULES
        for other in imported(name)
        if other in MODULES and package_of(other) not in allowed(package_of(name))
    }
    assert not wrong, "move the code, or change PACKAGES"


def test_the_table_names_every_package_and_has_no_cycle() -> None:
    """Each package with modules has a line; neither lines nor imports of modules have a cycle."""
    filled = {package_of(name) for name, path in MODULES.items() if path.name != "__init__.py"}
    assert filled == {package for package in PACKAGES if package != "themes"}
    TopologicalSorter({name: line.split() for name, line in PACKAGES.items()}).prepare()
    ours = {n: {o for o in imported(n) if o in MODULES} - {n} for n in MODULES}
    TopologicalSorter(ours).prepare()


def test_a_package_has_a_charter() -> None:
    """It says in one line what the package is for."""
    for name in MODULES:
        if MODULES[name].name == "__init__.py":
            charter = ast.get_docstring(tree(name))
            assert charter, name
            assert len(charter.splitlines()[0]) <= 97, name


def test_the_engine_knows_no_screen() -> None:
    """No module of the engine imports textual, rich or the console, not even inside a function."""
    wrong = {
        f"{name} imports {other}"
        for name in MODULES
        if name.split(".")[0] == "engine"
        for other in imported(name)
        if other.split(".")[0] in {"textual", "rich", "tui", "themes"}
    }
    assert not wrong


def test_what_prints_loads_no_textual() -> None:
    """The formats of the console, and the commands that print, start without loading Textual."""
    light = ("tui.text", "tui.cli.print", "tui.cli.plans")
    names = [name for name in MODULES if name in light or package_of(name) in light]
    code = f"import sys, {', '.join(names)}; print('textual' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (run.stdout.strip(), run.stderr) == ("False", "")
    assert "tui.text.keys" in names


OUR_PRIVATE = {"_replace", "_asdict", "_fields", "_field_defaults", "_exit"}
"""Private names that are not Textual's: of NamedTuple and of `os`."""


def test_only_the_terminal_uses_private_names_of_textual() -> None:
    """Outside `tui.terminal` no module imports a private module of Textual, and none reads or
    overrides a private attribute that our own code does not define: an update cannot break those.
    """
    screens = [n for n in MODULES if n.startswith("tui") and not n.startswith("tui.cli")]
    above = [n for n in screens if package_of(n) != "tui.terminal"]
    nodes = [node for n in above for node in walked(tree(n))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    stored = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    defined = {node.name for node in nodes if isinstance(node, FUNCTIONS)}
    overridden = {
        node.func.attr
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "super()"
    }
    private = {n for n in used if n.startswith("_") and not n.startswith("__")} - OUR_PRIVATE

    assert not private - stored - defined - named
    assert not {name for name in overridden if name in private}
    for name in above:
        from_textual = {other for other in imported(name) if other.startswith("textual.")}
        assert not {other for other in from_textual if "._" in other}, name


FORMATS = frozenset(path.parent.name for path in ROOT.glob("engine/formats/*/__init__.py"))
"""The names of the formats."""

FORMAT_LISTS = ("engine.formats.known_formats", "tui.cli.command_table")
"""The table of formats and that of commands: the only modules that name those of a format."""

_TRANSPORTS = frozenset({"exim", "postfix"})
_TRANSPORTS = frozenset({"exim", "postfix"})
OTHER_MEANINGS = {
    "engine.locks.lock_holder": frozenset({"nftban"}),
    "engine.config.mail_config": _TRANSPORTS,
    "engine.mail.send.delivery_log": _TRANSPORTS,
    "engine.mail.transports.installed": _TRANSPORTS,
    "engine.mail.transports.local_programs": _TRANSPORTS,
    "tui.packaging.locks": frozenset({"bullmq"}),
}
"""Modules with words that are no format's name there: the process name of a worker, transports, an
extra."""


def format_of(module: str) -> str:
    """The format whose module it is; "" for the modules that all formats share."""
    parts = module.removeprefix("tui.cli.").removeprefix("engine.").split(".")
    return parts[1] if parts[0] == "formats" and {*parts[1:2]} & FORMATS - {"base"} else ""


def named_modules(name: str) -> Iterator[str]:
    """The modules that a module names by texts: "MODULE:FUNCTION", below `tui.cli`, and
    "MODULE:CLASS".
    """
    for node in walked(tree(name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module in re.findall(r"([a-z_.]+):[A-Za-z_]+\b", node.value):
                yield from {module, f"tui.cli.{module}"} & MODULES.keys()


def test_a_format_is_imported_by_itself_alone() -> None:
    """Only the two lists import a format, also by a text such as "MODULE:FUNCTION"."""
    wrong = {
        f"{name} imports {other}"
        for name in MODULES
        if name not in FORMAT_LISTS
        for other in {*imported(name), *named_modules(name)}
        if format_of(other) not in ("", format_of(name))
    }
    assert not wrong


def test_a_format_is_named_by_its_own_modules_alone() -> None:
    """Outside of them and the two lists no module has its name as a text."""
    wrong = {
        f"{name}:{node.lineno} has {node.value!r}"
        for name in MODULES
        if not format_of(name) and name not in FORMAT_LISTS
        for node in walked(tree(name))
        if isinstance(node, ast.Constant) and node.value in {*FORMATS, "mailq"} - {"base"}
        if node.value not in OTHER_MEANINGS.get(name, ())
    }
    assert not wrong
