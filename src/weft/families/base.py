"""The `Family` class: sizes, configuration fields and weight names of an architecture.

Fields and weight rows convert in both directions, from and to published files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import spec as S
from ..support.registry import Named, place_of
from ..support.synonyms import suggest
from ..support.values import UnknownPath, differing_fields
from .describe import OfInstance, call_docstring, call_signature, check_arguments
from .weights import WeightTable

DEPTH = 4096  # blocks of a stack; the deepest trained stack has 1,000 (DeepNet, arXiv:2203.00555)
CLASSES = 1 << 20


def size_table(columns: str, /, **rows: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """Return the paper's size table; in the name of a size, `_` becomes "-" and `__` becomes
    ".".
    """
    return {
        name.lstrip("_").replace("__", ".").replace("_", "-"): dict(
            zip(columns.split(), row, strict=True)
        )
        for name, row in rows.items()
    }


@dataclass(frozen=True)
class Codec:
    """A pair of functions that read and write a configuration value."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
HF_ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "tanh": "tanh",
}


def read_activation(name: str) -> str:
    if name not in ACTIVATION_NAMES:
        raise ValueError(
            f"activation {name!r} is not supported; {suggest(name, sorted(ACTIVATION_NAMES))}"
        )
    return ACTIVATION_NAMES[name]


ACTIVATION_CODEC = Codec(read_activation, HF_ACTIVATION_NAMES.__getitem__)
# not gelu_new
PYTORCH_ACTIVATION_CODEC = Codec(
    read_activation,
    lambda name: "gelu_pytorch_tanh" if name == "gelu_tanh" else HF_ACTIVATION_NAMES[name],
)
TUPLE_CODEC = Codec(tuple, list)
IDENTITY_CODEC = Codec(lambda x: x, lambda x: x)


@dataclass(frozen=True)
class ConfigField:
    """One argument of a family: its keys in config.json (all are written) and its path in the
    spec.
    """

    argument: str
    key: str | tuple[str, ...]
    path: str | Callable[[Any], Any]
    default: Any = None  # the value of a config.json without the key
    codec: Codec = IDENTITY_CODEC
    legacy: tuple[str, ...] = ()  # older keys, which are read but not written
    nullable: bool = False  # whether null in the file is a value and not an absent key

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key


SPECIAL_TOKEN_FIELDS = (
    ConfigField("pad", "pad_token_id", "special_tokens.pad"),
    ConfigField("bos", "bos_token_id", "special_tokens.bos"),
    ConfigField(
        "eos",
        "eos_token_id",
        "special_tokens.eos",
        codec=Codec(
            lambda x: tuple(x) if isinstance(x, list) else x,
            lambda x: list(x) if isinstance(x, tuple) else x,
        ),
    ),
    ConfigField("decoder_start", "decoder_start_token_id", "special_tokens.decoder_start"),
)


