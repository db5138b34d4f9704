"""Options of verbs: each is declared once, as a field of a dataclass; the command line and the
Python call are made from it."""
