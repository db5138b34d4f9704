"""Public functions of `weft` without torch: reading tables and suggesting recipes."""

from .data.reading.table import open_table as open_table_of_files
from .suggest.suggest import suggest_recipe as suggest_recipe_for_table
from .support.python_messages import python_errors

open_table = python_errors()(open_table_of_files)
suggest_recipe = python_errors()(suggest_recipe_for_table)
