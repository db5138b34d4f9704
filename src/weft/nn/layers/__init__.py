"""The layers of a block. Shape letters: docs/letters.md."""
