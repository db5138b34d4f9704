"""Names in other libraries, and what they are called here: one table for options, recipe paths and fields."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

MIN_PREFIX, MIN_SIMILARITY = (
    3,
    0.75,
)  # letters of a prefix; difflib's ratio below which two names are not alike


class Synonym(NamedTuple):
    """`targets` in order: an option, or a path of a recipe with a value that shows its form. `hint` where there is no such target."""

    names: str  # as people type them, in their short form
    meaning: str
    targets: tuple[str, ...] = ()
    hint: str = ""


def block_paths(path: str) -> tuple[str, ...]:
    """Return a path inside every block of either stack."""
    return tuple(f"model.{stack}.blocks.*.{path}" for stack in ("encoder", "decoder"))


SYNONYMS = (
    Synonym(
        "lr learning_rate base_lr max_lr peak_lr rates",
        "the learning rate",
        ("optimiser.lr=3e-4", "--learning-rates"),
    ),
    Synonym(
        "weight_decay wd",
        "the weight decay",
        ("optimiser.weight_decay=0.01", "optimiser.other.weight_decay=0.01"),
    ),
    Synonym(
        "beta1 beta2 adam_beta1 adam_beta2 adam_betas",
        "Adam's betas",
        ("optimiser.betas=[0.9, 0.95]",),
    ),
    Synonym("epsilon adam_epsilon adam_eps", "Adam's epsilon", ("optimiser.eps=1e-8",)),
    Synonym(
        "layer_decay layerwise_lr_decay llrd lr_decay",
        "the layer-wise decay of the learning rate",
        ("optimiser.layer_decay=0.9", "--layer-decay"),
    ),
    Synonym("optim optimizer", "the optimiser", ("optimiser=AdamW",)),
    Synonym(
        "scheduler lr_scheduler lr_schedule lr_scheduler_type",
        "the learning rate schedule",
        ("schedule=CosineSchedule",),
    ),
    Synonym(
        "warmup warmup_steps num_warmup_steps warmup_iters warmup_ratio",
        "the warmup steps",
        ("schedule.warmup_steps=100",),
    ),
    Synonym(
        "batch_size batch bs train_batch_size per_device_train_batch_size global_batch_size",
        "the rows per step",
        ("batch.size=32", "batch.tokens=4096", "--batch-size"),
    ),
    Synonym(
        "micro_batch_size mbs micro_batch gradient_accumulation_steps gradient_accumulation grad_accum accumulate_grad_batches",
        "the rows per forward pass",
        ("micro_batch_size=8",),
    ),
    Synonym(
        "seq_len seq_length sequence_length max_length max_len max_seq_length max_seq_len block_size context_length",
        "the tokens per row",
        ("batch.length=128", "--max-length"),
    ),
    Synonym(
        "steps max_steps num_steps train_steps total_steps iters iterations max_iters",
        "the number of steps",
        ("steps=1000", "--epochs"),
    ),
    Synonym(
        "epochs num_epochs max_epochs num_train_epochs",
        "the length of training, counted in steps,",
        ("steps=1000", "--epochs"),
    ),
    Synonym(
        "grad_clip gradient_clip gradient_clip_val max_grad_norm clip_grad clip_grad_norm clip_norm",
        "gradient clipping",
        ("grad_clip=1.0",),
    ),
    Synonym(
        "bf16 fp16 half amp mixed_precision dtype torch_dtype fp32 precision",
        "the precision",
        ("--precision", "precision=bf16"),
    ),
    Synonym(
        "out output output_dir out_dir save_dir run_dir log_dir logging_dir",
        "the output",
        ("--output",),
    ),
    Synonym("in input input_file input_path", "the input", ("--input",)),
    Synonym("seed random_seed manual_seed random_state", "the seed", ("seed=1", "--seed")),
    Synonym(
        "num_workers dataloader_num_workers workers num_proc",
        "the data loading processes",
        ("workers=2", "--workers"),
    ),
    Synonym(
        "eval_every eval_steps eval_interval eval_freq val_interval val_check_interval validate_every",
        "the steps between validations",
        ("eval_every=500",),
    ),
    Synonym(
        "save_every save_steps save_interval save_freq checkpoint_every checkpoint_interval",
        "the steps between checkpoints",
        ("checkpoints.every_steps=500",),
    ),
    Synonym(
        "save_total_limit keep_last max_checkpoints",
        "the number of checkpoints kept",
        ("checkpoints.keep=2",),
    ),
    Synonym(
        "gradient_checkpointing activation_checkpointing grad_checkpointing recompute",
        "activation checkpointing",
        ("activation_checkpointing=true",),
    ),
    Synonym("compile torch_compile", "torch.compile", ("compile=true",)),
    Synonym("ema ema_decay use_ema", "the moving average of the weights", ("average=EMA",)),
    Synonym(
        "init_from pretrained load_from start_from weights checkpoint ckpt model_name_or_path",
        "the model to start from",
        ("init_from=FOLDER",),
    ),
    Synonym("from_pretrained load_model AutoModel load_checkpoint", "a model's weights", ("load",)),
    Synonym(
        "label_smoothing label_smoothing_factor", "label smoothing", ("task.label_smoothing=0.1",)
    ),
    Synonym(
        "mask_rate mask_prob mask_probability mlm_probability",
        "the share of tokens that are masked",
        ("task.mask_rate=0.15",),
    ),
    Synonym(
        "vocab vocab_size n_vocab",
        "the vocabulary size",
        ("model.source.vocab_size=32000", "tokenizer.vocab_size=32000", "--vocab-size"),
    ),
    Synonym(
        "hidden_size d_model n_embd embed_dim hidden_dim model_dim dim",
        "the model's width",
        ("model.width=256",),
    ),
    Synonym(
        "num_heads n_head n_heads num_attention_heads",
        "the attention heads",
        block_paths("attention.inner.heads=4"),
    ),
    Synonym(
        "num_layers n_layer n_layers num_hidden_layers num_blocks depth",
        "the number of blocks",
        ("model.encoder.depth=6", "model.decoder.depth=6"),
    ),
    Synonym(
        "intermediate_size d_ff dim_feedforward ffn_dim mlp_dim n_inner",
        "the feed-forward width",
        block_paths("feedforward.inner.hidden=1024"),
    ),
    Synonym(
        "attention_dropout attn_dropout attention_probs_dropout_prob",
        "the attention dropout",
        block_paths("attention.inner.dropout=0.1"),
    ),
    Synonym(
        "hidden_dropout hidden_dropout_prob resid_dropout residual_dropout dropout",
        "the dropout of each branch",
        (
            *block_paths("attention.dropout=0.1"),
            *block_paths("feedforward.dropout=0.1"),
            "--dropout",
        ),
    ),
    Synonym(
        "drop_path stochastic_depth", "stochastic depth", block_paths("attention.drop_path=0.1")
    ),
    Synonym(
        "norm_first pre_norm post_norm norm_placement",
        "the place of the norms",
        block_paths("norm=pre"),
    ),
    Synonym(
        "positions max_position_embeddings n_positions n_ctx",
        "the number of positions",
        ("model.source.positions.count=512",),
    ),
    Synonym(
        "max_new_tokens max_tokens max_gen_len most",
        "the number of tokens to generate",
        ("--max-new-tokens",),
    ),
    Synonym("num_beams beam_size beam_width beam", "the number of beams", ("--num-beams",)),
    Synonym("length_penalty alpha", "the length penalty", ("--length-penalty",)),
    Synonym("repetition_penalty repetition", "the repetition penalty", ("--repetition-penalty",)),
    Synonym(
        "num_return_sequences num_samples best",
        "the number of answers",
        ("--num-return", "--num-samples"),
    ),
    Synonym("do_sample sample", "sampling", ("--temperature",)),
    Synonym("assistant_model draft_model draft", "the draft model", ("--draft-model",)),
    Synonym("pooling pooling_mode", "the pooling", ("--pooling", "pooling")),
    Synonym("normalize normalize_embeddings", "normalisation", ("--normalise",)),
    Synonym(
        "train_file dataset dataset_name data_dir data_path train_data on",
        "the data",
        ('data.train.paths=["FILE"]', "--data"),
    ),
    Synonym(
        "valid_file validation_file val_data eval_data dev_file dev",
        "the validation data",
        ('data.valid.paths=["FILE"]', "--valid"),
    ),
    Synonym(
        "wandb report_to logger log_with tensorboard mlflow trackio",
        "logging",
        ("--log-to", "loggers=TensorBoard"),
    ),
    Synonym(
        "check",
        "the proof of exact resume",
        ("--verify",),
    ),
    Synonym(
        "resume resume_from resume_from_checkpoint auto_resume continue restart",
        "",
        hint="a run continues by itself: give the same command again, or weft resume RUN",
    ),
    Synonym(
        "device cuda gpu gpus n_gpu num_gpus cpu no_cuda use_cpu mps accelerator devices",
        "the device",
        ("--kind", "--device", "device=cuda"),
    ),
)


def normalise_name(name: str) -> str:
    """Return letters and digits only, so that --batch-size, batch_size and batchSize are one name."""
    return re.sub(r"[\W_]+", "", name).lower()


SYNONYM_OF = {normalise_name(name): word for word in SYNONYMS for name in word.names.split()}


def last_name(place: str) -> str:
    """Return the last name of a path."""
    return place.partition("=")[0].rpartition(".")[2]


def closest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the known name for this one: another spelling, a word of another library, its prefix, or a similar name; None if there is
    none."""
    by_plain = {normalise_name(name): name for name in reversed(list(names))}
    normalised = normalise_name(name)
    if normalised in by_plain or not normalised:
        return by_plain.get(normalised) if normalised else None
    for place in SYNONYM_OF[normalised].targets if normalised in SYNONYM_OF else ():
        if normalise_name(last_name(place)) in by_plain:
            return by_plain[normalise_name(last_name(place))]
    begin = (
        [name for name in by_plain if name.startswith(normalised)]
        if len(normalised) >= MIN_PREFIX
        else []
    )
    near = (
        begin
        if len(begin) == 1
        else get_close_matches(normalised, by_plain, n=1, cutoff=MIN_SIMILARITY)
    )
    return by_plain[near[0]] if near else None


