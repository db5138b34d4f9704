"""Command options, each declared once as a dataclass field, from which the command line and the
Python call are built."""
