"""Text from models: one token after another."""
from . import Verb


def add(verb: Verb) -> None:
    """No verb yet."""
