"""Build the working parts (store, lock, handlers, mail) from the settings."""
