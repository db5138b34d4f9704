"""Scores: one small file a family of metrics. Pure functions of plain lists that yield (name, value)."""