def suggest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = closest_name(name, names)
    return f"did you mean {near!r}?" if near else f"there is {', '.join(names)}"


VERBS = {  # as other tools call them
    "convert": "export",
    "save": "export",
    "finetune": "tune",
    "fine-tune": "tune",
    "pretrain": "train",
    "fit": "train",
    "preprocess": "prepare",
    "tokenize": "prepare",
    "test": "evaluate",
    "validate": "evaluate",
    "complete": "generate",
    "chat": "generate",
    "sample": "generate",
    "summarize": "translate",
    "predict": "classify",
    "ner": "tag",
    "qa": "answer",
    "encode": "embed",
    "visualize": "look",
    "list": "families",
    "info": "show",
    "init": "new",
}


def suggest_verb(name: str, verbs: Iterable[str]) -> str:
    """Return what to use instead of an unknown verb."""
    return f"did you mean {VERBS[name]!r}?" if name in VERBS else suggest(name, verbs)


def suggest_option(name: str, known: list[str]) -> str:
    """Return what to use instead of an unknown option."""
    name = name.partition("=")[0]
    word = SYNONYM_OF.get(normalise_name(name), Synonym("", ""))
    available = [place for place in word.targets if place in known]
    available += [f"--set {place}" for place in word.targets if "=" in place and "--set" in known]
    if available:
        return f"set {word.meaning} with {available[0]}"
    return word.hint or suggest(name, known)
