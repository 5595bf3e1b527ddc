"""Mail transports: health, suspend, test mail."""
