"""What ages and groups are counted from: tasks, or by destination the open recipients of mails."""

from __future__ import annotations

from engine.index.filter_language import ACCOUNT_FIELD
from engine.index.reader import Reader
from engine.values import NamedTuple

TASKS, RECIPIENTS = "tasks", "recipients"
UNITS = (TASKS, TASKS, RECIPIENTS, f"{RECIPIENTS} and other tasks")
"""What is counted, by a number: 1 if tasks that are no mails are, and 2 if recipients are."""


class CountedRows(NamedTuple):
    """SQL to group tasks by a column, and to count them."""

    name: str
    """The name of a row's group."""
    source: str
    """What is after FROM: a table, and the condition of its rows."""
    weight: str = ""
    """How often a row counts; "": once."""
    unit: str = "1"
    """Aggregate: what the rows of a group are, as the numbers of `UNITS` combined by `|`."""

    def count_where(self, condition: str) -> str:
        """Aggregate: the count of the rows that meet a condition."""
        if self.weight:
            return f"CAST(total(CASE WHEN {condition} THEN {self.weight} END) AS INT)"
        return f"count(CASE WHEN {condition} THEN 1 END)"


def counted_rows(reader: Reader, name: str, condition: str, how: str) -> CountedRows:
    """The rows that meet a condition, to be grouped by the column `name`; `how` is the index to
    use. By destination, a mail has a row for each domain of its open recipients, else none; by
    account, a mail whose account is not read has none."""
    if name == ACCOUNT_FIELD:
        condition += f" AND {name} IS NOT NULL"
    if name != "domain" or not reader.has_mail():
        return CountedRows(name, f"task {how} WHERE {condition}")
    mails = f"(SELECT * FROM task NOT INDEXED WHERE {condition}) AS task"
    return CountedRows(
        "coalesce(each.key, domain)",
        # SQLite parses 50,000 of these short texts in 30 ms, as long as it takes to join a table.
        f"{mails} LEFT JOIN json_each(task.domains) AS each "
        "WHERE (domains IS NULL OR each.key IS NOT NULL)",
        "coalesce(each.value, 1)",
        "(max(domains IS NULL) | (2 * max(domains IS NOT NULL)))",
    )
