"""Table of the Lua scripts of the Python package `bullmq` that change queues, and their texts.

Only the files are used: `bullmq` is found on disk and never imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from engine.store import Unavailable
from engine.values import NamedTuple

INSTALL_HINT = "pip install 'spooldeck[bullmq]'"
"""Installs what this format needs."""


class PackageScript(NamedTuple):
    """One script of the package."""

    file: str
    keys: tuple[str, ...]
    """Keys in order, without the queue's prefix; `{id}` is the job, `{target}` a state."""
    arguments: tuple[str, ...]
    """Arguments in order."""

    def key_names(self, base: str, ident: str = "") -> list[str]:
        """The keys of a queue with the prefix `base`, such as `bull:mails:`."""
        return [base + (key.format(id=ident) if "{" in key else key) for key in self.keys]


def _script(file: str, keys: str, arguments: str) -> PackageScript:
    return PackageScript(file, tuple(keys.split()), tuple(arguments.split()))


_ADD_ARGUMENTS = "packed-job data packed-options"
_LINE = "wait active prioritized events stalled limiter delayed paused meta pc"

PACKAGE_SCRIPTS: Mapping[str, PackageScript] = {
    "addStandardJob": _script(
        "addStandardJob-9.lua",
        "wait paused meta id completed delayed active events marker",
        _ADD_ARGUMENTS,
    ),
    "addDelayedJob": _script(
        "addDelayedJob-6.lua", "marker meta id delayed completed events", _ADD_ARGUMENTS
    ),
    "addPrioritizedJob": _script(
        "addPrioritizedJob-9.lua",
        "marker meta id prioritized delayed completed active events pc",
        _ADD_ARGUMENTS,
    ),
    "removeJob": _script("removeJob-2.lua", "{id} repeat", "id with-children prefix"),
    "reprocessJob": _script(
        "reprocessJob-9.lua",
        "{id} events {target} wait meta active marker prioritized pc",
        "id push removed-field state reset-attempts reset-starts",
    ),
    "promote": _script(
        "promote-9.lua", "delayed wait paused meta prioritized active pc events marker", "prefix id"
    ),
    "moveToActive": _script("moveToActive-11.lua", f"{_LINE} marker", "prefix ms packed-options"),
    "moveToFinished": _script(
        "moveToFinished-14.lua",
        f"{_LINE} {{target}} {{id}} metrics:{{target}} marker",
        "id ms field value target fetch-next prefix packed-options",
    ),
    "moveToDelayed": _script(
        "moveToDelayed-11.lua",
        "marker active prioritized delayed {id} events meta stalled wait limiter pc",
        "prefix ms id token delay-ms skip-attempt packed-fields fetch-next",
    ),
    "retryJob": _script(
        "retryJob-11.lua",
        "active wait paused {id} meta events delayed prioritized pc marker stalled",
        "prefix ms push id token",
    ),
    "moveJobFromActiveToWait": _script(
        "moveJobFromActiveToWait-9.lua",
        "active wait stalled paused meta limiter prioritized marker events",
        "id token job-key",
    ),
    "extendLock": _script("extendLock-2.lua", "{id}:lock stalled", "token ms id"),
    "moveStalledJobsToWait": _script(
        "moveStalledJobsToWait-9.lua",
        "stalled wait active stalled-check meta paused marker events repeat",
        "limit prefix ms throttle-ms",
    ),
    "updateJobScheduler": _script(
        "updateJobScheduler-12.lua",
        "repeat delayed wait paused meta prioritized marker id events pc {id} active",
        "next-ms scheduler data packed-options ms prefix id",
    ),
    "obliterate": PackageScript("obliterate-2.lua", ("meta", ""), ("count", "force")),
    "pause": _script("pause-7.lua", "wait paused meta prioritized events delayed marker", "paused"),
    "resume": _script(
        "pause-7.lua", "paused wait meta prioritized events delayed marker", "resumed"
    ),
}
"""Each script by name."""


@cache
def scripts_folder() -> str:
    """The folder with the Lua files of the installed package.

    Raises:
        Unavailable: the package is not installed.
    """
    from importlib.util import find_spec

    spec = find_spec("bullmq")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(f"BullMQ needs more packages: {INSTALL_HINT}")
    return os.path.join(spec.submodule_search_locations[0], "commands")


@cache
def package_text(name: str) -> str:
    """The Lua text of a script of the table.

    Raises:
        Unavailable: the package is not installed, or is another version.
    """
    file = PACKAGE_SCRIPTS[name].file
    try:
        with open(os.path.join(scripts_folder(), file), encoding="utf-8") as script_file:
            return script_file.read()
    except FileNotFoundError:
        raise Unavailable(f"bullmq has no {file}: {INSTALL_HINT}") from None
