"""Evaluation of an opened model: on its task, in context, by probes, with lm-eval."""
