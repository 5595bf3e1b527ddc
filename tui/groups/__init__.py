"""Groups of tasks: error clusters, and groups by a common value."""
