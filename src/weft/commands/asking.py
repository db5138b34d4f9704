"""One question of a model, many rows."""
from . import Verb


def add(verb: Verb) -> None:
    """No verb yet."""
