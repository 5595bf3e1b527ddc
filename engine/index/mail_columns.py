"""The columns of the index for the fields of a mail: its sender and recipients as a filter searches
them, and their domains as Postfix's qshape counts them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from engine.model import NULL_SENDER, Task

MAX_ADDRESS_CHARS = 65_536
"""Characters of a mail's recipients that the index has and a filter searches: one mail may have
tens of thousands. All are counted."""

MAIL_COLUMNS = "sender, recipients, account, bytes, all_recipients, sender_domain, domains"
"""The columns, as SQL. `domains` is NULL for a task that is no mail, `account` for a mail whose
account is not read yet."""

MailValues: TypeAlias = tuple[str, str, str | None, int | None, int | None, str, str | None]
NO_MAIL: MailValues = ("", "", "", None, None, "", None)
"""The values of a task without these fields."""

NO_DOMAIN = "MAILER-DAEMON"
"""Counts the null sender, as qshape prints it."""


def mail_values(
    sender: str, recipients: Sequence[str], account: str | None, size: int | None
) -> MailValues:
    """The values of `MAIL_COLUMNS`. Recipients are lines between newlines, beside their number
    if some are missing there; the domains have the number of recipients in each, as JSON."""
    number, lines, domains = None, "", None
    if sender or recipients:
        names = [*map(mail_domain, recipients)]
        domains = _one_domain(*names) if len(names) == 1 else _domains_text(Counter(names))
    if recipients:
        lines = "\n".join(("", *recipients, ""))
        if lines.count("\n") > len(recipients) + 1:
            lines = "\n".join(("", *(each.replace("\n", "?") for each in recipients), ""))
    if len(lines) > MAX_ADDRESS_CHARS:
        number, lines = len(recipients), lines[: lines.rfind("\n", 0, MAX_ADDRESS_CHARS) + 1]
        lines = "" if lines == "\n" else lines
    return sender, lines, account, size, number, mail_domain(sender) if sender else "", domains


def mail_domain(address: str) -> str:
    """The domain of an address as qshape counts it: the text after the last @ in lower case,
    without repeated dots or one at an end."""
    return NO_DOMAIN if address in ("", NULL_SENDER) else _fold_domain(address.rpartition("@")[2])


@lru_cache(4096)
def _fold_domain(text: str) -> str:
    # qshape changes bytes: letters that are not of ASCII stay as they are.
    domain = text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    return _OUTER_DOTS.sub(r"\1", domain.replace("..", "."), count=1) if "." in domain else domain


_OUTER_DOTS = re.compile(r"\.?(.+?)\.?$", re.DOTALL)


def _domains_text(domains: Mapping[str, int]) -> str:
    """JSON with a blank before each key: no quote within a key has one."""
    text = json.dumps(domains, ensure_ascii=False, separators=(", ", ":"))
    return text.replace("{", "{ ", 1)


@lru_cache(4096)
def _one_domain(domain: str) -> str:
    return _domains_text({domain: 1})


def domain_key(domain: str) -> str:
    """The text of a domain in `domains`, by which its tasks are found."""
    return f" {json.dumps(domain, ensure_ascii=False)}:"


def split_recipients(lines: str) -> tuple[str, ...]:
    """The recipients in a value of their column."""
    return tuple(lines[1:-1].split("\n")) if lines else ()


def count_searched(task: Task) -> int:
    """The number of a task's recipients that a filter searches."""
    if sum(map(len, task.recipients)) + len(task.recipients) < MAX_ADDRESS_CHARS:
        return len(task.recipients)
    lines = mail_values("", task.recipients, "", None)[1]
    return len(split_recipients(lines))
