"""From a table to a recipe, without torch: defaults by task, checkpoint, size of the data and
budget.
"""

from .suggest import suggest_recipe as suggest_recipe
