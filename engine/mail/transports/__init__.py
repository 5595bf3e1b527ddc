"""The transports, one module each, and the choice between them."""
