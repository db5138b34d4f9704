"""Import and export of transformers and sentence-transformers directories, and the Hugging Face
hub.
"""
