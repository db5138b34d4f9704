"""The docstring and signature of each family, as help() shows them: its sizes and arguments."""

import sys
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature, signature
from typing import Any

from ..support.registry import TypeInWords, type_in_words
from ..support.synonyms import suggest
from ..support.value_tree import format_inline

SPEC_ARGUMENTS = ("head", "init", "special_tokens", "context_length")
# descriptions of arguments; a user-defined family may have others
ARGUMENTS = {
    "activation": "the activation of the feed-forward layers, such as 'gelu'",
    "attention_dropout": "the probability of dropping an attention weight",
    "bias": "whether the linear maps of a block have biases",
    "buckets": "the number of distance buckets of the relative position bias",
    "channels": "the number of channels of an image",
    "classes": "the number of outputs of the head",
    "context_length": "the trained length of a row in tokens",
    "convolutions": "the number of convolutions of the stem",
    "decoder_depth": "the number of blocks of the decoder",
    "decoder_heads": "the number of attention heads of the decoder",
    "decoder_hidden": "the width of the decoder's feed-forward layers",
    "decoder_width": "the width of the decoder",
    "depth": "the number of blocks",
    "depths": "the number of blocks of each stage",
    "drop_path": "the probability of dropping a branch of the last block; earlier blocks have less",
    "dropout": "the probability of dropping an output of a branch or of the embedding",
    "embedding": "the width of the token table",
    "embedding_dropout": "the probability of dropping an output of the embedding",
    "eps": "the epsilon of the norms",
    "every": "the period of blocks with full attention; other blocks use a window",
    "experts": "the number of experts of a block",
    "feedforward": "the feed-forward layer of every block, such as weft.MLP(hidden=3072)",
    "final": "whether a norm follows each stack",
    "fraction": "the fraction of the head width with rotary positions",
    "gated": "whether the feed-forward layers are gated",
    "head": "the output head, such as weft.ClassifierHead(num_labels=2)",
    "head_dim": "the width of a head",
    "heads": "the number of attention heads",
    "hidden": "the width of the feed-forward layers",
    "hidden_bias": "whether the feed-forward layers have biases",
    "hidden_dropout": "the dropout probability inside the feed-forward layers",
    "image_size": "the height and width of an image in pixels",
    "init": "the initialisation of new weights, such as weft.NormalInit()",
    "kernel_size": "the side of the stem's convolutions",
    "kinds": "the attention of each block, 'full_attention' or 'sliding_attention'",
    "kv_heads": "the number of key and value heads",
    "load_balance_weight": "the weight of the loss that balances the experts",
    "logit_softcap": "the soft cap of the logits",
    "max_distance": "the distance from which keys share the last bucket of the relative position "
    "bias",
    "near_theta": "the base of the rotary positions in blocks with a window",
    "norm_first": "whether norms precede each branch (pre-norm)",
    "normed": "whether a norm follows the embedding",
    "offset": "the number of unused rows at the start of the position table",
    "patch_size": "the height and width of a patch in pixels",
    "positions": "the image positions, such as weft.SinusoidalPositions2D()",
    "qk_norm": "the norm of queries and keys, such as weft.QKNorm()",
    "queries": "the number of object queries",
    "query": "the divisor of the scores is the square root of it",
    "ratio": "the width of the feed-forward layers as a multiple of the block's width",
    "router_z_weight": "the weight of the loss that keeps the router's logits small",
    "rows": "the number of rows of the position table, unused ones included",
    "scale": "the initial layer scale",
    "scaled": "whether token vectors are multiplied by the square root of the width",
    "scaling": "the scaling of rotary positions, such as weft.RoPEScaling(factor=8)",
    "side_by_side": "whether attention and feed-forward are parallel branches",
    "softcap": "the soft cap of the attention scores",
    "special_tokens": "the ids of padding, start and end, as weft.SpecialTokens",
    "stem": "the convolutional stem, such as weft.ConvStem(widths=(64, 64, 64))",
    "temperature": "the base of the sines of the image positions",
    "theta": "the base of the rotary positions",
    "tied": "whether the head shares the token table",
    "token_types": "the number of segments",
    "tokens": "the extra tokens before the patches",
    "top_k": "the number of experts per token",
    "vocab_size": "the number of tokens in the vocabulary",
    "width": "the width of the model",
    "widths": "the channels of each stage",
    "window": "the size of an attention window in tokens, or in rows and columns of patches",
}

# arguments that are integers in some families and spec values in others
COUNTS = {
    "positions": "the rows of the position table",
    "stem": "the width of the image stem",
}


