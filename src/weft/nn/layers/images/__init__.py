"""Layers of image models."""
