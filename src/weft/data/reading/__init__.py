"""Reading of files: formats, columns, labels and rows."""