class OfInstance:
    """A class attribute that each instance computes on access."""

    def __init__(self, compute: Callable[[Any], Any], of_class: Any = None) -> None:
        self.compute = compute
        self.of_class = of_class

    def __get__(self, family: Any, owner: type) -> Any:
        if family is not None:
            return self.compute(family)
        if self.of_class is None:
            raise AttributeError("only instances of Family have this attribute")
        return self.of_class


def call_parameters(family: Any) -> dict[str, Parameter]:
    """Return the arguments of a family with types in words; an argument set by the size has no
    default.
    """
    built = signature(family.build_spec).parameters
    size_arguments = family.sizes[next(iter(family.sizes))]
    examples = {f.argument: f.default for f in family.fields if f.argument != "std"}
    named = [p.name for p in built.values() if p.kind is not Parameter.VAR_KEYWORD]
    parameters = {}
    for name in dict.fromkeys((*size_arguments, *named, *examples, *SPEC_ARGUMENTS)):
        annotation = built[name].annotation if name in built else Any
        if annotation in (Any, Parameter.empty) and name not in SPEC_ARGUMENTS:
            example = size_arguments.get(name, examples.get(name))
            annotation = Any if example is None else type(example)
        default = built[name].default if name in built else None
        parameters[name] = Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if name in size_arguments else default,
            annotation=TypeInWords(type_in_words(annotation)),
        )
    return parameters


def call_signature(family: Any) -> Signature:
    """Return the signature for completion and help(); every argument is optional."""
    size = Parameter(
        "size",
        Parameter.POSITIONAL_OR_KEYWORD,
        default=next(iter(family.sizes)),
        annotation=TypeInWords("str"),
    )
    changes = [
        p.replace(default=None) if p.default is Parameter.empty else p
        for p in call_parameters(family).values()
    ]
    return Signature([size, *changes])


def check_arguments(family: Any, changes: dict[str, Any]) -> None:
    """Raise ValueError for an unknown argument, or one that is not a number or tuple of numbers
    where the family computes with it.
    """
    parameters = call_parameters(family)
    for name, change in changes.items():
        if name not in parameters:
            raise ValueError(f"{family.name} has no {name!r}; {suggest(name, sorted(parameters))}")
        annotation = parameters[name].annotation
        if annotation == "int" and not isinstance(change, int | None):
            raise ValueError(f"{family.name}: {name} = {change!r}; give a whole number")
        if annotation.startswith("tuple") and not isinstance(change, tuple | list | None):
            raise ValueError(
                f"{family.name}: {name} = {change!r}; give a tuple of numbers, one per stage"
            )


def argument_defaults(family: Any) -> dict[str, Any]:
    """Return the defaults of arguments that no size sets, from the builder or the family's spec."""
    parameters = call_parameters(family).values()
    of_spec = family.arguments_of(family())
    return {
        p.name: of_spec.get(p.name, p.default)
        for p in parameters
        if p.default is not Parameter.empty and p.name not in SPEC_ARGUMENTS
    }


def call_docstring(family: Any) -> str:
    """Return the docstring of one family: a summary, its size table, and each argument with its
    default.
    """
    module = sys.modules.get(family.build_spec.__module__)
    title = " ".join((getattr(module, "__doc__", None) or "").partition("\n\n")[0].split())
    if not title.lower().startswith(family.name):
        title = f"{family.name} ({family.paper}). {title}".rstrip()
    size, *_ = family.sizes
    lines = [
        title,
        "",
        f'Return a spec: weft.{family.name}("{size}") or weft.{family.name}("{size}", head=…). '
        "Arguments override those of the size.",
        "",
        "Sizes:",
        *(f"    {line}" for line in size_lines(family)),
        "",
        "Args:",
        f'    size: a size of the table (default: "{size}").',
    ]
    keys = {f.argument: f.keys[0] for f in family.fields if f.keys}
    defaults = argument_defaults(family)
    for p in call_parameters(family).values():
        default = "of the size" if p.default is Parameter.empty else "of the family"
        if p.name in defaults:
            default = format_inline(defaults[p.name])
        counts = COUNTS if p.annotation == "int" else {}
        text = counts.get(p.name) or ARGUMENTS.get(p.name, str(p.annotation))
        key = f"; {keys[p.name]} in config.json" if p.name in keys else ""
        lines.append(f"    {p.name}: {text} (default: {default}{key}).")
    return "\n".join([*lines, "", "Returns:", "    The spec, for `weft.build`.", ""])


def size_lines(family: Any) -> Iterator[str]:
    """Yield the size table, one column per argument."""
    columns = list(dict.fromkeys(name for row in family.sizes.values() for name in row))
    table = [["size", *columns]]
    for size, row in family.sizes.items():
        table.append([size, *(format_inline(row[c]) if c in row else "" for c in columns)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        padded = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        yield "  ".join([cells[0].ljust(widths[0]), *padded]).rstrip()
