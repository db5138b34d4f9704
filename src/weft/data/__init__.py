"""Data: reading files, preparing shards, and making batches."""
