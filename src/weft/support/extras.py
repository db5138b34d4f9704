"""Installation commands of optional packages."""


def install_extra(name: str) -> str:
    """Return the command that installs an extra. Weft is not on a package index yet."""
    return f"pip install '.[{name}]' in the clone of Weft"
