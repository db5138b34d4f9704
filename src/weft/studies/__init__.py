"""Studies: many runs that answer one question, started and continued by one runner."""
