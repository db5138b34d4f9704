"""Training: the loop, its optimiser, its checkpoints."""
