"""Ranks: data, tensor and expert parallelism by PyTorch's own engine."""
