"""The files of a package beside its code: manual pages and completion scripts.

`python -m tui.packaging.share_files FOLDER` writes them below FOLDER as in a prefix such as /usr:
share/man, share/bash-completion, share/zsh and share/fish.

Manual pages are Markdown from the command table, MANUAL.md at the top and those beside the code of
each format and subject, made into roff by pandoc (https://pandoc.org), which comes with the package
"pypandoc_binary". Its writer for manual pages makes man(7) macros, and tbl(1) tables."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import Action, ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from engine.values import NamedTuple
from engine.version import VERSION
from tui.cli import common_options
from tui.cli.command_help import COMMAND_HELP
from tui.cli.commands import COMMAND_WORDS, CommandWord
from tui.cli.completion import make_script

TABLE_COLUMNS = 62
"""Width of the cells of a table on a terminal of 80 columns, without margins and gaps."""


class ManPage(NamedTuple):
    """One page; its name without the section is the title."""

    name: str
    section: int
    summary: str
    groups: Sequence[str]
    """The commands on it: groups, or "" for all that are in no group."""
    sections: Mapping[str, str]
    """What follows, by heading."""


_GENERAL = ("Verbs on the command line", "Exit codes")
_CONSOLE = ("Words", "The console", "Keys", "Filters", "Plans", "Practice", "Formats", "Promises")
_CONFIGURATION = ("Configuration", "Settings")
"""Sections of MANUAL.md at the top."""

_GROUPS = {"work": "queue", "programs": "mta"}
"""Folders with a MANUAL.md about a group of commands of another name."""


def list_pages(source: Path) -> Iterator[ManPage]:
    """All pages: the command, each of its groups, the configuration, the keys of JSON, the console,
    and each MANUAL.md beside code that is about no group. Raises KeyError: MANUAL.md at the top
    has no such heading."""
    manual = split_sections(_read(source / "MANUAL.md"))
    documents = {
        path.parent.name: _read(path) for path in sorted((source / "engine").rglob("MANUAL.md"))
    }
    of_group = {_GROUPS.get(name, name): split_chapters(documents[name]) for name in documents}
    summary = "operator console for mail and task queues"
    yield ManPage("spooldeck", 1, summary, ("",), _pick(manual, _GENERAL))
    for word in COMMAND_WORDS:
        if len(word.path) == 1 and not word.function:
            (group,) = word.path
            sections = of_group.pop(group, {}) | _pick(manual, ("Exit codes",))
            yield ManPage(f"spooldeck-{group}", 1, word.summary, (group,), sections)
    settings = _pick(manual, _CONFIGURATION)
    for document in documents.values():
        chapters = split_chapters(document)
        settings |= _pick(chapters, [name for name in chapters if name.startswith("Settings")])
    yield ManPage("spooldeck.yaml", 5, "configuration of spooldeck", (), settings)
    keys = split_chapters(_read(source / "tui/cli/JSON.md"))
    yield ManPage("spooldeck-json", 5, "what the option --json of spooldeck prints", (), keys)
    summary = "screens, keys and filters of spooldeck"
    yield ManPage("spooldeck-console", 7, summary, (), _pick(manual, _CONSOLE))
    for name, chapters in of_group.items():
        summary = documents[name].partition("\n")[0].lstrip("# ")
        yield ManPage(f"spooldeck-{name}", 7, summary, (), chapters)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _pick(sections: Mapping[str, str], headings: Iterable[str]) -> dict[str, str]:
    return {heading: sections[heading] for heading in headings}


def write_pages(source: Path, prefix: Path) -> None:
    """Write the manual pages of a source tree below `prefix`. Raises ImportError: pypandoc is
    missing."""
    import pypandoc

    pages = list(list_pages(source))
    for page in pages:
        others = [one for one in pages if one is not page]
        roff = pypandoc.convert_text(
            page_markdown(page, others),
            to="man",
            format="markdown-smart-tex_math_dollars-citations",
            extra_args=["--standalone", "--syntax-highlighting=none"],
        )
        path = prefix / f"share/man/man{page.section}/{page.name}.{page.section}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_without_warnings(roff), encoding="utf-8")


def _without_warnings(roff: str) -> str:
    """Change what mandoc and groff warn about: an escaped date, .PP after .SH,
    and tables that are wide, or whose cells cannot be justified."""
    roff = re.sub(r"(?m)^\.TH .*", lambda line: re.sub(r"(\d)\\-(?=\d)", r"\1-", line[0]), roff)
    roff = re.sub(r"(?m)^(\.S[HS] .*\n)\.PP\n", r"\1", roff)
    roff = roff.replace("\n.TS\n", "\n.na\n.TS\n").replace("\n.TE\n", "\n.TE\n.ad\n")
    share = TABLE_COLUMNS / _PANDOC_TABLE_COLUMNS
    return re.sub(r"lw\(([\d.]+)n\)", lambda cell: f"lw({float(cell[1]) * share:.1f}n)", roff)


_PANDOC_TABLE_COLUMNS = 70
"""pandoc makes each table this wide (src/Text/Pandoc/Writers/Man.hs)."""


def page_markdown(page: ManPage, others: Sequence[ManPage]) -> str:
    """The Markdown of a page, for pandoc."""
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    lines = [
        f"% {page.name.upper()}({page.section}) spooldeck {VERSION} | User Commands",
        "% the spooldeck authors",
        f"% {day}",
        f"# NAME\n\n{page.name} - {_escape(page.summary)}\n",
    ]
    for group in page.groups:
        lines += _commands(group)
    for heading, text in page.sections.items():
        lines.append(f"# {heading.upper()}\n\n{_fit_tables(_without_links(text))}\n")
    if page.section in (1, 5):
        lines.append(_FILES)
    named = ", ".join(f"**{one.name}**({one.section})" for one in others)
    lines.append(f"# SEE ALSO\n\n{named}\n")
    return "\n".join(lines)


_FILES = """\
# FILES

