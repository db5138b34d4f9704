"""`weft reconstruct`."""

import argparse

from ..console import print_result, spinner
from . import AddCommand
from .options import add_device, add_model_name, add_precision, add_seed, fraction
from .rows import check_keeps_inputs, check_outside_model, check_picture_file


def reconstruct(args: argparse.Namespace) -> int:
    check_picture_file(args.draw, "--draw")
    check_outside_model("--draw", [args.draw], args.name)
    with spinner(f"opening {args.name}"):
        from ..inference.images import expand_folders
        from ..inference.open_model import open_model
        from ..inference.reconstruct import contact_sheet
        from ..inference.reconstruct import reconstruct as rebuild

        files = expand_folders(args.images)
        check_keeps_inputs("--draw", [args.draw], files)
        model = open_model(args.name, device=args.device)
    with spinner(f"asking {args.name}"):
        pictures = rebuild(model, files, args.mask_rate, args.seed, args.precision == "bf16")
    side = pictures[0].original.width
    contact_sheet(pictures, max(1, round(192 / side))).save(args.draw)
    rows = [{"file": f, "error": p.error} for f, p in zip(files, pictures, strict=True)]
    print_result(
        args,
        {"images": rows, "picture": args.draw},
        lambda width: "\n".join(
            [*(f"error {row['error']:.3f}  {row['file']}" for row in rows), f"drawn in {args.draw}"]
        ),
    )
    return 0


def add(verb: AddCommand) -> None:
    parser = verb(
        reconstruct,
        "hide patches of images and rebuild them",
        "Draws the original, the visible patches and what a masked autoencoder rebuilds, side by side. The mean and deviation of a hidden "
        "patch are the original's, where the model was trained on normalised pixels.",
    )
    add_model_name(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="image files, or folders of images"
    )
    parser.add_argument(
        "--draw", metavar="FILE", required=True, help="picture to write, such as out.png"
    )
    parser.add_argument(
        "--mask-rate",
        type=fraction,
        metavar="P",
        help="share of patches to hide (default: as in training)",
    )
    add_seed(parser)
    add_precision(parser)
    add_device(parser)