def get_nested(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


@dataclass(frozen=True)
class LabelNames:
    """The inputs of a fine-tuned head's weight names."""

    outputs: int = 2
    labels: tuple[str, ...] | None = None


# builds the head of an architecture from the rest of the model
HeadBuilder = Callable[[Any, LabelNames], Any]


@dataclass(frozen=True)
class Family(Named):
    """An architecture: call it to get a spec, as in `bert("base")`, `bert("base", head=…)` or
    `bert(width=…, …)`.

    `weft.register(weft.Family(…))` in your own file adds a family, which is then found by its name
    and by the `model_type` of a config.json.

    Attributes:
        name: the name on the command line.
        paper: the citation.
        build_spec: a function from the columns of `sizes` and the arguments of `fields` to a spec.
        sizes: the paper's size table; the first size is the default.
        model_type: the model_type in config.json; "" if no other library has the architecture.
        fields: the keys of config.json.
        table: one row per tensor in a published file.
        heads: the name of each published class with a function that builds its head.
        prefix: the prefix of the base model's keys, absent in files of the bare model.
        supported_values: keys of config.json with the values that Weft supports; the first is
            written.
        init: the initialisation of new weights.
        context_length_key: the key of config.json with the trained length.
        derived_config: a function from a spec to the keys of config.json that follow from the
            others.
        decoder_start: the first token of a decoder after an encoder, if config.json names none:
            "pad" (T5), "eos" (BART) or "bos".
        training_length: tokens per row in training, for all sizes or by size, if no position table
            implies it.
    """

    name: str
    paper: str
    build_spec: Callable[..., S.Spec]
    sizes: Mapping[str, Mapping[str, Any]]
    model_type: str = ""
    fields: tuple[ConfigField, ...] = ()
    table: WeightTable = ()
    heads: Mapping[str, HeadBuilder] = field(default_factory=dict)
    prefix: str = ""
    supported_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    init: S.Init = S.NormalInit()
    context_length_key: str = ""
    derived_config: Callable[[Any], Mapping[str, Any]] = lambda m: {}
    decoder_start: str = "bos"
    training_length: int | Mapping[str, int] | None = None

    __signature__ = OfInstance(call_signature)

    def __repr__(self) -> str:
        return f"weft.{self.name}"

    @property
    def origin(self) -> tuple[str, str]:
        return place_of(self.build_spec)

    def __call__(self, size: str | None = None, **changes: Any) -> S.Spec:
        """Return the spec of a size.

        Args:
            size: a row of the size table (default: the first).
            changes: arguments that replace those of the size, such as dropout=0.0 or head=….

        Raises:
            ValueError: for an unknown size or argument, or an invalid combination.
        """
        if size is not None and size not in self.sizes:
            near = suggest(str(size), list(self.sizes))
            raise ValueError(f"{self.name} has no size {size!r}; {near}")
        size_arguments = self.sizes[size or next(iter(self.sizes))]
        if changes:
            check_arguments(self, changes)
        outer: dict[str, Any] = {"init": self.init} | {
            k: changes.pop(k) for k in ("init", "special_tokens", "context_length") if k in changes
        }
        spec = self.build_spec(**{**size_arguments, **changes})
        return (
            spec
            if all(getattr(spec, name) == part for name, part in outer.items())
            else replace(spec, **outer)
        )

    def parameter_count(self, size: str) -> int:
        """Return the arguments of a size, without metadata of its spec such as `init`."""
        return self.build_spec(**self.sizes[size]).parameter_count()

    def from_config(self, config: Mapping[str, Any]) -> S.Spec:
        """Return the spec of a config.json."""
        for key, allowed in self.supported_values.items():
            if get_nested(config, key) not in (*allowed, None):
                raise ValueError(
                    f"config.json: {key} = {get_nested(config, key)!r} is not supported for "
                    f"{self.name}; "
                    f"supported: {', '.join(map(repr, allowed))}"
                )
        arguments = {f.argument: self.read_field(f, config) for f in self.fields}
        bounded(arguments)
        std = arguments.pop("std", None)
        spec = self(next(iter(self.sizes)), **arguments)
        if std is not None and isinstance(spec.init, S.NormalInit):
            spec = replace(spec, init=replace(spec.init, std=std))
        spec = replace(
            spec,
            special_tokens=S.SpecialTokens(
                **{f.argument: self.read_field(f, config) for f in SPECIAL_TOKEN_FIELDS}
            ),
            context_length=get_nested(config, self.context_length_key)
            if self.context_length_key
            else None,
        )
        named = config.get("architectures") or [""]
        architecture = named if isinstance(named, str) else named[0]
        if architecture in self.heads:
            spec = replace(spec, head=self.heads[architecture](spec, read_labels(config)))
        elif architecture:
            raise ValueError(
                f"config.json: architectures = {architecture!r} is not supported for {self.name}; "
                f"{suggest(architecture, list(self.heads))}"
            )
        return spec

    def read_field(self, f: ConfigField, config: Mapping[str, Any]) -> Any:
        if f.nullable and any(key in config and config[key] is None for key in f.keys):
            return None
        for key in (*f.keys, *f.legacy):
            if (raw := get_nested(config, key)) is not None:
                try:
                    return f.codec.read(raw)
                except ValueError as error:
                    raise ValueError(f"config.json: {key}: {error}") from None
        return f.default

    def to_config(self, spec: S.Spec) -> dict[str, Any]:
        """Return the config.json of a spec; ValueError if this family cannot express it."""
        arguments = self.arguments_of(spec)
        again = self.rebuild(spec, arguments)
        if again != spec:
            raise ValueError(
                f"{self.name} cannot express this spec: "
                f"{next(iter(differing_fields(spec, again)), 'its structure')} differs"
            )
        config: dict[str, Any] = {
            "architectures": [self.class_name_of(spec)],
            "model_type": self.model_type,
        }
        for key, allowed in self.supported_values.items():
            set_nested(config, key, allowed[0])
        for f in (*self.fields, *SPECIAL_TOKEN_FIELDS):
            argument = (
                S.get_path(spec, f.path)
                if isinstance(f.path, str) and f in SPECIAL_TOKEN_FIELDS
                else arguments[f.argument]
            )
            for key in f.keys:
                set_nested(
                    config,
                    key,
                    None
                    if argument is None and f in SPECIAL_TOKEN_FIELDS
                    else f.codec.write(argument),
                )
        for key, argument in self.derived_config(spec).items():
            set_nested(config, key, argument)
        if self.context_length_key and spec.context_length:
            config[self.context_length_key] = spec.context_length
        return config | write_labels(spec.head)

    def rebuild(self, spec: S.Spec, changes: Mapping[str, Any]) -> S.Spec:
        """Return the family's spec with these arguments; all other fields are those of `spec`."""
        arguments = {k: v for k, v in changes.items() if k != "std"}
        return replace(
            self(next(iter(self.sizes)), **arguments, head=spec.head),
            init=spec.init,
            special_tokens=spec.special_tokens,
            context_length=spec.context_length,
        )

    def explain_differences(self, spec: S.Spec) -> list[str]:
        """Return the fields, with both values, in which a spec differs from the nearest one that
        this family can express; [] if none is near.
        """
        try:
            again = self.rebuild(spec, self.arguments_of(spec))
        except (ValueError, KeyError, TypeError, AttributeError):
            return []
        differences = [
            f"{path} is {ours!r}, there {theirs!r}"
            for path, (ours, theirs) in differing_fields(spec, again).items()
        ]
        try:
            self.class_name_of(spec)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            differences.append(str(error))
        return differences

    def arguments_of(self, spec: S.Spec) -> dict[str, Any]:
        arguments = {}
        for f in self.fields:
            try:
                arguments[f.argument] = (
                    f.path(spec) if callable(f.path) else S.get_path(spec, f.path)
                )
            except (AttributeError, IndexError, UnknownPath):
                if f.argument == "std":
                    arguments["std"] = 0.02
                    continue
                raise ValueError(
                    f"{self.name} cannot express this spec: it has no {f.path}"
                ) from None
        return arguments

    def head_of_class(
        self, name: str, spec: S.Spec, outputs: int = 2, labels: tuple[str, ...] | None = None
    ) -> Any:
        """Return the head of a published class, such as "BertForSequenceClassification", for this
        model.
        """
        if name not in self.heads:
            raise ValueError(
                f"{self.name} has no class {name!r}; {suggest(name, list(self.heads))}"
            )
        return self.heads[name](spec, LabelNames(len(labels) if labels else outputs, labels))

    def class_name_of(self, spec: S.Spec) -> str:
        labels = LabelNames(
            getattr(spec.head, "num_labels", 2),
            getattr(spec.head, "labels", None),
        )
        for name, head in self.heads.items():
            if head(spec, labels) == spec.head:
                return name
        alike = {
            name: task_head
            for name, head in self.heads.items()
            if type(task_head := head(spec, labels)) is type(spec.head)
        }
        differ = [
            f"{name} has {path} = {leaf!r}"
            for name, head in alike.items()
            for path, leaf in S.iterate_leaves(head)
            if dict(S.iterate_leaves(spec.head)).get(path, S) != leaf
        ]
        raise ValueError(
            f"{self.name} has no published class with this {type(spec.head).__name__} head"
            + (
                f" ({differ[0]}; name the class: head={next(iter(alike))!r})"
                if differ
                else f"; there is {', '.join(self.heads)}"
            )
        )


# help(weft.bert) shows the sizes and arguments of BERT; help(weft.Family) shows the class.
Family.__doc__ = OfInstance(call_docstring, Family.__doc__)  # type: ignore[assignment]


def bounded(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for an implausible number of blocks: a spec lists each block, so a large
    number would exhaust memory.
    """
    for name, value in arguments.items():
        depths = value if isinstance(value, tuple) else (value,)
        for depth in depths:
            if "depth" in name and isinstance(depth, int) and depth > DEPTH:
                raise ValueError(
                    f"config.json: {name} = {depth:,}; a stack has at most {DEPTH:,} blocks"
                )


def set_nested(config: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    for name in outer:
        config = config.setdefault(name, {})
    config[last] = value


def read_labels(config: Mapping[str, Any]) -> LabelNames:
    names = config.get("id2label")
    count = config.get("num_labels") or 2
    if not isinstance(count, int) or not 0 < count <= CLASSES:
        raise ValueError(
            f"config.json: num_labels = {count!r}; a head has 1 to {CLASSES:,} classes"
        )
    if not names:
        return LabelNames(count)
    try:
        ordered = tuple(names[k] for k in sorted(names, key=int))
    except (ValueError, TypeError, AttributeError):
        raise ValueError("config.json: id2label does not number its labels 0, 1, 2, …") from None
    plain = all(name == f"LABEL_{i}" for i, name in enumerate(ordered))
    return LabelNames(len(ordered), None if plain else ordered)


def write_labels(head: Any) -> dict[str, Any]:
    outputs = getattr(head, "num_labels", None)
    if outputs is None:
        return {}
    names = head.labels or [f"LABEL_{i}" for i in range(outputs)]
    return {
        "id2label": {str(i): n for i, n in enumerate(names)},
        "label2id": {n: i for i, n in enumerate(names)},
    }
