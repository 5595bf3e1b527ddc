"""The queue lock and the evidence about its holder; shared token buckets."""
