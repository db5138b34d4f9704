"""python -m docsite FOLDER: write all pages of the site as Markdown and report broken links."""

import argparse
import sys
from pathlib import Path

from .links import broken_links
from .site import site_settings, write_site


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docsite", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="output directory: replaces docs/ and zensical.toml"
    )
    folder = parser.parse_args().folder
    pages = write_site(folder / "docs")
    (folder / "zensical.toml").write_text(site_settings())
    broken = list(broken_links(pages, folder / "docs"))
    for line in broken:
        print(f"broken link: {line}", file=sys.stderr)
    print(f"{len(pages)} pages in {folder / 'docs'}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
