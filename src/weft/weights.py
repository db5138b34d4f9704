"""The language of families: sizes, configuration fields and weight rows, each row true in both directions."""
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from . import spec as S
from .values import suggest

DEPTH = 4096                               # blocks of a stack; the deepest that was trained has 1,000 (DeepNet, arXiv:2203.00555)
CLASSES = 1 << 20

@dataclass(frozen=True)
class Row:
    """Our tensors are theirs, under other names. `{}` is an index; several names are stacked along the first axis;
    `how` names an invertible function of `interop.convert`."""
    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    how: str = "same"
    when: str = ""                         # only where the head or a feed-forward layer is of one of these kinds


@dataclass(frozen=True)
class Skip:
    """A foreign tensor that we do not need, and why."""
    theirs: str
    why: str


@dataclass(frozen=True)
class Alias:
    """A second foreign name for one tensor: must be equal where it stands in a file, unless its part is made fresh; never written."""
    theirs: str
    of: str
    part: str = "head"


Table = tuple[Row | Skip | Alias, ...]


def both(ours: str | tuple[str, ...], theirs: str, how: str = "same", when: str = "") -> tuple[Row, Row]:
    """The weight and the bias of one linear map or norm."""
    names = (ours,) if isinstance(ours, str) else ours
    return (Row(tuple(f"{n}.weight" for n in names), f"{theirs}.weight", how, when),
            Row(tuple(f"{n}.bias" for n in names), f"{theirs}.bias", how if how == "by_head" else "same", when))


def layer(ours: str, theirs: str, names: Mapping[str, str], how: str = "same") -> tuple[Row, ...]:
    """Weights and biases of all the parts of one layer."""
    return tuple(row for o, t in names.items() for row in both(f"{ours}.{o}", f"{theirs}.{t}", how))


def sizes(columns: str, /, **rows: tuple[Any, ...]) -> dict[str, dict[str, Any]]:
    """The paper's size table; in a name, `_` reads "-" and `__` reads "."."""
    return {name.lstrip("_").replace("__", ".").replace("_", "-"): dict(zip(columns.split(), row, strict=True))
            for name, row in rows.items()}


@dataclass(frozen=True)
class Way:
    """How a configuration value reads and writes."""
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


NAMES = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
         "quick_gelu": "gelu_sigmoid", "relu": "relu", "silu": "swish", "swish": "swish", "tanh": "tanh"}
FOREIGN = {"gelu": "gelu", "gelu_tanh": "gelu_new", "gelu_sigmoid": "quick_gelu", "relu": "relu", "swish": "silu", "tanh": "tanh"}


def read_activation(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"activation {name!r} is not in the design space; {suggest(name, sorted(NAMES))}")
    return NAMES[name]


ACTIVATION = Way(read_activation, FOREIGN.__getitem__)
PYTORCH_ACTIVATION = Way(read_activation, lambda name: "gelu_pytorch_tanh" if name == "gelu_tanh" else FOREIGN[name])   # not gelu_new
TUPLE = Way(tuple, list)
SAME = Way(lambda x: x, lambda x: x)


@dataclass(frozen=True)
class Field:
    """One argument of a family: its keys in config.json (all are written) and its place in the spec."""
    argument: str
    key: str | tuple[str, ...]
    path: str | Callable[[Any], Any]
    default: Any = None                    # what the other side means where the key is absent
    way: Way = SAME
    legacy: tuple[str, ...] = ()           # older keys, read only
    nullable: bool = False                 # a null in the file is a value of its own, not an absent key

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else self.key


SPECIAL = (Field("pad", "pad_token_id", "special.pad"), Field("begin", "bos_token_id", "special.begin"),
           Field("end", "eos_token_id", "special.end", way=Way(lambda x: tuple(x) if isinstance(x, list) else x,
                                                               lambda x: list(x) if isinstance(x, tuple) else x)),
           Field("start", "decoder_start_token_id", "special.start"))


