"""From sources to shards, once: filters, deduplication, and the tasks that do the work."""
