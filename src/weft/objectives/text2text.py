"""Text in, text out, with the whole encoder-decoder (T5, arXiv:1910.10683, section 2.1; BART, arXiv:1910.13461, section 3.4)."""
import numpy as np

from .. import recipe as R
from ..data.store import Store
from ..data.table import Table
from ..data.text import Samples
from ..data.tokenizer import Marks
from .base import Corruption, Reader, Row, Setting, asks, beside, joined, special, start
from .translate import Score as Score


class Corrupt(Corruption):
    """The decoder reads the target one step late, behind its start token: transformers' shift_tokens_right."""

    def __init__(self, value: R.TextToText, setting: Setting) -> None:
        asks(value, setting, encoder=True, decoder=True)
        if not isinstance(setting.meta.row, R.Templated | R.Pairs):
            raise ValueError(f"TextToText reads Templated or Pairs; the data holds {type(setting.meta.row).__name__}")
        super().__init__(setting)
        (end,), bart = special(value, setting, "end"), value.input == "bart"
        self.marks: Marks = Marks(list(special(value, setting, "begin")) if bart else [], [end], [end])
        self.start: int = start(setting, end if bart else setting.meta.special.get("pad", end))
        self.fields = self.both()

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        return Table(store, ("source", "target"), apart=True, extra=len(self.marks.begin) + 1)

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        sample = samples[index]
        labels = self.around(sample["target"], samples.length)
        return {"tokens": self.around(sample["source"], samples.length), "target": joined([self.start], labels[:-1]), "labels": labels}

    def around(self, tokens: np.ndarray, length: int) -> np.ndarray:
        return joined(self.marks.begin, tokens[:beside(length, len(self.marks.begin) + 1)], self.marks.end)
