"""Commands about mail servers: the instances of this host; names no format."""
