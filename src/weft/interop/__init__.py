"""Weights in and out: published folders, our own, the hub."""
