"""Reading and writing sentence-transformers' pooling files. JSON only, without torch."""

from pathlib import Path
from typing import Any, NamedTuple

from ... import spec as S
from ...support.folder_files import find_file
from ..json_files import parse_any, read_json_object

MODULES = "modules.json"
LENGTH = "sentence_bert_config.json"
MODEL = "config_sentence_transformers.json"
POOLINGS = {"cls": "cls", "mean": "mean", "max": "max", "lasttoken": "last"}
OLDER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SCORES = "scores"  # output key of a CrossEncoder's Dense module


class PoolingModules(NamedTuple):
    """The modules after the transformer."""

    pooling: str  # a value of ClassifierHead.pooling
    normalise: bool = False
    length: int | None = None  # maximum number of tokens
    dense: str | None = None  # directory of a classifier's linear map
    outputs: int = 0
    bias: bool = True


def read_modules(folder: Path) -> PoolingModules | None:
    """Return the content of modules.json and its module configs; None without one."""
    if not find_file(folder, MODULES):
        return None
    listed = parse_any(folder, MODULES)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"{folder / MODULES} is not a list of modules")
    modules = PoolingModules("mean")
    length = (
        read_json_object(folder, LENGTH).get("max_seq_length")
        if find_file(folder, LENGTH)
        else None
    )
    for one in listed:
        kind = str(one.get("type")).rpartition(".")[2]
        path = str(one.get("path") or "")
        if path and (Path(path).name != path or path.startswith(".")):
            raise ValueError(
                f"{folder / MODULES} names the path {path!r}; only sibling directories are allowed"
            )
        config = (
            read_json_object(folder, f"{path}/config.json")
            if path and find_file(folder, f"{path}/config.json")
            else {}
        )
        if kind == "Pooling":
            modules = modules._replace(pooling=pooling(config, folder / path))
        elif (
            kind == "Dense"
            and config.get("module_output_name") == SCORES
            and str(config.get("activation_function")).endswith("Identity")
        ):
            modules = modules._replace(
                dense=path, outputs=int(config["out_features"]), bias=bool(config.get("bias", True))
            )
        elif kind == "Normalize":
            modules = modules._replace(normalise=True)
        elif kind != "Transformer":
            raise ValueError(
                f"{folder / MODULES} names the module {kind}, which is not supported; available: "
                f"Transformer, Pooling, Normalize, and Dense for classification scores"
            )
    return modules._replace(length=length if isinstance(length, int) else None)


def pooling(config: dict[str, Any], folder: Path) -> str:
    modes = (
        config.get("pooling_mode")
        or [mode for key, mode in OLDER.items() if config.get(key)]
        or ["mean"]
    )
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ValueError(
            f"{folder / 'config.json'}: pooling {' and '.join(map(str, modes))} is not supported; "
            f"available: {', '.join(POOLINGS)}"
        )
    return POOLINGS[modes[0]]


def module_files(folder: Path) -> list[str]:
    """Return the files that modules.json refers to, relative to its directory."""
    if not find_file(folder, MODULES):
        return []
    listed = parse_any(folder, MODULES)
    paths = (
        [str(one.get("path") or "") for one in listed if isinstance(one, dict)]
        if isinstance(listed, list)
        else []
    )
    inner = [
        f"{path}/{name}"
        for path in paths
        if path and Path(path).name == path
        for name in ("config.json", "model.safetensors")
    ]
    return [name for name in (MODULES, LENGTH, MODEL, *inner) if find_file(folder, name)]


def cross_encoder_files(head: S.ClassifierHead, width: int, length: int | None) -> dict[str, Any]:
    """Return the config files of a CrossEncoder with pooling and a linear map; the map's tensors
    are stored in 2_Dense.
    """
    mode = next(name for name, ours in POOLINGS.items() if ours == head.pooling)
    kinds = {
        "": "base.modules.Transformer",
        "1_Pooling": "sentence_transformer.modules.Pooling",
        "2_Dense": "base.modules.Dense",
    }
    return {
        MODULES: [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kinds[path]}"}
            for i, path in enumerate(kinds)
        ],
        LENGTH: {"max_seq_length": length, "do_lower_case": False},
        MODEL: {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"},
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            "pooling_mode": mode,
            "include_prompt": True,
        },
        "2_Dense/config.json": {
            "in_features": width,
            "out_features": head.num_labels,
            "bias": head.bias,
            "module_output_name": SCORES,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    }