*./spooldeck.yaml*, *~/.config/spooldeck/config.yaml*, */etc/spooldeck/config.yaml*
:   the configuration: the first that exists is read

*~/.local/state/spooldeck*, for root */var/lib/spooldeck*
:   journals and notes of places that are URLs
"""


def split_sections(manual: str) -> dict[str, str]:
    """The text of each section of a Markdown document by its heading. A section includes those
    below it, the next level as level 2. Lines in code blocks are no headings."""
    found: dict[str, list[str]] = {}
    open_headings: list[tuple[int, str]] = []
    is_code = False
    for line in manual.splitlines():
        is_code ^= line.startswith("```")
        match = None if is_code else re.match("(#+) (.*)", line)
        if match:
            level = len(match[1])
            open_headings = [one for one in open_headings if one[0] < level]
        for above, heading in open_headings:
            text = f"{'#' * (level - above + 1)} {match[2]}" if match else line
            found[heading].append(text)
        if match:
            open_headings.append((level, match[2]))
            found[match[2]] = []
    return {heading: "\n".join(lines).strip() for heading, lines in found.items()}


def split_chapters(document: str) -> dict[str, str]:
    """The sections of level 2 of a document, by heading."""
    (title, *_) = sections = split_sections(document)
    headings = [line[3:] for line in sections[title].splitlines() if line.startswith("## ")]
    return {heading: sections[heading] for heading in headings}


def _without_links(markdown: str) -> str:
    """The text of each link to another document: a page has no folder beside it."""
    return re.sub(r"\[([^]\n]+)\]\((?!https?:)[^)\s]+\)", r"\1", markdown)


def _fit_tables(markdown: str) -> str:
    """Make a table of two columns a definition list; give others columns as wide as their cells."""
    return re.sub(r"(?m)(?:^\|.*\n?)+", lambda table: _fit_table(table[0].splitlines()), markdown)


def _fit_table(lines: Sequence[str]) -> str:
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines]
    if len(rows[0]) == len(_TERM_AND_TEXT):
        return "".join(f"{term.strip()}\n:   {text.strip()}\n\n" for term, text in rows[2:])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    ruler = "|".join("-" * min(width, TABLE_COLUMNS) for width in widths)
    return "\n".join((lines[0], f"|{ruler}|", *lines[2:], ""))


_TERM_AND_TEXT = ("term", "text")


def _commands(group: str) -> Iterator[str]:
    words = [
        word
        for word in COMMAND_WORDS
        if word.function and (word.path[0] == group if group else len(word.path) == 1)
    ]
    yield "# SYNOPSIS\n"
    yield "\n".join(f"| {_usage(word)}" for word in words)
    yield "\n# COMMANDS\n"
    for word in words:
        yield f"## {' '.join(('spooldeck', *_typed_words(word)))}\n\n{_escape(word.summary)}\n"
        for action in _actions(word):
            if action.help and (action.dest, action.metavar) != ("place", "PLACE"):
                yield f"{_names(action)}\n:   {_escape(action.help)}\n"
    if not group:
        yield "# GROUPS OF COMMANDS\n"
        for word in COMMAND_WORDS:
            if len(word.path) == 1 and not word.function:
                yield f"**spooldeck-{word.path[0]}**(1)\n:   {_escape(word.summary)}\n"
    yield "# OPTIONS OF ALL COMMANDS\n"
    yield "\\[*PLACE*\\]\n:   the queue that the command is for; default: as configured\n"
    for action in common_options()._actions:
        yield f"{_names(action)}\n:   {_escape(action.help or '')}\n"
    yield "**\\-\\-help**\n:   describe the command\n"
    rows = (COMMAND_HELP.get(" ".join(word.path)) for word in words)
    yield "# EXAMPLES\n"
    yield "".join(f"    {row.example}\n" for row in rows if row)


def _typed_words(word: CommandWord) -> tuple[str, ...]:
    return () if word.path == ("console",) else word.path


def _actions(word: CommandWord) -> list[Action]:
    """The arguments and options of a command, without those of all commands."""
    parser = ArgumentParser(add_help=False)
    return [parser.add_argument(*names, **options) for names, options in word.arguments]


def _usage(word: CommandWord) -> str:
    parts = [f"**{' '.join(('spooldeck', *_typed_words(word)))}**"]
    for action in _actions(word):
        text = _names(action)
        parts.append(text if action.required or not action.option_strings else f"\\[{text}\\]")
    return " ".join(parts)


def _names(action: Action) -> str:
    """An argument or option as it is typed: the option bold, its value in italics."""
    value = "{" + ",".join(action.choices) + "}" if action.choices else str(action.metavar or "")
    text = f"*{_escape(value)}*" if value else ""
    if action.option_strings:
        return f"**{_escape(action.option_strings[0])}** {text}".strip()
    shape = {"?": "\\[{}\\]", "*": "\\[{}...\\]", "+": "{}...", "...": "{}..."}
    return shape.get(str(action.nargs), "{}").format(text)


def _escape(text: str) -> str:
    """A text as Markdown that is displayed as it is."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


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


def write_completions(prefix: Path) -> None:
    """Write the completion scripts below `prefix`. Raises ImportError: shtab is missing."""
    for shell, name in COMPLETIONS.items():
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make_script(shell), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(__file__).parents[2], Path(sys.argv[1]))
    write_completions(Path(sys.argv[1]))
