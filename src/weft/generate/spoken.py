"""The text of tokens as they come."""
from ..data.tokenizer import CAPITAL, Tokenizer

CONTEXT = 8                                # tokens of the prompt that decide whether a space stands before the first piece
HALF = ("\ufffd", CAPITAL, f"{CAPITAL} ")  # what bytes that are no character yet decode to, and a mark that waits for its letter


class Spoken:
    """One row's text. `add` gives what can be shown: never half a character, nothing that may yet turn out to be a stop string."""

    def __init__(self, tokenizer: Tokenizer, prompt: list[int], stops: tuple[str, ...] = ()) -> None:
        self.tokenizer, self.stops, self.stopped = tokenizer, stops, False
        self.ids, self.held = prompt[-CONTEXT:], ""
        self.old, self.shown = 0, len(self.ids)

    def add(self, token: int) -> str:
        self.ids.append(token)
        whole = self.tokenizer.decode(self.ids[self.old:])
        if whole.endswith(HALF) or whole == self.before():         # a token that shows nothing says nothing of the gap behind it
            return ""
        return self.show(whole)

    def before(self) -> str:
        """What was shown of the tokens that are decoded again."""
        return self.tokenizer.decode(self.ids[self.old:self.shown])

    def close(self) -> str:
        """What is left when no token comes any more."""
        shown = "" if self.stopped else self.show(self.tokenizer.decode(self.ids[self.old:])) + self.held
        self.held = ""
        return shown

    def show(self, whole: str) -> str:
        self.held += whole[len(self.before()):]
        self.old, self.shown = self.shown, len(self.ids)
        found = [at for at in map(self.held.find, self.stops) if at >= 0]
        self.stopped = bool(found)
        free = min(found) if found else len(self.held) - self.doubtful()
        shown, self.held = self.held[:free], self.held[free:]
        return shown

    def doubtful(self) -> int:
        """How many of the last characters could begin a stop string."""
        return max((n for stop in self.stops for n in range(1, len(stop)) if self.held.endswith(stop[:n])), default=0)
