"""Groups of tasks: error clusters, and groups by queue, kind, group or destination."""
