"""Commands on mail servers of others: where a mail went, why it waits."""
