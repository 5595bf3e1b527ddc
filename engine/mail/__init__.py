"""Mail values, addresses and wire format, shared by all ways to send."""
