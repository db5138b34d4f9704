"""Utilities for all layers: values, output, processes, storage, addresses. No torch."""
