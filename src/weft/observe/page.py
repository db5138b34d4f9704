"""The HTML page of an observation: a single file that works offline."""

import json
from html import escape
from importlib.resources import files

from .panels import Observation, to_plain


def page_html(observation: Observation) -> str:
    """The page of an observation, as HTML with all its data inside."""
    data = json.dumps(to_plain(observation), ensure_ascii=False, separators=(",", ":"))
    template = files(__package__).joinpath("page.html").read_text("utf-8")
    head, _, program = template.partition("$DATA")
    title = escape(observation.title)
    return head.replace("$TITLE", title) + data.replace("<", "\\u003c") + program
