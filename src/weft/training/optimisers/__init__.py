"""Optimisers and their state under the parameters' names."""
