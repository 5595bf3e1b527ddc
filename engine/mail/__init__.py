"""Mail values, addresses and wire format, shared by all transports."""
