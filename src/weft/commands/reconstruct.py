"""The command `weft reconstruct`: images rebuilt by a masked autoencoder."""

from dataclasses import dataclass
from typing import Annotated

from ..support.console import print_result, spinner
from ..support.options.declare import Option
from ..support.options.shared import SEED, DeviceOptions, Images, ModelOptions, VerbOptions
from .files import check_keeps_inputs, check_outside_model, check_picture_file


@dataclass(frozen=True, kw_only=True)
class ReconstructOptions(ModelOptions, DeviceOptions, VerbOptions):
    """The options of `weft reconstruct`."""

    images: Images
    draw: Annotated[str, Option("image file to write, such as out.png", metavar="FILE")]
    mask_rate: Annotated[
        float | None,
        Option(
            "fraction of patches to hide, from 0 to 1",
            default="as in training",
            metavar="P",
            least=0,
            most=1,
        ),
    ] = None
    seed: Annotated[int, SEED] = 0


def reconstruct(options: ReconstructOptions) -> int:
    """Hide patches of images and rebuild them.

    Draws the original, the visible patches and the output of a masked autoencoder side by side.
    For a model trained on normalised pixels, mean and deviation of a hidden patch come from the
    original.
    """
    check_picture_file(options.draw, "--draw")
    check_outside_model("--draw", [options.draw], options.name)
    with spinner(f"opening {options.name}"):
        from ..inference.images import expand_folders
        from ..inference.open_model import open_model
        from ..inference.reconstruct import contact_sheet
        from ..inference.reconstruct import reconstruct as rebuild

        files = expand_folders(options.images)
        check_keeps_inputs("--draw", [options.draw], files)
        model = open_model(options.name, device=options.device)
    with spinner(f"rebuilding images with {options.name}"):
        pictures = rebuild(
            model, files, options.mask_rate, options.seed, options.precision == "bf16"
        )
    side = pictures[0].original.width
    contact_sheet(pictures, max(1, round(192 / side))).save(options.draw)
    rows = [{"file": f, "error": p.error} for f, p in zip(files, pictures, strict=True)]
    print_result(
        options.json,
        {"images": rows, "picture": options.draw},
        lambda width: "\n".join(
            [
                *(f"error {row['error']:.3f}  {row['file']}" for row in rows),
                f"wrote {options.draw}",
            ]
        ),
    )
    return 0
