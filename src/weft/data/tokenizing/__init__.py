"""Tokenization: tokenizers, their training, and conversations as tokens."""
