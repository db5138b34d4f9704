"""Decode the spans that sentinels replaced (T5, arXiv:1910.10683, section 3.3.4 and figure 2)."""

import numpy as np

from .. import recipe as R
from ..data.store import Store
from ..data.text import Samples, Windows
from ..data.tokenizer import Marks
from .base import Corruption, Decoded, Reader, Row, Setting, asks, joined, special, start
from .draws import parts


class Corrupt(Corruption):
    def __init__(self, value: R.CorruptedSpans, setting: Setting) -> None:
        asks(value, setting, encoder=True, decoder=True)
        super().__init__(setting)
        pad, self.end = special(value, setting, "pad", "end")
        self.value, self.sentinels = value, np.asarray(setting.meta.sentinels, np.int64)
        self.start, self.fields = start(setting, pad), self.both()
        self.marks = Marks([], [self.end], [self.end])

    def read(self, store: Store, length: int, tail: bool) -> Samples:
        raw = self.window(length)
        need = self.noise(raw)[1]
        if need > len(self.sentinels):
            raise ValueError(f"rows of {length} tokens hide {need} spans, the tokenizer has {len(self.sentinels)} sentinels; "
                             f"prepare the data with a tokenizer that has sentinels={need} or more")
        return Windows(store, raw, raw, tail)

    def noise(self, raw: int) -> tuple[int, int]:
        """Of `raw` tokens, how many are hidden, in how many spans."""
        hidden = max(1, min(round(raw * self.value.share), raw - 1))
        return hidden, max(1, min(round(hidden / self.value.mean), raw - hidden))

    def window(self, length: int) -> int:
        """The most raw tokens that become an input of exactly `length`: nothing is padded."""
        most = int(length / max(1 - self.value.share, 1e-3)) + 2
        fitting = [raw for raw in range(2, most) if self.lengths(raw)[0] == length]
        if not fitting or self.value.share == 1:
            raise ValueError(f"share = {self.value.share}: no text fills rows of {length} tokens; hide less")
        return fitting[-1]

    def lengths(self, raw: int) -> tuple[int, int]:
        """Of input and target: one sentinel a span in both, and the end."""
        hidden, spans = self.noise(raw)
        return raw - hidden + spans + 1, hidden + spans + 1

    def __call__(self, samples: Reader, index: int, draw: np.random.Generator) -> Row:
        tokens = np.asarray(samples[index]["tokens"], np.int64)
        hidden, spans = self.noise(len(tokens))
        lengths = np.empty(2 * spans, np.int64)                # kept, hidden, kept, hidden, …
        lengths[::2], lengths[1::2] = parts(draw, len(tokens) - hidden, spans), parts(draw, hidden, spans)
        noise, sentinels = np.repeat(np.arange(2 * spans) % 2 == 1, lengths), self.sentinels[:spans]
        shown = np.insert(tokens[~noise], lengths[::2].cumsum(), sentinels)
        target = joined(np.insert(tokens[noise], lengths[1::2].cumsum() - lengths[1::2], sentinels), [self.end])
        return {"tokens": joined(shown, [self.end]), "target": joined([self.start], target[:-1]), "labels": target}


class Score(Decoded):
    def __init__(self, value: R.CorruptedSpans, setting: Setting) -> None:
        super().__init__(setting)
