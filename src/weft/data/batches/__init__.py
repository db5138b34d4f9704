"""Batches of prepared rows: sample order, mixtures, step plans and the loader."""
