"""Linformer attention: keys and values projected along the length, at linear cost
(arXiv:2006.04768, section 4).
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ... import spec as S
from ..kernels.masks import positions_of_tokens
from .attention import AttentionContext, AttentionLayer
from .roles import Role, with_role


class LinformerAttention(AttentionLayer):
    def __init__(self, spec: S.Attention, width: int) -> None:
        super().__init__(spec, width)
        assert isinstance(spec.pattern, S.Linformer)
        self.keys, self.values = (
            with_role(
                nn.Embedding(spec.pattern.length, spec.pattern.rank),
                Role.MATRIX,
                initialised_as=Role.TABLE,
            )
            for _ in range(2)
        )

    def attend(
        self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, context: AttentionContext
    ) -> Tensor:
        if context.positions.key_document_ids_BM is not None:
            raise ValueError(
                "Linformer mixes all keys, so it cannot separate packed documents; give one "
                "document per row"
            )
        mask_BM = context.positions.attention_mask_BM
        position_BM = context.positions.key_BM if mask_BM is None else positions_of_tokens(mask_BM)
        if k_BGMK.shape[2] > self.keys.num_embeddings:
            raise ValueError(
                f"{k_BGMK.shape[2]} tokens exceed Linformer.length = {self.keys.num_embeddings}; "
                "truncate them"
            )

        def narrow(table: nn.Embedding, t_BGMK: Tensor) -> Tensor:
            row_BMR = F.embedding(position_BM, table.weight)
            if mask_BM is not None:
                row_BMR = row_BMR * mask_BM[..., None]
            return row_BMR.transpose(1, 2)[:, None].to(t_BGMK.dtype) @ t_BGMK

        return self.backend(
            q_BHLK,
            narrow(self.keys, k_BGMK),
            narrow(self.values, v_BGMK),
            None,
            causal=False,
            scale=self.spec.scale,
            dropout=self.spec.dropout if self.training else 0.0,
            softcap=self.spec.softcap,
        )
