"""Text to ids: tokenizers, their training, and conversations as tokens."""
