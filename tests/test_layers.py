"""Who may import whom: every module of the engine and the console, held to one table."""

import ast
import importlib.util
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = "add it to LAYERS in tests/test_layers.py, in the layer whose imports it keeps to"

MODEL = {"engine.model"}
SEAM = {
    *("engine.store", "engine.verbs", "engine.policy", "engine.text", "engine.fingerprint"),
    "engine.decode",
}
TOOLS = {
    *("engine.files", "engine.locks", "engine.limits", "engine.metrics", "engine.logtail"),
    *("engine.config", "engine.yamlfile", "engine.checks", "engine.foreign", "engine.mailconf"),
    *("engine.shellconf", "engine.watch", "engine.inotify"),
    *("engine.holder", "engine.lockfile", "engine.breaker", "engine.syslogging"),
    "engine.vitals",
    *("engine.accounts", "engine.mounts", "engine.letter", "engine.webpage"),
    *("engine.order", "engine.delivery", "engine.supervisor"),
}
MIRROR = {
    *("engine.index", "engine.filters", "engine.inspector", "engine.plans", "engine.journal"),
    *("engine.pen", "engine.lines"),
    *("engine.operations", "engine.undo", "engine.deeds", "engine.weights", "engine.controls"),
    *("engine.trash", "engine.sweeping"),
    *("engine.lane", "engine.mirror", "engine.ranks", "engine.scratch"),
    *("engine.ages", "engine.clusters", "engine.reader", "engine.writer", "engine.asking"),
    *("engine.moments", "engine.notes", "engine.patterns", "engine.sifting", "engine.waiting"),
    "engine.matching",
}
SIGNS = {
    *("engine.events", "engine.samenow", "engine.flow", "engine.alerts", "engine.transports"),
    *("engine.mailwatch", "engine.deliveries", "engine.triage"),
    *("engine.recorder", "engine.recording", "engine.rewind", "engine.forecast"),
    *("engine.fates", "engine.pace", "engine.pacing", "engine.runs", "engine.hearing"),
    *("engine.replay", "engine.progress", "engine.following", "engine.tokens"),
    *("engine.gauges", "engine.logbook", "engine.logfile", "engine.logwords", "engine.recent"),
}
"""What is concluded from tasks, metrics and logs together."""
WORK = {"engine.worker", "engine.rescuer"}
ENGINE = {*MODEL, *SEAM, *TOOLS, *MIRROR, *SIGNS}
"""What the console may know: everything but stores, handlers and the worker."""

LAYERS: dict[str, set[str]] = {
    # The packages themselves are a docstring each.
    "engine": set(),
    "tui": set(),
    "themes": set(),
    # What everything else is made of.
    **{name: set() for name in MODEL},
    **dict.fromkeys(SEAM, MODEL | SEAM),
    **dict.fromkeys(TOOLS, MODEL | SEAM | TOOLS),
    # One format each; a store's own package is checked by itself.
    "engine.stores.*": {
        *("engine.store", "engine.verbs", "engine.policy", "engine.model", "engine.files"),
        *("engine.locks", "engine.limits", "engine.text", "engine.stores.*", "engine.decode"),
        "engine.accounts",  # with the owner's rights
        "engine.checks",  # each format checks what is said of it
        "engine.order",
    },
    # What is done for a task.
    "engine.mail.*": {
        *("engine.files", "engine.text", "engine.metrics", "engine.limits", "engine.mailconf"),
        *("engine.model", "engine.logtail", "engine.mail.*", "engine.policy", "engine.webpage"),
        *("engine.accounts", "engine.delivery", "engine.decode", "engine.supervisor"),
    },
    "engine.handlers.*": {
        *("engine.mail.*", "engine.model", "engine.text", "engine.config", "engine.handlers.*"),
        *("engine.accounts", "engine.files", "engine.foreign", "engine.supervisor"),
    },
    **{
        name: {
            *("engine.store", "engine.verbs", "engine.policy", "engine.model", "engine.handlers.*"),
            *("engine.limits", "engine.locks", "engine.metrics", "engine.files", "engine.text"),
            *WORK,
        }
        for name in WORK
    },
    # What the console sees of a store; told of events by the engine's own watch.
    **dict.fromkeys(MIRROR, MODEL | SEAM | MIRROR | {"engine.files", "engine.watch"}),
    **dict.fromkeys(SIGNS, MODEL | SEAM | TOOLS | MIRROR | SIGNS),
    # Throw-away spools, and what is wrong with a place: they know one store by name.
    "engine.demo": {*ENGINE, "engine.stores.*"},
    "engine.doctor.*": {*ENGINE, "engine.stores.*", "engine.doctor.*"},
    # The console knows the Inspector, never a store; the command wires, and may know all.
    "tui.*": {*ENGINE, "tui", "tui.*", "themes"},
    "tui.cli.*": {*ENGINE, *WORK, "engine.demo", "engine.doctor.*"}
    | {"engine.stores.*", "engine.handlers.*", "engine.mail.*"}
    | {"tui", "tui.*", "tui.cli.*", "themes"},
}
"""For each module, or each package with a star, what of the project it may import."""


