"""The demo: temporary places of the formats, with workers and traffic."""
