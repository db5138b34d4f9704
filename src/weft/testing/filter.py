"""Conformance of a filter: `check_filter` raises an AssertionError that names the problem."""

from .. import recipe as R
from ..support.registry import implementation
from .value import calling, check_value

TEXTS = (
    "",
    "word",
    "two words",
    "A line.\nA line.\n\nAnother paragraph, with 3 numbers: 1, 2, 3…",
    "你好，世界。",
    " ".join(f"word{i % 40}" for i in range(300)),
    "the same words " * 50,
)


def check_filter(value: R.Filter) -> None:
    """Check that a filter is a pure function of the text, and returns the type that its base class
    requires.
    """
    check_value(value)
    name = type(value).__name__
    assert value.name, f"{name} has no name for --filters"
    assert isinstance(value, R.QualityFilter | R.Deduplication), (
        f"{name} must subclass QualityFilter or Deduplication"
    )
    forwards, backwards = (implementation(value)(value) for _ in range(2))
    with calling(name):
        results = [forwards(text) for text in TEXTS]
    assert results == [backwards(text) for text in reversed(TEXTS)][::-1], (
        f"{name} depends on the order of its calls"
    )
    for result in results:
        if isinstance(value, R.Deduplication):
            assert isinstance(result, list), f"{name} returns {result!r}, not a list of keys"
            assert all(isinstance(key, bytes) for key in result), f"{name}: a key is not bytes"
        else:
            is_reason = result is None or (isinstance(result, str) and result)
            assert is_reason, f"{name} returns {result!r}; return a reason (str) or None"
