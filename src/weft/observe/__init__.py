"""Inspection of models: attention maps, logit lens, and the page of `weft look`."""

from .attention import AttentionPlace, attention_maps, attention_places
from .figure import save_observation
from .lens import layer_states, logit_lens
from .measures import attention_entropy, attention_rollout, token_view
from .page import page_html
from .panels import AttentionPanel, Observation
from .record import Recording, attention_panels, record
from .spread import Spread, output_states, spread
from .vision import attention_distance, patch_filters, position_similarity, windows_on_grid

__all__ = [
    "AttentionPanel",
    "AttentionPlace",
    "Observation",
    "Recording",
    "Spread",
    "attention_distance",
    "attention_entropy",
    "attention_maps",
    "attention_panels",
    "attention_places",
    "attention_rollout",
    "layer_states",
    "logit_lens",
    "output_states",
    "page_html",
    "patch_filters",
    "position_similarity",
    "record",
    "save_observation",
    "spread",
    "token_view",
    "windows_on_grid",
]
