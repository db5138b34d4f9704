"""Folders that transformers and sentence-transformers open, in both directions, and the hub."""
