"""Data, tensor and expert parallelism with torch.distributed."""
