"""The log of a run: written, read, drawn, compared, and sent to trackers."""
