"""Formats of lines with one fault each."""

import os
import tempfile
from pathlib import Path

import weft
from weft.data.reading.formats.lines import LineFormat, read_records
from weft.recipe.data.formats import BadRow, SourceRow
from weft.testing import check_format


class KeyedLines(LineFormat):
    """Lines of `key=text`."""

    fault = ""

    def rows(self, path, span, source, columns):
        begin, end = (0, None) if self.fault == "whole file" else span
        for item in read_records(path, (begin, end), lambda line, after_blank: True):
            if isinstance(item, BadRow):
                if self.fault == "raises":
                    raise RuntimeError("bad row")
                yield item
                continue
            text = item.fields["text"]
            at_end = item.offset + len(text.encode()) >= os.path.getsize(path)
            if not (at_end and self.fault == "last line"):
                key, _, value = text.partition("=")
                yield SourceRow(item.offset, {"key": key, "text": value})


@weft.register
class RightLines(KeyedLines):
    name = "rightlines"
    suffixes = (".rightlines",)


@weft.register
class WholeFile(KeyedLines):
    name = "wholefile"
    suffixes = (".wholefile",)
    fault = "whole file"


@weft.register
class LastLine(KeyedLines):
    name = "lastline"
    suffixes = (".lastline",)
    fault = "last line"


@weft.register
class Raises(KeyedLines):
    name = "raises"
    suffixes = (".raises",)
    fault = "raises"


def check(fault):
    name = fault.replace(" ", "") or "rightlines"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"example.{name}")
        path.write_text("".join(f"k{i}=line number {i} of the file\n" for i in range(40)))
        check_format(name, path)
