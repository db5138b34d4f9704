"""Recipe suggestion from a table, by task, checkpoint, data size and budget. No torch."""

from .suggest import suggest_recipe as suggest_recipe
