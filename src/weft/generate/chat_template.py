"""Chat templates: conversations as text, in the format of the model."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from ..data.tokenizing.tokenizer import Tokenizer, library
from ..recipe.data.conversations import Message, check_messages
from ..support.folder_files import find_file, read_file
from .sandbox import Sandbox

SANDBOX = Sandbox()  # one process for all conversations
CONFIG = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"


def has_chat_template(folder: Path | None) -> bool:
    """Return whether a model folder holds a readable chat template."""
    try:
        return folder is not None and bool(read_chat_template(folder))
    except (ValueError, OSError):
        return False


def read_chat_template(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the template of chat_template.jinja or tokenizer_config.json, and the names of the
    special tokens that it may use.
    """
    config: Any = {}
    if find_file(folder, CONFIG):
        try:
            config = json.loads(read_file(folder, CONFIG))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{folder / CONFIG} is not JSON: {error}") from None
    config = config if isinstance(config, dict) else {}
    template = (
        read_file(folder, TEMPLATE) if find_file(folder, TEMPLATE) else config.get("chat_template")
    )
    if isinstance(template, list):  # several by name
        template = next(
            (
                one.get("template")
                for one in template
                if isinstance(one, dict) and one.get("name") == "default"
            ),
            None,
        )
    if not isinstance(template, str):
        raise ValueError(
            f"{folder} holds no chat template (chat_template.jinja, or chat_template in "
            "tokenizer_config.json); "
            "give a plain prompt"
        )
    special_tokens = {
        name: mark.get("content") if isinstance(mark, dict) else mark
        for name, mark in config.items()
        if name.endswith("_token")
    }
    return template, {"bos_token": "", "eos_token": ""} | {
        name: token for name, token in special_tokens.items() if isinstance(token, str)
    }


def render_chat(folder: Path, tokenizer: Tokenizer, messages: list[Message]) -> list[int]:
    """Render a conversation. The template is untrusted code: it runs in a sandbox. Special tokens
    come from the template alone, never from a message.
    """
    check_messages(messages)
    source, special_tokens = read_chat_template(folder)
    # One in which the name of a mark is the mark.
    plain = tokenizers.Tokenizer.from_str(tokenizer.text)
    plain.no_padding()
    plain.no_truncation()
    names = [token.content for token in plain.get_added_tokens_decoder().values() if token.special]
    for message in messages:
        forged = next(
            (name for name in names if any(name in message[part] for part in ("role", "content"))),
            None,
        )
        if forged is not None:
            raise ValueError(
                f"the message contains {forged!r}, a special token of this model; remove it from "
                f"the message"
            )
    try:
        text = SANDBOX.render(
            source,
            {"messages": messages, "add_generation_prompt": True, "tools": None, "documents": None}
            | special_tokens,
        )
    except ValueError as error:
        raise ValueError(f"the chat template of {folder} raised an error: {error}") from None
    with library(f"the tokenizer of {folder}"):
        return list(tokenizer.within(plain.encode(text, add_special_tokens=False).ids))
