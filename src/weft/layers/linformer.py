"""Attention at linear cost: keys and values projected along the length (Linformer, arXiv:2006.04768, section 4)."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import spec as S
from .attention import Attention, View
from .roles import Role, with_role
from .sequence import count_positions


class LinformerAttention(Attention):
    def __init__(self, s: S.Attention, width: int) -> None:
        super().__init__(s, width)
        assert isinstance(s.pattern, S.Linformer)
        self.keys, self.values = (with_role(nn.Embedding(s.pattern.length, s.pattern.rank), Role.MATRIX) for _ in range(2))

    def attend(self, q_BHLK: Tensor, k_BGMK: Tensor, v_BGMK: Tensor, view: View) -> Tensor:
        keep_BM = view.pair.key_keep_BM
        position_BM = view.pair.key_BM if keep_BM is None else count_positions(keep_BM)
        if k_BGMK.shape[2] > self.keys.num_embeddings:
            raise ValueError(f"{k_BGMK.shape[2]} tokens are more than Linformer's length, {self.keys.num_embeddings}")

        def narrow(table: nn.Embedding, t_BGMK: Tensor) -> Tensor:
            row_BMR = F.embedding(position_BM, table.weight)
            if keep_BM is not None:
                row_BMR = row_BMR * (keep_BM != 0)[..., None]
            return row_BMR.transpose(1, 2)[:, None].to(t_BGMK.dtype) @ t_BGMK

        if keep_BM is not None and keep_BM.dtype != torch.bool:
            raise ValueError("Linformer mixes all keys, so it cannot part packed documents; give one document a row")
        return self.kernel(q_BHLK, narrow(self.keys, k_BGMK), narrow(self.values, v_BGMK), None, causal=False,
                           scale=self.s.scale, dropout=self.s.dropout if self.training else 0.0, softcap=self.s.softcap)
