"""Looking inside, without a flag in the model."""

from .attention import AttentionPlace, attention_maps, attention_places
from .lens import layer_states, logit_lens
from .measures import attention_entropy, attention_rollout, token_view

__all__ = [
    "AttentionPlace",
    "attention_entropy",
    "attention_maps",
    "attention_places",
    "attention_rollout",
    "layer_states",
    "logit_lens",
    "token_view",
]