def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for package in ("engine", "tui", "themes"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imported(path: Path, name: str) -> Iterator[str]:
    """What a module imports, wherever in it: modules by their full names."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(dots, package) if node.level else dots
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield whole if whole in MODULES else source


def ours(name: str) -> set[str]:
    """What a module imports of the project itself."""
    return {other for other in imported(MODULES[name], name) if other in MODULES} - {name}


def layer_of(name: str) -> str | None:
    """The line of the table that a module falls under: its own, or its nearest package's."""
    if name in LAYERS:
        return name
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        starred = ".".join(parts[:end]) + ".*"
        if starred in LAYERS:
            return starred
    return None


def test_every_module_has_its_layer() -> None:
    """Each module has a line in the table that states what it may import."""
    assert [name for name in MODULES if not layer_of(name)] == [], HERE


def test_a_module_imports_what_its_layer_may() -> None:
    """A module imports only what its line in the table allows."""
    wrong = {
        f"{name} ({layer}) imports {other}"
        for name in MODULES
        for layer in [layer_of(name)]
        for other in ours(name)
        if layer and layer_of(other) not in LAYERS[layer]
    }

    assert not wrong


def test_stores_do_not_know_one_another() -> None:
    """A store imports nothing of another store, nor of the module that chooses between them."""
    wrong = {
        f"{name} imports {other}"
        for name in MODULES
        if name.startswith("engine.stores.")
        for store in [".".join(name.split(".")[:3])]
        for other in ours(name)
        if other.startswith("engine.stores") and not f"{other}.".startswith(f"{store}.")
    }

    assert not wrong


FORMATS = ("kannader", "zgb")
NAMING = ("engine.stores", "tui.cli")
"""Where a format may be named: its own package, the table of formats, and what wires them."""


def test_only_stores_and_what_wires_them_name_a_format() -> None:
    """Screens and actions follow tables of states, edges and controls: no other line, not even a
    comment, names a format.
    """
    wrong = {
        f"{path.relative_to(ROOT)}:{number}"
        for name, path in MODULES.items()
        if not f"{name}.".startswith(tuple(f"{at}." for at in NAMING))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(word in line.lower() for word in FORMATS)
    }

    assert not wrong, "add what it needs to know of the format to a table of the store protocol"


def test_the_engine_knows_no_screen() -> None:
    """No module of the engine imports textual, rich or the console, not even lazily."""
    wrong = {
        f"{name} imports {other}"
        for name, path in MODULES.items()
        if name.split(".")[0] == "engine"
        for other in imported(path, name)
        if other.split(".")[0] in {"textual", "rich", "tui", "themes"}
    }

    assert not wrong


def test_nobody_imports_in_a_circle() -> None:
    """No module imports, by however many steps, a module that imports it."""
    try:
        TopologicalSorter({name: ours(name) for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_table_names_only_its_own_lines() -> None:
    """A line may stand for a module that is yet to come; what may be imported has a line."""
    named = {other for may in LAYERS.values() for other in may}

    assert named <= set(LAYERS), "every name that may be imported has a line of its own"
