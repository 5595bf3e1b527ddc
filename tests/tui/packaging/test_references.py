"""The references in the documents are printed from the tables of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from engine.config.validators import ConfigLocation
from engine.schedules import Schedule
from tests.documents import DOCUMENTS, ROOT, read
from tests.tables import each
from tui.packaging.references import Setting, fill_references, settings_of


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_reference_is_that_of_the_code(document: str, request: pytest.FixtureRequest) -> None:
    """Settings, exit codes and keys of JSON are those that the code has; `--draw` writes them."""
    filled = fill_references(read(document))
    if request.config.getoption("--draw", default=False):
        (ROOT / document).write_text(filled, encoding="utf-8")
    else:
        assert read(document) == filled


SETTINGS = [
    setting
    for document in DOCUMENTS
    for words in re.findall(r"<!-- settings (.*?) -->", read(document))
    for setting in settings_of(*words.split())
]


@each("setting", SETTINGS)
def test_each_setting_has_a_meaning_and_takes_its_default(setting: Setting) -> None:
    """A text of its own, which does not repeat what it takes; also "" is taken if it has that."""
    assert setting.meaning
    words = f"{setting.expected} {setting.meaning}".replace(".", "").lower().split()
    parts = [*zip(words, words[1:], words[2:], strict=False)]
    assert len({*parts}) == len(parts)
    at = ConfigLocation("f", setting.name, base="/")
    if setting.default is not None:
        assert setting.check(as_yaml(setting.default), at) == setting.default
    if '""' in setting.meaning:
        assert setting.check("", at) == ""


def as_yaml(value: object) -> object:
    """The value of a setting as a file has it."""
    if hasattr(value, "_asdict") and not isinstance(value, Schedule):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: as_yaml(part) for key, part in value.items()}
    if isinstance(value, tuple) and not isinstance(value, Schedule):
        return [as_yaml(part) for part in value]
    return str(value) if isinstance(value, Schedule) else value
