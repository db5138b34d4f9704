"""Shards: prepared rows on disk, memory-mapped when read, or in memory."""
