"""Preparation of data: filters, deduplication and encoding of sources into shards."""
