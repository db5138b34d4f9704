"""From prepared rows to batches: order, mixtures, the plan of each step, and the loader."""
