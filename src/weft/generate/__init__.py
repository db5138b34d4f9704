"""Text from models, one token after another."""
