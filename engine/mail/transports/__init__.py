"""The transports, the programs that they run, and the choice between them."""
