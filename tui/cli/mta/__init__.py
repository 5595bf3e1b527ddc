"""Commands on mail servers: the instances of this host, where a mail went, why it waits."""
