"""The documents: links lead somewhere, commands exist, references are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from engine.config.queue_config import load_config
from engine.formats.known_formats import FORMATS
from tests.bench.bench import ROWS, replace_rows
from tests.documents import DOCUMENTS, ROOT, Printed, anchors, printed_commands, read, without_code
from tests.tables import each
from tui import cli
from tui.cli import common_options
from tui.cli.commands import COMMAND_WORDS, COMMANDS

COMMAND_LINES = [
    each
    for document in DOCUMENTS
    if document != "CHANGELOG.md"
    for each in printed_commands(document, "spooldeck")
]
OPTIONS = {
    " ".join(word.path): {name for names, _ in word.arguments for name in names}
    for word in COMMAND_WORDS
}
FORMAT_CHAPTERS = (
    "In ten lines",
    "Instead of",
    "States",
    "Exactness",
    "Rights",
    "Getting data back without spooldeck",
)


@each("document", DOCUMENTS)
def test_each_link_leads_to_a_file_and_a_heading(document: str) -> None:
    """The file of each link exists, and so does its anchor."""
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(read(document))):
        path, _, anchor = link.partition("#")
        if link.startswith(("http:", "https:")):
            continue
        target = (ROOT / document).parent / path if path else ROOT / document
        name = target.resolve().relative_to(ROOT).as_posix()
        if not target.exists() or (anchor and anchor not in anchors(name)):
            wrong.append(link)
    assert not wrong


def test_each_format_has_a_page() -> None:
    """The page of each format, which the manual names, has what an operator must know of it."""
    for name in {type(form).__module__.split(".")[2] for form in FORMATS.values()}:
        page = f"engine/formats/{name}/MANUAL.md"
        chapters = re.findall(r"(?m)^## (.*)$", read(page))
        assert [one for one in FORMAT_CHAPTERS if not any(one in each for each in chapters)] == []
        assert f"({page})" in read("MANUAL.md")


def test_the_manual_names_the_commands_for_several_places() -> None:
    """It names each command that opens all places that were found, if none is named."""
    names = [
        f"`{' '.join(word.path)}`" for word in COMMAND_WORDS if ("places",) in dict(word.arguments)
    ]
    *others, last = [name for name in names if name != "`console`"]
    text = " ".join(read("MANUAL.md").split())
    assert f"{', '.join(others)} and {last} take all that the console opens" in text


TEN_LINES = [document for document in DOCUMENTS if "\n## In ten lines\n" in read(document)]


@each("document", TEN_LINES)
def test_ten_lines_are_commands(document: str) -> None:
    """The chapter `In ten lines` is a block of at most ten commands, each with its arguments."""
    chapter = read(document).partition("\n## In ten lines\n")[2].partition("\n## ")[0]
    lines = chapter.partition("\n```\n")[2].partition("\n```")[0].splitlines()
    printed = {each.text: each for each in printed_commands(document, "spooldeck")}
    assert 5 <= len(lines) <= 10
    assert not any(printed[re.split(r"\s+#", line)[0]].is_usage for line in lines)


def test_manual_and_paragraphs_are_short() -> None:
    """MANUAL.md has at most 40 kB: a subject of its own has a page beside its code; a paragraph has
    at most 14 lines: what is longer is a list."""
    assert len(read("MANUAL.md").encode()) <= 40_000
    for document in DOCUMENTS:
        for part in re.split(r"\n\s*\n|\n(?=- |\d\. |\||#)", without_code(read(document))):
            assert part.count("\n") < 14, (document, part[:80])


@each("printed", COMMAND_LINES)
def test_each_command_in_a_document_exists(printed: Printed) -> None:
    """Our own parser takes each command line, and knows each word of a table of commands."""
    if printed.is_usage:
        check_usage(printed.text)
        return
    text = re.split(r" [>|] ", printed.text)[0]
    words = [re.sub("^N$", "1", word) for word in shlex.split(text)[1:]]
    if words[:1] in ([], ["help"]):
        return
    if words[:1] and words[0] not in COMMANDS:
        assert words[0].isupper() or "/" in words[0], "a place"
        words = ["console", *words]
    _, left = cli.make_parser(words).parse_known_args(words)
    assert left == []


def check_usage(text: str) -> None:
    """Check the alternatives and options of a line such as `spooldeck a b [X] | c (--d | --e)`."""
    flat = re.sub(r"\([^)]*\)|\[[^]]*\]", "", text)
    path: list[str] = []
    known = set[str]()
    for number, alternative in enumerate(re.split(r" \| |(?<=\w)\|(?=\w)", flat)):
        words = alternative.split()[1:] if number == 0 else alternative.split()
        above = [] if number == 0 else path[:-1]
        found = [above + words[:n] for n in (3, 2, 1) if " ".join(above + words[:n]) in OPTIONS]
        choices = {
            choice
            for each in COMMAND_WORDS
            if list(each.path) == path
            for _, options in each.arguments
            for choice in options.get("choices", ())
        }
        is_value = not words or words[0].isupper() or words[0] in {*choices, "help"}
        assert found or is_value, alternative
        if found:
            path = found[0]
        known |= OPTIONS.get(" ".join(path or ["console"]), set())
    known |= {name for action in common_options()._actions for name in action.option_strings}
    assert {*re.findall(r"(?<![\w-])--[a-z][\w-]*", text)} <= known


def test_each_target_of_make_in_a_document_exists() -> None:
    """The Makefile has it."""
    makefile = (ROOT / "Makefile").read_text()
    targets = {*re.findall(r"(?m)^([a-z-]+)(?= ?[a-z]*:)", makefile), "deb"}
    named = {
        each.text.split()[1]
        for document in DOCUMENTS
        for each in printed_commands(document, "make")
        if document != "CHANGELOG.md"
    }
    assert named <= targets


YAML = [block for one in DOCUMENTS for block in re.findall(r"(?ms)^```yaml$(.*?)^```$", read(one))]


@each("block", YAML)
def test_each_configuration_in_a_document_is_valid(block: str, tmp_path: Path) -> None:
    """Each block of YAML is a configuration that is accepted, also by the formats that it names."""
    path = tmp_path / "spooldeck.yaml"
    path.write_text(block)
    config = load_config(str(path), {})
    for form in FORMATS.values():
        form.check_config(config)
        if form.name in config.stores:
            form.parse_settings(*config.stores[form.name])


def test_the_benchmarks_are_those_of_the_table() -> None:
    """Each row that `make bench` measures, and no other, has figures there, with a run."""
    lines = [line.split("|") for line in read("BENCHMARKS.md").splitlines() if line[:2] == "| "]
    figures = [cells for cells in lines if len(cells) == 10 and cells[1].strip() != "row"]
    runs = {cells[1].strip() for cells in lines if len(cells) == 4}
    assert {cells[1].strip() for cells in figures} == {row.name for row in ROWS}
    assert {cells[8].strip() for cells in figures} == runs - {"run"}


def test_the_figures_of_one_row_are_replaced() -> None:
    """A run that measures one row replaces its figures alone; a run without figures is removed."""
    old = read("BENCHMARKS.md")
    cells = ("envelope", "a thing", "2.00 us", "1.00 floor", "2.00", "1.3", "MISSED")
    once = replace_rows(old, "envelope", [cells], "2027-01-01 00:00Z; a machine; commit 1")
    twice = replace_rows(once, "envelope", [cells], "2027-01-02 00:00Z; a machine; commit 2")
    changed = {*twice.splitlines()} ^ {*old.splitlines()}
    assert (
        "| envelope | a thing | 2.00 us | 1.00 floor | 2.00 | 1.3 | MISSED | 2027-01-02 00:00Z |"
        in changed
    )
    assert "| 2027-01-02 00:00Z | a machine; commit 2 |" in changed
    assert all("envelope" in line or "2027-01-02" in line for line in changed)
