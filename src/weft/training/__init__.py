"""Training: the loop, optimisers, checkpoints and parallelism."""
