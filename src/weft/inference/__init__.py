"""Inference: a model by any name, and its predictions in batches."""
