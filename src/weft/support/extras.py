"""How the packages that Weft does not need are installed."""


def install_extra(name: str) -> str:
    """Return the command that installs the packages of an extra. Weft is on no package index
    yet.
    """
    return f"pip install '.[{name}]' in the clone of Weft"
