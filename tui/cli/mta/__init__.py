"""Commands about mail servers: instances, where a mail went, why it waits; names no format."""
