"""The commands of `weft` in groups, the most used first, and the parser built from their
options."""

import shutil
from argparse import Action
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import weft

from ..support.options.command_line import Parser, add_options, command_fields
from ..support.options.declare import Option, OptionField, Options
from ..support.options.shared import VerbOptions
from . import (
    compare,
    detect,
    doctor,
    evaluate,
    generate,
    look,
    models,
    new,
    plan,
    predict,
    probe,
    reconstruct,
    train,
    tune,
)

DESCRIPTION = "Every Transformer, woven from one block."
# Width of the names in the help
NAME_COLUMNS = 14
# Metavars of options that take no file
WORDS = ("COLUMN", "DEVICE", "FILTER", "LANGUAGE", "LOGGER", "PATH=VALUE", "PROMPT", "TEXT")


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(VerbOptions):
    """The options of `weft completion`."""

    shell: Annotated[
        Literal["bash", "zsh", "fish"], Option("shell of the completion script", positional=True)
    ]


def completion(options: CompletionOptions) -> int:
    """Print a completion script for a shell.

    For bash, add eval "$(weft completion bash)" to ~/.bashrc; the scripts for zsh and fish start
    with installation instructions.
    """
    import shtab

    from ..families import families

    sizes = [f"{family.name}-{size}" for family in families() for size in family.sizes]
    architecture = names_or_files("_weft_architecture_or_file", ["demo", *sizes])
    model = names_or_files("_weft_model_or_file", ["demo"])
    top = parser()
    for verb in all_verbs():
        for field in command_fields(verb.options):
            action = top.actions[verb.name][field.name]
            if is_model(field):
                complete = architecture if verb.name in ("show", "plan") else model
            elif field.type is str and not field.choices and field.option.metavar not in WORDS:
                complete = shtab.FILE
            else:
                continue
            action.complete = complete  # type: ignore[attr-defined]
    print(shtab.complete(top, options.shell))
    return 0


def is_model(field: OptionField) -> bool:
    return field.option.positional and field.option.metavar in ("NAME", "CHECKPOINT", "IN")


def names_or_files(function: str, names: list[str]) -> dict[str, Any]:
    """Return the completions of `shtab` per shell for an argument that is a name or a file."""
    words = " ".join(names)
    bash = f'{function}() {{ compgen -W \'{words}\' -- "$1"; compgen -f -- "$1"; }}'
    zsh = f"{function}() {{ compadd -- {words}; _files; }}"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"(printf '%s\\n' {words}; __fish_complete_path (commandline -ct))",
        "preamble": {"bash": bash, "zsh": zsh},
    }


GROUPS: dict[str, tuple[Callable[[Any], int], ...]] = {
    "start": (
        new.new,
        models.families,
        doctor.doctor,
        completion,
    ),
    "train": (train.train, tune.tune, train.resume, train.status, train.prepare, plan.plan),
    "use": (
        generate.generate,
        predict.classify,
        predict.embed,
        predict.answer,
        predict.tag,
        predict.fill,
        generate.translate,
        detect.detect,
    ),
    "understand": (
        look.look,
        evaluate.evaluate,
        compare.compare,
        models.show,
        probe.probe,
        reconstruct.reconstruct,
    ),
    "ship": (models.export, models.verify),
}


class Verb(NamedTuple):
    """A command: its function, its options, and its help texts."""

    name: str
    run: Callable[[Any], int]
    options: type[Options]
    # One line, without an initial capital and a full stop
    help: str
    description: str


def verb_of(run: Callable[[Any], int]) -> Verb:
    """Describe a command by its function: its name, its argument type and its docstring."""
    first, *more = " ".join((run.__doc__ or "").split()).split(". ", 1)
    options, *_ = get_type_hints(run).values()
    help = first.removesuffix(".")
    description = ". ".join([help, *more]) + ("" if more else ".")
    return Verb(run.__name__, run, options, help[0].lower() + help[1:], description)


def all_verbs() -> Iterator[Verb]:
    for functions in GROUPS.values():
        yield from map(verb_of, functions)


class TopParser(Parser):
    """The parser of `weft` itself, which prints the commands in groups.

    Attributes:
        actions: the arguments of each command, by option name.
    """

    actions: dict[str, dict[str, Action]]

    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns - 2
        lines = [self.format_usage(), f"{DESCRIPTION}\n"]
        for group, functions in GROUPS.items():
            lines.append(f"{group}:")
            lines += [help_line(verb.name, verb.help, width) for verb in map(verb_of, functions)]
            lines.append("")
        lines += [
            help_line("-h, --help", "show this help message and exit", width),
            help_line("--version", "show the version and exit", width),
            "\nweft VERB --help shows the options of a command.\n",
        ]
        return "\n".join(lines)


def help_line(name: str, text: str, width: int) -> str:
    indent = " " * (NAME_COLUMNS + 2)
    return "\n".join(
        wrap(f"  {name:{NAME_COLUMNS}}{text}", max(width, 40), subsequent_indent=indent)
    )


def parser() -> TopParser:
    """Return the command-line parser, built from the options of every command."""
    top = TopParser(prog="weft", usage="weft [-h] [--version] VERB ...", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"weft {weft.__version__}")
    parsers = top.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    top.actions = {}
    for verb in all_verbs():
        verb_parser = parsers.add_parser(
            verb.name,
            prog=f"weft {verb.name}",
            help=verb.help,
            description=verb.description,
            allow_abbrev=False,
        )
        top.actions[verb.name] = add_options(verb_parser, verb.options)
    return top
