"""What is missing here is seen: at home as a skip, on CI as a failure."""

from pathlib import Path

import pytest

from tests.mail.programs import needs

NOWHERE = "no-program-has-this-name"


def test_a_missing_program_is_skipped_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The skip says which program it was."""
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match=f"{NOWHERE} is not installed"):
        needs(NOWHERE)


def test_a_missing_program_fails_on_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where CI is set nothing is skipped for want of a program."""
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match=f"{NOWHERE} is not installed"):
        needs(NOWHERE)


@pytest.mark.parametrize("name", ["curl", "msmtp", "bsd-mailx", "postfix", "openssl"])
def test_ci_installs_what_tests_need(name: str) -> None:
    """`.ci/run` names each of them, so that it is there."""
    run = Path(__file__).parents[2] / ".ci" / "run"

    assert f"missing+=({name})" in run.read_text()
