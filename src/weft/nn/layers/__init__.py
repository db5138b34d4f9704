"""What one block is made of. Shape letters: docs/letters.md."""
