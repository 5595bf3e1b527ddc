"""The table of formats, and the `Setup` of a place in any of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from engine.config import queue_config
from engine.config.place_address import Address, BadAddress, is_url, parse_address, places_folder
from engine.config.queue_config import Config, Queue, queue_settings_for
from engine.formats.bullmq import detect as bullmq
from engine.formats.kannader import detect as kannader
from engine.formats.nftban import detect as nftban
from engine.formats.zgb import detect as zgb
from engine.formats.zmailer import detect as zmailer
from engine.policy import retries_of
from engine.schedules import NO_RETRY, fixed
from engine.text.safe import safe_line
from tui.cli.setup.errors import EX_USAGE, fail
from tui.cli.setup.setup import Format, Setup, deferred

FORMATS: dict[str, Format] = {
    "kannader": Format(
        "a Kannader spool",
        is_here=kannader.is_spool,
        open_store=deferred("tui.cli.formats.kannader.opening:open_spool"),
        retry_policy=deferred("tui.cli.formats.kannader.opening:retry_policy"),
        commands="kannader",
        parse_settings=deferred("engine.formats.kannader.settings:parse_settings"),
        arrange=deferred("tui.cli.formats.kannader.opening:arrange_folders"),
        state_folder=lambda at, queue: f"{at.text}/.spooldeck",
        work_command=("kannader", "work"),
        why_unworkable=lambda settings: settings.work_refusal,
        claims="link renames",
        complete_place="formats.kannader.commands:complete_place",
        doctor="formats.kannader.doctor:check_spool",
        demo=dict.fromkeys(("", "redis", "zmailer"), "engine.formats.kannader.demo:DemoMailSpool"),
    ),
    "zgb": Format(
        "a ZGB mail queue",
        is_here=zgb.is_database,
        suffixes=zgb.SUFFIXES,
        init_command="zgb init",
        open_store=deferred("tui.cli.formats.zgb.opening:open_queue"),
        retry_policy=deferred("tui.cli.formats.zgb.opening:retry_policy"),
        commands="zgb",
        parse_settings=deferred("engine.formats.zgb.place:parse_settings"),
        arrange=deferred("tui.cli.formats.zgb.opening:arrange_folders"),
        state_folder=deferred("tui.cli.formats.zgb.opening:state_folder"),
        work_command=("zgb", "work", "--loop"),
        why_unworkable=lambda settings: settings.work_refusal,
        mail_parts=("transports",),
        complete_place="formats.zgb.commands:complete_place",
        doctor="formats.zgb.doctor:check_queue",
        demo=dict.fromkeys(("", "redis", "zmailer"), "engine.formats.zgb.demo:DemoRegistrations"),
    ),
    "bullmq": Format(
        "a server of BullMQ queues",
        is_here=bullmq.is_server,
        open_store=deferred("tui.cli.formats.bullmq.opening:open_server"),
        # A job has its own attempts and delays.
        retry_policy=lambda setup: retries_of(NO_RETRY, is_exact=True),
        commands="bullmq",
        parse_settings=deferred("engine.formats.bullmq.place:parse_settings"),
        sections={
            "federation": deferred("engine.formats.bullmq.federation.settings:parse_federation")
        },
        work_command=("bullmq", "work"),
        is_delivering=True,
        no_destinations="",
        why_unworkable=lambda settings: "",
        claims="job locks",
        complete_place="formats.bullmq.watch:complete_place",
        probe_job="formats.bullmq.federation:run_probe_now",
        complete_registry="formats.bullmq.federation:with_shared_tables",
        doctor="formats.bullmq.doctor:check_server",
        demo={
            "redis": "engine.formats.bullmq.demo:DemoJobs",
            "federation": "engine.formats.bullmq.federation.demo:DemoDeliveries",
        },
        check_demo=deferred("engine.formats.bullmq.demo:check_demo"),
    ),
    "zmailer": Format(
        "a ZMailer spool",
        is_here=zmailer.is_spool,
        open_store=deferred("tui.cli.formats.zmailer.spool:open_spool"),
        # The clause of its scheduler has the retries.
        retry_policy=lambda setup: retries_of(NO_RETRY, is_exact=True),
        commands="zmailer",
        parse_settings=deferred("engine.formats.zmailer.environment:parse_settings"),
        state_folder=lambda at, queue: f"{at.text}/.spooldeck",
        why_unworkable=lambda settings: "the agents of its scheduler deliver",
        claims="tag bytes",
        task_folders=("transport", "queue"),
        complete_place="formats.zmailer.watch:complete_place",
        doctor="formats.zmailer.doctor:check_spool",
        demo={"zmailer": "engine.formats.zmailer.demo:DemoPostoffice"},
    ),
    "mailq": Format(
        "a ZMailer scheduler",
        is_here=zmailer.is_mailq,
        open_store=deferred("tui.cli.formats.zmailer.mailq_place:open_mailq"),
        # The clause of its scheduler has the retries; the limit is an age.
        retry_policy=lambda setup: retries_of(fixed(0.0)),
        commands="zmailer",
        no_destinations="the scheduler has the state of its hosts",
        why_unworkable=lambda settings: "the agents of its scheduler deliver",
        claims="agents",
        complete_place="formats.zmailer.watch:complete_mailq_place",
    ),
    "nftban": Format(
        "an NFTBan queue",
        is_here=lambda at: not at.is_url,
        has_queue=nftban.has_queue_folders,
        init_command="init",
        open_store=deferred("tui.cli.formats.nftban.spool:open_spool"),
        retry_policy=lambda setup: queue_config.retry_policy(setup.queue),
        commands="queue",
        arrange=lambda queue, at, state_folder: queue,
        state_folder=lambda at, queue: f"{os.path.dirname(queue.pending)}/.spooldeck",
        work_command=("queue", "work"),
        why_unworkable=lambda settings: "",
        make_queue="formats.nftban.spool:make_queue",
        lock="formats.nftban.spool:examine_lock",
        mail_parts=("transports", "mail spool"),
        no_destinations="",
        complete_place="formats.nftban.spool:complete_place",
        doctor="formats.nftban.doctor:check_queue",
        demo=dict.fromkeys(
            ("", "redis", "federation", "zmailer"), "engine.formats.nftban.demo:DemoQueues"
        ),
        demo_text="formats.nftban.demo_text:run_as_text",
    ),
}
"""The formats by name. The first that fits a place is used; the last takes every path that the
others leave, so that its error says what was expected.
"""

DEFAULT_FORMAT = "nftban"
"""The format of a path that no other one fits."""


def demo_formats(option: str) -> list[Format]:
    """The formats with places in the demo, that of `DEFAULT_FORMAT` first."""
    names = sorted(FORMATS, key=lambda name: name != DEFAULT_FORMAT)
    return [FORMATS[name] for name in names if option in FORMATS[name].demo]


def demo_options() -> list[str]:
    """The options that choose the formats of the demo, which `DEFAULT_FORMAT` is always one of; of
    several options the last one is used.
    """
    return [option for option in FORMATS[DEFAULT_FORMAT].demo if option]


def setup_for(
    config: Config, place: str, environ: Mapping[str, str], words: tuple[str, ...] = ()
) -> Setup:
    """The setup of a place, from command line and configuration; "" is the configured place.

    Raises:
        ConfigError: a value is invalid.
        CommandError: the place is a URL that cannot be used.
    """
    _check_settings(config)
    queue = queue_settings_for(config, "" if is_url(place) else place, environ)
    return _setup(config, queue, place, environ, words)


def setup_despite(
    fault: str, path: str | None, place: str, environ: Mapping[str, str], words: tuple[str, ...]
) -> Setup:
    """The setup of a place with what is valid of a configuration that has a `fault`; `path` is its
    file, as for `load_config`.

    Raises:
        CommandError: the place is a URL that cannot be used.
    """
    config = queue_config.load_valid_part(path, environ)
    queue = queue_settings_for(config, "" if is_url(place) else place, environ, is_lenient=True)
    return _setup(config, queue, place, environ, words)._replace(fault=fault)


def _setup(
    config: Config,
    queue: Queue,
    place: str,
    environ: Mapping[str, str],
    words: tuple[str, ...],
) -> Setup:
    address = find_address(config, place) if place else Address(queue.root)
    name = detect_format(address)
    form = FORMATS[name]
    settings = _settings(config, name)
    state_folder = (
        places_folder(address, environ, os.geteuid())
        if form.state_folder is None
        else form.state_folder(address, queue)
    )
    queue = form.arrange(queue, address, state_folder)
    return Setup(
        config,
        queue,
        name,
        format=form,
        address=address,
        state_folder=state_folder,
        settings=settings,
        words=words,
    )


def detect_format(address: Address) -> str:
    """The name of the format of a place.

    Raises:
        CommandError: no format has URLs like this one.
    """
    format_name = next((name for name, form in FORMATS.items() if form.is_here(address)), "")
    if not format_name:
        fail(EX_USAGE, f"{address.text}: no format with URLs that begin with {address.scheme}://")
    return format_name


def is_format_url(text: str) -> bool:
    """True for a URL that a format has places at."""
    return is_url(text) and any(form.is_here(Address(text)) for form in FORMATS.values())


def has_file_suffix(path: str) -> bool:
    """True if a path has the suffix of a format whose places are files; the only hint if it does
    not exist.
    """
    return any(_has_suffix(path, form) for form in FORMATS.values())


def _has_suffix(path: str, form: Format) -> bool:
    return path.lower().endswith(form.suffixes)


def has_queue(path: str) -> bool:
    """True if a folder has a queue of a format that is found by its folders."""
    return any(form.has_queue(path) for form in FORMATS.values())


MAX_NEIGHBOURS = 1000
"""Names in a folder that are compared with one that is missing; a spool may have a million."""

SIMILARITY = 0.75
"""A name with two letters exchanged in five has 0.8 (difflib)."""


def describe_missing(path: str) -> str:
    """Say that a place does not exist, and name the one that has a similar name beside it, or else
    the command that makes it.
    """
    import shlex  # both only on an error: they slow the start
    from difflib import get_close_matches

    safe_path = safe_line(path)
    form = next((f for f in FORMATS.values() if _has_suffix(path, f)), FORMATS[DEFAULT_FORMAT])
    what = "file" if form.suffixes else "folder"
    folder, name = os.path.split(path.rstrip("/"))
    neighbours: list[str] = []
    with suppress(OSError), os.scandir(folder or ".") as entries:
        first_entries = islice(entries, MAX_NEIGHBOURS)
        neighbours += [
            entry.name for entry in first_entries if entry.is_dir() is (what == "folder")
        ]
    if close := get_close_matches(name, neighbours, 1, SIMILARITY):
        meant = safe_line(os.path.join(folder, close[0]))
        return f"{safe_path}: no such {what}; did you mean {meant}?"
    return (
        f"{safe_path}: no such {what} (spooldeck {form.init_command} {shlex.quote(path)} makes it)"
    )


CONTRACT_VARIABLE = "SPOOLDECK_CONTRACT"
"""Set by the shell functions of the contract: their queue is NFTBan's, in spite of places that the
configuration has."""


def default_places(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The places of a command that names none, the first if it takes one; () for the queue that
    `queue.root` and NFTBan's variables name, as a caller that sets NFTBAN_DATA_DIR expects.

    Raises:
        ConfigError: `queue.root` is another place, which would be ignored.
    """
    if environ.get("NFTBAN_DATA_DIR") or environ.get(CONTRACT_VARIABLE):
        return ()
    if root := queue_config.root_beside_places(config):
        raise queue_config.ConfigError(
            f"queue.root: {safe_line(root)} is not among `places`, which commands that name no "
            "place use: add it there, or name a place"
        )
    return tuple(place.text for place in config.places)


