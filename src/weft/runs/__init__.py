"""A run in its folder: state, log, progress, proof of exact resume."""
