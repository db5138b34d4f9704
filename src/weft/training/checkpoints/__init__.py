"""Checkpoints: written, copied, found again, and compared with a recipe."""
