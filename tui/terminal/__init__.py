"""The terminal: driver, key queue, bandwidth, clipboard and crash report."""
