"""Federation: signed and encrypted deliveries to other servers, their keys, relays and health."""
