"""The references in the documents are printed from the tables of the code."""

from __future__ import annotations

import pytest

from tests.documents import DOCUMENTS, ROOT, read
from tui.packaging.references import fill_references


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_reference_is_that_of_the_code(document: str, request: pytest.FixtureRequest) -> None:
    """Settings, exit codes and keys of JSON are those that the code has; `--draw` writes them."""
    filled = fill_references(read(document))
    if request.config.getoption("--draw", default=False):
        (ROOT / document).write_text(filled, encoding="utf-8")
    else:
        assert read(document) == filled


def test_each_setting_has_a_meaning() -> None:
    """No setting of any section is without a text."""
    rows = [
        line
        for document in DOCUMENTS
        for table in read(document).split("<!-- settings ")[1:]
        for line in table.partition("<!-- end")[0].splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) > 100
    assert [line for line in rows if line.endswith("|  |")] == []
