"""Checkpoints: writing, reading, copying to object storage, and comparison with a recipe."""
