"""The closest known name for an unknown one, by spelling or by the terms of other libraries."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# Minimum letters of an abbreviated name
MIN_PREFIX = 3
# Minimum difflib ratio of similar names
MIN_SIMILARITY = 0.75


def block_paths(path: str) -> tuple[str, ...]:
    """Return a path inside every block of either stack."""
    return tuple(f"model.{stack}.blocks.*.{path}" for stack in ("encoder", "decoder"))


# Names in other libraries, and their equivalents here in order: an option, or a recipe path with an
# example value.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "lr learning_rate base_lr max_lr peak_lr": ("optimiser.lr=3e-4", "--learning-rates"),
    "weight_decay wd": ("optimiser.weight_decay=0.01", "optimiser.other.weight_decay=0.01"),
    "adam_beta1 adam_beta2 beta1 beta2": ("optimiser.betas=[0.9, 0.95]",),
    "layerwise_lr_decay llrd": ("optimiser.layer_decay=0.9", "--layer-decay"),
    "lr_scheduler_type lr_scheduler": ("schedule=CosineSchedule",),
    "num_warmup_steps warmup warmup_ratio": ("schedule.warmup_steps=100",),
    "batch_size train_batch_size per_device_train_batch_size": (
        "batch.size=32",
        "batch.tokens=4096",
        "--batch-size",
    ),
    "gradient_accumulation_steps grad_accum micro_batch": ("micro_batch_size=8",),
    "max_length max_seq_length seq_len block_size context_length": (
        "batch.length=128",
        "--max-length",
    ),
    "max_steps steps iters max_iters": ("steps=1000", "--epochs"),
    "epochs num_train_epochs": ("steps=1000", "--epochs"),
    "max_grad_norm gradient_clip_val clip_grad_norm": ("grad_clip=1.0",),
    "bf16 fp16 amp mixed_precision dtype torch_dtype": ("--precision", "precision=bf16"),
    "out output_dir save_dir run_dir": ("--output",),
    "seed random_state": ("seed=1", "--seed"),
    "num_workers dataloader_num_workers num_proc": ("workers=2", "--workers"),
    "eval_steps eval_interval val_check_interval": ("eval_every=500",),
    "save_steps save_interval checkpoint_interval": ("checkpoints.every_steps=500",),
    "save_total_limit keep_last": ("checkpoints.keep=2",),
    "gradient_checkpointing recompute": ("activation_checkpointing=true",),
    "torch_compile": ("compile=true",),
    "ema use_ema": ("average=EMA",),
    "pretrained model_name_or_path ckpt": ("init_from=FOLDER",),
    "from_pretrained load_checkpoint": ("load",),
    "mlm_probability": ("task.mask_rate=0.15",),
    "vocab_size": (
        "model.source.vocab_size=32000",
        "tokenizer.vocab_size=32000",
        "--vocab-size",
    ),
    "hidden_size d_model n_embd embed_dim": ("model.width=256",),
    "num_heads n_head num_attention_heads": block_paths("attention.inner.heads=4"),
    "num_layers n_layer num_hidden_layers": ("model.encoder.depth=6", "model.decoder.depth=6"),
    "intermediate_size d_ff dim_feedforward mlp_dim": block_paths("feedforward.inner.hidden=1024"),
    "attention_probs_dropout_prob attn_dropout": block_paths("attention.inner.dropout=0.1"),
    "hidden_dropout_prob resid_dropout": (
        *block_paths("attention.dropout=0.1"),
        *block_paths("feedforward.dropout=0.1"),
        "--dropout",
    ),
    "stochastic_depth": block_paths("attention.drop_path=0.1"),
    "norm_first pre_norm post_norm": block_paths("norm=pre"),
    "max_position_embeddings n_positions n_ctx": ("model.source.positions.count=512",),
    "beam_size beam_width": ("--num-beams",),
    "num_return_sequences": ("--num-return", "--num-samples"),
    "do_sample": ("--temperature",),
    "assistant_model": ("--draft-model",),
    "train_file dataset data_dir": ('data.train.paths=["FILE"]', "--data"),
    "validation_file eval_data": ('data.valid.paths=["FILE"]', "--valid"),
    "report_to logger wandb tensorboard mlflow": ("--log-to", "loggers=TensorBoard"),
    "gpu gpus num_gpus cuda cpu no_cuda accelerator": ("--kind", "--device", "device=cuda"),
}


def normalise_name(name: str) -> str:
    """Return only letters and digits, so that --batch-size, batch_size and batchSize are equal."""
    return re.sub(r"[\W_]+", "", name).lower()


PLACES = {normalise_name(name): SYNONYMS[names] for names in SYNONYMS for name in names.split()}


def places_of(name: str) -> tuple[str, ...]:
    """Return the options and paths for a name of another library; none if it is unknown."""
    return PLACES.get(normalise_name(name), ())


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the known name for this one: another spelling, a term of another library, its prefix,
    or a similar name; None if there is none."""
    by_normal_name = {normalise_name(name): name for name in reversed(list(names))}
    plain = normalise_name(name)
    elsewhere = [place.partition("=")[0].rpartition(".")[2] for place in places_of(name)]
    for candidate in (plain, *map(normalise_name, elsewhere)):
        if candidate and candidate in by_normal_name:
            return by_normal_name[candidate]
    longer = [
        other for other in by_normal_name if len(plain) >= MIN_PREFIX and other.startswith(plain)
    ]
    if len(longer) == 1:
        return by_normal_name[longer[0]]
    near = get_close_matches(plain, by_normal_name, n=1, cutoff=MIN_SIMILARITY)
    return by_normal_name[near[0]] if near else None


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a question with the closest name, or a list of all names if none is close."""
    names = list(names)
    near = closest_name(name, names)
    return f"did you mean {near!r}?" if near else f"available: {', '.join(names)}"


# Commands of other tools with dissimilar spelling
VERBS = {
    "convert": "export",
    "finetune": "tune",
    "pretrain": "train",
    "fit": "train",
    "tokenize": "prepare",
    "validate": "evaluate",
    "chat": "generate",
    "summarize": "translate",
    "predict": "classify",
    "ner": "tag",
    "qa": "answer",
    "encode": "embed",
    "visualize": "look",
    "init": "new",
}


def suggest_verb(name: str, verbs: Iterable[str]) -> str:
    """Return a suggestion for an unknown command."""
    return f"did you mean {VERBS[name]!r}?" if name in VERBS else suggest(name, verbs)


def suggest_option(name: str, options_of_verb: list[str]) -> str:
    """Return a suggestion for an unknown option."""
    name = name.partition("=")[0]
    places = places_of(name)
    options = [place for place in places if place in options_of_verb]
    if "--set" in options_of_verb:
        options += [f"--set {place}" for place in places if "=" in place]
    return f"did you mean {options[0]}?" if options else suggest(name, options_of_verb)
