"""Rows of assistants: conversations, preferred answers, and how a turn is written."""

import json
from typing import Any

from ...support.registry import choice, implements
from .cells import require_cell, short
from .rows import RowSchema

Message = dict[str, str]
ANSWERS = "assistant"  # the role whose words are learned


@choice
class ChatTemplate:
    """How a turn of a conversation is written; special tokens stand in it by their names. Default:
    ChatML."""

    start: str = "<|im_start|>{role}\n"  # before what is said
    end: str = "<|im_end|>"  # after it; an answer learns to say it
    between: str = "\n"  # after `end`

    def turn_start(self, role: str) -> str:
        return self.start.replace("{role}", role)

    def to_jinja(self) -> str:
        """The template as chat_template.jinja holds it, for other libraries."""
        before, role, after = self.start.partition("{role}")
        name = " + message['role']" if role else ""
        tail = json.dumps(self.end + self.between)
        return (
            "{% for message in messages %}{{ "
            f"{json.dumps(before)}{name} + {json.dumps(after)} + message['content'] + {tail} "
            "}}{% endfor %}{% if add_generation_prompt %}{{ "
            f"{json.dumps(self.turn_start(ANSWERS))} "
            "}}{% endif %}"
        )


def check_messages(messages: Any) -> None:
    """Raise ValueError for messages of another shape, since conversations come from files."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"a conversation is a list of at least one message, not {short(messages)}")
    for message in messages:
        if not isinstance(message, dict) or any(
            not isinstance(message.get(name), str) for name in ("role", "content")
        ):
            raise ValueError(
                f"a message is an object whose role and content are texts, not {short(message)}"
            )


@choice
class Conversations(RowSchema):
    """A list of messages, each an object with `role` and `content`; what the role `assistant` says
    is learned."""

    name = "conversations"
    column_fields = ("messages",)

    messages: str = "messages"
    template: ChatTemplate = ChatTemplate()

    @property
    def text_columns(self) -> tuple[str, ...]:
        return (self.messages,)

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        messages = require_cell(fields, self.messages, list)
        check_messages(messages)
        if all(message["role"] != ANSWERS for message in messages):
            raise ValueError(f"no message has the role {ANSWERS!r}: nothing could be learned")


@choice
class Preferences(RowSchema):
    """A prompt and two answers, of which the first is preferred. With a template, the prompt is
    what a user says, or a list of messages; without one, texts follow each other as they are."""

    name = "preferences"
    column_fields = ("prompt", "chosen", "rejected")
    length_columns = ("prompt", "chosen", "rejected")

    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    template: ChatTemplate | None = None

    @property
    def text_columns(self) -> tuple[str, ...]:
        return self.prompt, self.chosen, self.rejected

    def check(self, fields: dict[str, Any], labels: tuple[str, ...]) -> None:
        for name in (self.chosen, self.rejected):
            require_cell(fields, name)
        if isinstance(fields.get(self.prompt), list):
            check_messages(fields[self.prompt])
            if self.template is None:
                raise ValueError(
                    f"{self.prompt} is a list of messages; give "
                    "Preferences(template=ChatTemplate())"
                )
        else:
            require_cell(fields, self.prompt)
        if fields[self.chosen] == fields[self.rejected]:
            raise ValueError("both answers are the same")

    def messages(self, fields: dict[str, Any]) -> list[Message]:
        """The prompt as a conversation."""
        prompt = fields[self.prompt]
        return prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]


def chat_template_of(rows: RowSchema) -> ChatTemplate | None:
    """How the rows' conversations are written; None: they hold none."""
    return rows.template if isinstance(rows, Conversations | Preferences) else None


implements(Conversations, "weft.data.tokenizing.conversations:ConversationEncoder")
implements(Preferences, "weft.data.tokenizing.conversations:PreferenceEncoder")
