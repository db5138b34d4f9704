"""The data of a recipe: sources, row schemas, tokenizers, filters and mixtures."""
