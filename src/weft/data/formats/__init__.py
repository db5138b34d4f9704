"""One file per format: how it is recognised, cut into pieces and read."""
