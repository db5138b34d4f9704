"""Fine-tuning at a higher resolution: learned positions stretch as transformers stretches them (ViT, section 3.2)."""
import pytest
import torch
import transformers as T

import weft


@pytest.mark.parametrize("side", [48, 24])
def test_positions_stretch_to_another_image_size_as_in_transformers(side: int, tmp_path: object) -> None:
    torch.manual_seed(0)
    other = T.ViTForImageClassification(T.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=64,
                                                    image_size=32, patch_size=8, num_labels=5)).eval()
    with torch.no_grad():
        for p in other.parameters():
            p.normal_(0, 0.2)
    other.save_pretrained(tmp_path)
    image = torch.randn(2, 3, side, side)
    with torch.no_grad():
        truth = other(image, interpolate_pos_encoding=True).logits
        found = weft.load(tmp_path)(image)
    assert (found - truth).abs().max() <= 1e-5
