"""What a run reads: sources, row schemas, tokenizers, filters and mixtures."""
