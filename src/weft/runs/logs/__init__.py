"""The log of a run: writing, reading, plotting, comparison and experiment trackers."""
