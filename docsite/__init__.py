"""The documentation site: pages that follow from the code,
put beside those written by hand in docs/.

`python -m docsite FOLDER` writes all pages as Markdown; `scripts/docs` turns them into HTML. The
generated pages are not committed: they are made from the registry, the parser and the docstrings
whenever the site is built, so that a new part appears by itself and no copy
of it can be out of date.
"""
