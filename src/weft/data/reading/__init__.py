"""Reading: what a file holds, and its rows."""
