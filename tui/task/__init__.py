"""One task in full: fields, payload, attempts, log and why it waits."""
