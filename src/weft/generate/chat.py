"""Conversations, as a model's own template writes them."""
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import tokenizers

from ..data.tokenizer import Tokenizer

Message = dict[str, str]                   # its role and its content


def template_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """The template in chat_template.jinja or tokenizer_config.json, and the names of marks that it may use."""
    own, file = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    config = json.loads(file.read_text("utf-8")) if file.exists() else {}
    found = own.read_text("utf-8") if own.exists() else config.get("chat_template")
    if isinstance(found, list):            # several by name
        found = next((one["template"] for one in found if one.get("name") == "default"), None)
    if not isinstance(found, str):
        raise ValueError(f"{folder} holds no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
                         "give a plain prompt")
    marks = {name: mark["content"] if isinstance(mark, dict) else mark for name, mark in config.items() if name.endswith("_token") and mark}
    return found, {"bos_token": "", "eos_token": ""} | marks


def check(messages: Any) -> None:
    """Conversations come from files."""
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"a conversation is a list of at least one message, not {str(messages)[:40]!r}")
    for message in messages:
        if not isinstance(message, dict) or any(not isinstance(message.get(name), str) for name in ("role", "content")):
            raise ValueError(f"a message is an object whose role and content are texts, not {str(message)[:40]!r}")


def render(folder: Path, tokenizer: Tokenizer, messages: list[Message]) -> list[int]:
    """The template is another's program: it runs in a sandbox that can change nothing. Only its own words become marks."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(text: str) -> None:
        raise TemplateError(text)

    check(messages)
    source, marks = template_of(folder)
    plain = tokenizers.Tokenizer.from_str(tokenizer.text)      # one in which the name of a mark is the mark
    plain.no_padding()
    plain.no_truncation()
    names = [token.content for token in plain.get_added_tokens_decoder().values() if token.special]
    for message in messages:
        forged = next((name for name in names if any(name in message[part] for part in ("role", "content"))), None)
        if forged is not None:
            raise ValueError(f"the message holds {forged!r}, which is a mark of this model, not text")
    room = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    room.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    room.filters["tojson"] = lambda found, indent=None: json.dumps(found, ensure_ascii=False, indent=indent)
    try:
        text = room.from_string(source).render(messages=messages, add_generation_prompt=True, tools=None, documents=None, **marks)
    except TemplateError as error:
        raise ValueError(f"the chat template of {folder} refuses: {error}") from None
    return list(plain.encode(text, add_special_tokens=False).ids)
