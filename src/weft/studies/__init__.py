"""Studies: runs that answer one question, started and resumed by one runner."""
