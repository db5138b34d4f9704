"""A model by any name, asked in batches."""
