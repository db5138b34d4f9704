"""Prepared rows on disk and in memory: written once, memory-mapped when read."""
