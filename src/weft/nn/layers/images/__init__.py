"""Layers that only models of images have."""
