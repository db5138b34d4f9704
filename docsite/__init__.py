"""The documentation site: generated pages and the handwritten pages of docs/.

`python -m docsite FOLDER` writes all pages as Markdown; `scripts/docs` converts them to HTML.
Generated pages are not committed: every build derives them from the registry, the parser and the
docstrings, so a new part appears automatically and no page is out of date.
"""
