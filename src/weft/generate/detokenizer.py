"""Streaming detokenisation: emit text as tokens are generated."""

from ..data.tokenizing.tokenizer import CAPITAL_MARK, Tokenizer

CONTEXT = 8  # tokens of the prompt that decide whether a space stands before the first piece
# output of incomplete UTF-8 bytes, and a capital mark without its letter
INCOMPLETE = (
    "\ufffd",
    CAPITAL_MARK,
    f"{CAPITAL_MARK} ",
)


class StreamDetokenizer:
    """The text of one row. `add` returns the text that is final: whole characters that cannot
    become part of a stop string.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: list[int], stop_strings: tuple[str, ...] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self.stops = stop_strings
        self.stopped = False
        self.ids = prompt[-CONTEXT:]
        self.pending = ""
        self.old = 0
        self.shown = len(self.ids)

    def add(self, token: int) -> str:
        self.ids.append(token)
        whole = self.tokenizer.decode(self.ids[self.old :])
        # an invisible token does not decide the space after it
        if whole.endswith(INCOMPLETE) or whole == self.before():
            return ""
        return self.release(whole)

    def before(self) -> str:
        """Return the emitted text of the tokens that are decoded again."""
        return self.tokenizer.decode(self.ids[self.old : self.shown])

    def close(self) -> str:
        """Return the rest of the text after the last token."""
        shown = (
            ""
            if self.stopped
            else self.release(self.tokenizer.decode(self.ids[self.old :])) + self.pending
        )
        self.pending = ""
        return shown

    def release(self, whole: str) -> str:
        self.pending += whole[len(self.before()) :]
        self.old = self.shown
        self.shown = len(self.ids)
        stop_positions = [at for at in map(self.pending.find, self.stops) if at >= 0]
        self.stopped = bool(stop_positions)
        free = (
            min(stop_positions)
            if stop_positions
            else len(self.pending) - self.possible_stop_prefix()
        )
        shown = self.pending[:free]
        self.pending = self.pending[free:]
        return shown

    def possible_stop_prefix(self) -> int:
        """Return how many of the last characters could start a stop string."""
        return max(
            (
                n
                for stop in self.stops
                for n in range(1, len(stop))
                if self.pending.endswith(stop[:n])
            ),
            default=0,
        )