def dig(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


@dataclass(frozen=True)
class Labels:
    """What a fine-tuned head's names are made from."""
    outputs: int = 2
    labels: tuple[str, ...] | None = None


HeadMaker = Callable[[Any, Labels], Any]    # the head of an architecture, given the rest of the model


@dataclass(frozen=True)
class Family:
    """A preset and its two-way tables. Call it for a spec: `bert("base")`, `bert("base", head=…)`, `bert(width=…, …)`."""
    name: str
    paper: str
    make: Callable[..., S.Model]
    sizes: Mapping[str, Mapping[str, Any]]
    model_type: str = ""                   # in config.json; "" where no other library has it
    fields: tuple[Field, ...] = ()
    table: Table = ()
    heads: Mapping[str, HeadMaker] = field(default_factory=dict)   # foreign class name -> head
    prefix: str = ""                       # of the base model's keys, absent in files of the bare model
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # keys of which we know these values; the first is written
    start: S.Start = S.Normal()
    context: str = ""                      # the key that holds the length it was trained for
    extra: Callable[[Any], Mapping[str, Any]] = lambda m: {}   # keys that follow from the others

    def __call__(self, size: str | None = None, **changes: Any) -> S.Model:
        if size is not None and size not in self.sizes:
            raise ValueError(f"{self.name} has no size {size!r}; {suggest(size, list(self.sizes))}")
        known = self.sizes[size or next(iter(self.sizes))]
        if changes:
            names = {*known, *(f.argument for f in self.fields), *inspect.signature(self.make).parameters,
                     "head", "start", "special", "context"}
            for name in set(changes) - names:
                raise ValueError(f"{self.name} has no {name!r}; {suggest(name, sorted(names - {'given', 'rest', 'std'}))}")
        outer: dict[str, Any] = {"start": self.start} | {k: changes.pop(k) for k in ("start", "special", "context") if k in changes}
        made = self.make(**{**known, **changes})
        return made if all(getattr(made, name) == part for name, part in outer.items()) else replace(made, **outer)

    def read(self, config: Mapping[str, Any]) -> S.Model:
        """The spec that a config.json describes."""
        for key, allowed in self.only.items():
            if dig(config, key) not in (*allowed, None):
                raise ValueError(f"config.json: {key} = {dig(config, key)!r} is not supported for {self.name}; "
                                 f"Weft knows {' or '.join(map(repr, allowed))}")
        given = {f.argument: self.field(f, config) for f in self.fields}
        bounded(given)
        std = given.pop("std", None)
        spec = self(next(iter(self.sizes)), **given)
        if std is not None and isinstance(spec.start, S.Normal):
            spec = replace(spec, start=replace(spec.start, std=std))
        spec = replace(spec, special=S.Special(**{f.argument: self.field(f, config) for f in SPECIAL}),
                       context=dig(config, self.context) if self.context else None)
        named = config.get("architectures") or [""]
        architecture = named if isinstance(named, str) else named[0]
        if architecture in self.heads:
            spec = replace(spec, head=self.heads[architecture](spec, read_labels(config)))
        elif architecture:
            raise ValueError(f"config.json: architecture {architecture!r} is not in the {self.name} table; "
                             f"{suggest(architecture, list(self.heads))}")
        return spec

    def field(self, f: Field, config: Mapping[str, Any]) -> Any:
        if f.nullable and any(key in config and config[key] is None for key in f.keys):
            return None
        for key in (*f.keys, *f.legacy):
            if (found := dig(config, key)) is not None:
                try:
                    return f.way.read(found)
                except ValueError as error:
                    raise ValueError(f"config.json: {key}: {error}") from None
        return f.default

    def write(self, spec: S.Model) -> dict[str, Any]:
        """The config.json of a spec; ValueError where this family cannot say it."""
        given = self.arguments(spec)
        again = self.again(spec, given)
        if again != spec:
            raise ValueError(f"this spec is not a {self.name}: {next(iter(differing(spec, again)), 'its parts')} differs")
        config: dict[str, Any] = {"architectures": [self.architecture(spec)], "model_type": self.model_type}
        for key, allowed in self.only.items():
            put_key(config, key, allowed[0])
        for f in (*self.fields, *SPECIAL):
            found = S.at(spec, f.path) if isinstance(f.path, str) and f in SPECIAL else given[f.argument]
            for key in f.keys:
                put_key(config, key, None if found is None and f in SPECIAL else f.way.write(found))
        for key, found in self.extra(spec).items():
            put_key(config, key, found)
        if self.context and spec.context:
            config[self.context] = spec.context
        return config | write_labels(spec.head)

    def again(self, spec: S.Model, given: Mapping[str, Any]) -> S.Model:
        """The family's spec with these arguments, and all else as in `spec`."""
        known = {k: v for k, v in given.items() if k != "std"}
        return replace(self(next(iter(self.sizes)), **known, head=spec.head), start=spec.start, special=spec.special, context=spec.context)

    def gap(self, spec: S.Model) -> list[str]:
        """The fields in which a spec differs from the nearest one that this family can say, with both values; [] where none is near."""
        try:
            again = self.again(spec, self.arguments(spec))
        except (ValueError, KeyError, TypeError, AttributeError):
            return []
        found = [f"{path} is {ours!r}, there {theirs!r}" for path, (ours, theirs) in differing(spec, again).items()]
        try:
            self.architecture(spec)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            found.append(str(error))
        return found

    def arguments(self, spec: S.Model) -> dict[str, Any]:
        given = {}
        for f in self.fields:
            try:
                given[f.argument] = f.path(spec) if callable(f.path) else S.at(spec, f.path)
            except (AttributeError, IndexError):
                if f.argument == "std":
                    given["std"] = 0.02
                    continue
                raise ValueError(f"this spec is not a {self.name}: it has no {f.path}") from None
        return given

    def head(self, name: str, spec: S.Model, outputs: int = 2, labels: tuple[str, ...] | None = None) -> Any:
        """The head of a published class, such as "BertForSequenceClassification", on this model."""
        if name not in self.heads:
            raise ValueError(f"{self.name} has no class {name!r}; {suggest(name, list(self.heads))}")
        return self.heads[name](spec, Labels(len(labels) if labels else outputs, labels))

    def architecture(self, spec: S.Model) -> str:
        labels = Labels(getattr(spec.head, "outputs", getattr(spec.head, "classes", 2)), getattr(spec.head, "labels", None))
        for name, head in self.heads.items():
            if head(spec, labels) == spec.head:
                return name
        alike = {name: made for name, head in self.heads.items() if type(made := head(spec, labels)) is type(spec.head)}
        differ = [f"{name} has {path} = {leaf!r}" for name, made in alike.items() for path, leaf in S.leaves(made)
                  if dict(S.leaves(spec.head)).get(path, S) != leaf]
        raise ValueError(f"{self.name} has no published class with this {type(spec.head).__name__} head"
                         + (f" ({differ[0]}; name the class: head={next(iter(alike))!r})" if differ else
                            f"; there is {', '.join(self.heads)}"))


def differing(one: Any, other: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Where two values differ, the outermost part that is of another kind or a plain field; `*` stands for every block."""
    if is_dataclass(one) and type(one) is type(other):
        parts = [(f"{path}.{f.name}".lstrip("."), getattr(one, f.name), getattr(other, f.name)) for f in fields(one)]
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other) and any(map(is_dataclass, one)):
        parts = [(f"{path}.*", a, b) for a, b in zip(one, other, strict=True)]
    else:
        return {} if one == other else {path: (one, other)}
    return {name: pair for at, a, b in parts if a != b for name, pair in differing(a, b, at).items()}


def bounded(given: Mapping[str, Any]) -> None:
    """ValueError for more blocks than any model has: a spec lists each, so that the number alone could fill the memory."""
    for name, found in given.items():
        for depth in (found if isinstance(found, tuple) else [found]) if "depth" in name else ():
            if isinstance(depth, int) and depth > DEPTH:
                raise ValueError(f"config.json: {name} = {depth:,}; a stack has at most {DEPTH:,} blocks")


def put_key(config: dict[str, Any], key: str, found: Any) -> None:
    *outer, last = key.split(".")
    for name in outer:
        config = config.setdefault(name, {})
    config[last] = found


def read_labels(config: Mapping[str, Any]) -> Labels:
    names, count = config.get("id2label"), config.get("num_labels") or 2
    if not isinstance(count, int) or not 0 < count <= CLASSES:
        raise ValueError(f"config.json: num_labels = {count!r}; a head has 1 to {CLASSES:,} classes")
    if not names:
        return Labels(count)
    try:
        ordered = tuple(names[k] for k in sorted(names, key=int))
    except (ValueError, TypeError, AttributeError):
        raise ValueError("config.json: id2label does not number its labels 0, 1, 2, …") from None
    plain = all(name == f"LABEL_{i}" for i, name in enumerate(ordered))
    return Labels(len(ordered), None if plain else ordered)


def write_labels(head: Any) -> dict[str, Any]:
    outputs = getattr(head, "outputs", getattr(head, "classes", None))
    if outputs is None:
        return {}
    names = head.labels or [f"LABEL_{i}" for i in range(outputs)]
    return {"id2label": {str(i): n for i, n in enumerate(names)}, "label2id": {n: i for i, n in enumerate(names)}}
