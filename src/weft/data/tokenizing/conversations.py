"""Conversations and preferences as tokens. Special tokens come only from the template, never from
the content of messages.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers

from ... import recipe as R
from ...recipe.data.conversations import ANSWERS, ChatTemplate, Message
from ...recipe.data.formats import SourceRow
from ..shards.encode import Columns, encode_non_empty, token_list_type
from ..shards.shard import Array
from .tokenizer import Tokenizer, library

Span = tuple[int, int]
Turns = tuple[list[int], list[Span]]  # tokens, and which of them each answer is, [begin, end)


def render_turns(template: ChatTemplate, messages: Sequence[Message]) -> tuple[str, list[Span]]:
    """Return the text of a conversation, and the characters of each answer with what ends it."""
    text = ""
    answers = []
    for message in messages:
        text += template.turn_start(message["role"])
        begin = len(text)
        text += message["content"] + template.end
        if message["role"] == ANSWERS:
            answers.append((begin, len(text)))
        text += template.between
    return text, answers


class TemplateEncoder:
    """A tokenizer that reads the special tokens of a template."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.template = template
        self.tokenizer = tokenizer

    @cached_property
    def plain(self) -> Any:
        """In which the name of a special token is that token."""
        plain = tokenizers.Tokenizer.from_str(self.tokenizer.text)
        plain.no_padding()
        plain.no_truncation()
        return plain

    @cached_property
    def special_names(self) -> list[str]:
        tokens = self.plain.get_added_tokens_decoder().values()
        return [token.content for token in tokens if token.special]

    def encode(self, text: str) -> list[int]:
        with library("the tokenizer"):
            ids: list[int] = self.plain.encode(text, add_special_tokens=False).ids
        return list(self.tokenizer.within(ids))

    def __call__(self, messages: Sequence[Message]) -> Turns:
        """Encode the text as a whole, as other libraries do; where somebody names a special token,
        turn by turn, so that it stays text."""
        if any(name in message["content"] for message in messages for name in self.special_names):
            return self.encode_apart(messages)
        text, answers = render_turns(self.template, messages)
        with library("the tokenizer"):
            encoding = self.plain.encode(text, add_special_tokens=False)
        begins, ends = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
        spans = [
            (int(np.searchsorted(begins, begin)), int(np.searchsorted(ends, end, "right")))
            for begin, end in answers
        ]
        return list(self.tokenizer.within(encoding.ids)), spans

    def encode_apart(self, messages: Sequence[Message]) -> Turns:
        ids: list[int] = []
        spans = []
        for message in messages:
            ids += self.encode(self.template.turn_start(message["role"]))
            begin = len(ids)
            ids += self.tokenizer.encode(message["content"]).tolist()
            ids += self.encode(self.template.end)
            if message["role"] == ANSWERS:
                spans.append((begin, len(ids)))
            ids += self.encode(self.template.between) if self.template.between else []
        return ids, spans


class ConversationEncoder:
    def __init__(
        self, row: R.Conversations, tokenizer: Tokenizer, labels: tuple[str, ...] | None = None
    ) -> None:
        self.row = row
        self.encode = TemplateEncoder(row.template, tokenizer)
        kind = token_list_type(tokenizer)
        self.schema = pa.schema([("tokens", kind), ("answers", pa.large_list(pa.uint32()))])

    def __call__(self, rows: list[SourceRow]) -> Columns:
        turns = [self.encode(row.fields[self.row.messages]) for row in rows]
        flat = [[place for span in spans for place in span] for _, spans in turns]
        return {"tokens": ragged([ids for ids, _ in turns]), "answers": ragged(flat)}


class PreferenceEncoder:
    """Without a template an answer ends with the end token; with one, as its turn does."""

    def __init__(
        self, row: R.Preferences, tokenizer: Tokenizer, labels: tuple[str, ...] | None = None
    ) -> None:
        self.row = row
        self.tokenizer = tokenizer
        self.encode = TemplateEncoder(row.template, tokenizer) if row.template else None
        self.end = [tokenizer.special["eos"]] if "eos" in tokenizer.special else []
        names = ("prompt", "chosen", "rejected")
        self.schema = pa.schema([(name, token_list_type(tokenizer)) for name in names])

    def __call__(self, rows: list[SourceRow]) -> Columns:
        if self.encode is None:
            return self.encode_texts(rows)
        triples = [self.encode_row(row.fields) for row in rows]
        names = ("prompt", "chosen", "rejected")
        return {name: ragged([triple[i] for triple in triples]) for i, name in enumerate(names)}

    def encode_row(self, fields: dict[str, Any]) -> list[list[int]]:
        """The prompt and both answers. Where an answer's first letters would join the prompt's last
        token, turns are encoded apart, so that both answers follow the same prompt."""
        assert self.encode is not None
        talks = [
            [*self.row.messages(fields), {"role": ANSWERS, "content": fields[name]}]
            for name in (self.row.chosen, self.row.rejected)
        ]
        for encode in (self.encode, self.encode.encode_apart):
            turns = [encode(talk) for talk in talks]
            prompts = [ids[: spans[-1][0]] for ids, spans in turns]
            if prompts[0] == prompts[1]:
                break
        return [prompts[0], *(ids[slice(*spans[-1])] for ids, spans in turns)]

    def encode_texts(self, rows: list[SourceRow]) -> Columns:
        def column(name: str) -> tuple[Array, Array]:
            return encode_non_empty(self.tokenizer, [row.fields[name] for row in rows])

        columns: Columns = {"prompt": column(self.row.prompt)}
        for name, field in (("chosen", self.row.chosen), ("rejected", self.row.rejected)):
            values, ends = column(field)
            columns[name] = (
                np.insert(values, ends, self.end * len(ends)) if self.end else values,
                ends + np.arange(1, len(ends) + 1) * len(self.end),
            )
        return columns


def ragged(lists: list[list[int]]) -> tuple[Array, Array]:
    """Return lists as the values of all and the end of each."""
    values = np.array([value for row in lists for value in row], np.int64)
    return values, np.cumsum([len(row) for row in lists], dtype=np.int64)
