"""One file per format: how it is recognised, divided into pieces and read."""
