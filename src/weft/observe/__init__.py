"""Looking inside, without a flag in the model."""

from .attention import attention_maps

__all__ = ["attention_maps"]
