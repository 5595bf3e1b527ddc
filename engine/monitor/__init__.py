"""Throughput, alerts, recurrence and health from tasks, metrics and logs; the recorder."""