def default_place(config: Config, environ: Mapping[str, str], *, for_mail: bool = False) -> str:
    """The place of a command that takes one and names none; "" for the queue of the settings.

    `for_mail`: the first whose workers send by our transports.

    Raises:
        ConfigError: as `default_places`.
    """
    for place in default_places(config, environ):
        form = FORMATS[detect_format(find_address(config, place))]
        if not for_mail or form.mail_parts:
            return place
    return ""


def find_address(config: Config, place: str) -> Address:
    """The address of a place, with the password of the same URL in `places`, if it has one.

    Raises:
        CommandError: the URL cannot be used.
    """
    known = {address.text: address for address in config.places}
    address = _parse(place)
    return known.get(address.text, address)


def require_path(place: str) -> None:
    """Refuse a URL where a folder or file is made.

    Raises:
        CommandError: it is a URL.
    """
    if is_url(place):
        fail(EX_USAGE, f"{_parse(place).text}: expected a path, not a URL")


def is_same_place(one: str, other: str) -> bool:
    """True if two texts name the same place."""
    return _parse(one).text == _parse(other).text


def _parse(text: str) -> Address:
    try:
        return parse_address(text)
    except BadAddress as error:
        fail(EX_USAGE, f"{text.partition('://')[0]}://...: {error}")


def _check_settings(config: Config) -> None:
    for name, (_, at) in config.stores.items():
        if name not in FORMATS:
            raise at.error(f"no such format, expected one of {', '.join(FORMATS)}")
        _settings(config, name)
    for form in FORMATS.values():
        for name, check in form.sections.items():
            if (section := getattr(config, name)) is not None:
                check(section)


def _settings(config: Config, name: str) -> Any:
    from engine.config.validators import ConfigLocation

    section, at = config.stores.get(name, (None, ConfigLocation(config.path, f"stores.{name}")))
    return FORMATS[name].parse_settings(section, at)
