"""Metrics: scores of predictions against references."""
