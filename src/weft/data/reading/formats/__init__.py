"""File formats, one module each: detection, division into pieces and reading."""
