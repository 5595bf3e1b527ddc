"""What deliveries go to: health, blocks and probes of each destination, and the outbox of rows."""
