"""Row schemas for assistants: conversations, preferences and the chat template."""

import json
from typing import Any

from ...support.registry import choice, implements
from .cells import require_cell, short
from .rows import RowSchema

Message = dict[str, str]
ANSWERS = "assistant"  # the role whose messages are learned


@choice
class ChatTemplate:
    """The text around each message of a conversation, with special tokens by name. Default: ChatML.

    Args:
        start: the text before a message; {role} is its role.
        end: the text after a message; the model learns to generate it.
        between: the text between messages, after `end`.
    """

    start: str = "<|im_start|>{role}\n"
    end: str = "<|im_end|>"
    between: str = "\n"

    def turn_start(self, role: str) -> str:
        """Return the text before a message of a role."""
        return self.start.replace("{role}", role)

    def to_jinja(self) -> str:
        """Return the template in the format of chat_template.jinja, for other libraries."""
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
    """Raise ValueError for malformed messages, since conversations come from files."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(
            f"a conversation must be a list of at least one message, not {short(messages)}"
        )
    for message in messages:
        if not isinstance(message, dict) or any(
            not isinstance(message.get(name), str) for name in ("role", "content")
        ):
            raise ValueError(
                f"a message must be an object with texts role and content, not {short(message)}"
            )


@choice
class Conversations(RowSchema):
    """Lists of messages, each an object with `role` and `content`; messages of the role `assistant`
    are learned.

    Args:
        messages: the column of the messages (default: "messages").
        template: the text around each message (default: ChatML).
    """

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
            raise ValueError(
                f"no message has the role {ANSWERS!r}, which is the role that is learned"
            )


@choice
class Preferences(RowSchema):
    """A prompt with a preferred and a rejected answer. With a template, the prompt is a user
    message or a list of messages; without one, texts are concatenated.

    Args:
        prompt: the column of the prompt (default: "prompt").
        chosen: the column of the preferred answer (default: "chosen").
        rejected: the column of the rejected answer (default: "rejected").
        template: the text around each message (default: none).
    """

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
            raise ValueError(f"{self.chosen} and {self.rejected} are the same text")

    def messages(self, fields: dict[str, Any]) -> list[Message]:
        """Return the prompt as a conversation."""
        prompt = fields[self.prompt]
        return prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]


def chat_template_of(rows: RowSchema) -> ChatTemplate | None:
    """Return the chat template of a row schema; None if its rows are not conversations."""
    return rows.template if isinstance(rows, Conversations | Preferences) else None


implements(Conversations, "weft.data.tokenizing.conversations:ConversationEncoder")
implements(Preferences, "weft.data.tokenizing.conversations:PreferenceEncoder")
