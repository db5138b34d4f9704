"""How things are computed fast, each beside its slow twin."""
