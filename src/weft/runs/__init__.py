"""Training runs: state, log, progress and exact resume in a run directory."""
