"""Import and export of model directories: Hugging Face's layout and Weft's own."""
