"""Inference: opening a model by name, and batched predictions."""
