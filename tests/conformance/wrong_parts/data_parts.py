"""A transform of images and a filter of texts with one fault each."""

import numpy as np
from PIL import ImageOps

import weft
from weft.testing import check_part

SEEN = set()


@weft.register
class OwnMirror(weft.Transform):
    """Mirror half of the images."""

    fault: str = ""

    def for_evaluation(self):
        return ()


@weft.implements(OwnMirror)
class OwnMirrorStep:
    def __init__(self, transform):
        self.fault = transform.fault

    def __call__(self, image, boxes, rng):
        if self.fault == "boxes outside":
            return image.crop((0, 0, image.width // 2, image.height // 2)), boxes, None
        draw = np.random.rand() if self.fault == "global generator" else rng.random()
        if draw < 0.5:
            return image, boxes, None
        if boxes is not None and self.fault != "boxes stay":
            left, top, right, bottom = boxes.T
            boxes = np.stack((image.width - right, top, image.width - left, bottom), 1)
        return ImageOps.mirror(image), boxes, None


@weft.register
class OwnFilter(weft.QualityFilter):
    """Drop texts whose first word is `word`."""

    name = "own_filter"
    fault: str = ""


@weft.implements(OwnFilter)
class OwnFilterRule:
    def __init__(self, value):
        self.fault = value.fault

    def __call__(self, text):
        if self.fault == "fails on nothing":
            return "starts with a word" if text.split()[0] == "word" else None
        first = next(iter(text.split()), "")
        if self.fault == "remembers":
            known = first in SEEN
            SEEN.add(first)
            return "seen before" if known else None
        return "starts with a word" if first == "word" else None


def check(fault):
    check_part(OwnMirror(fault=fault))
    check_part(OwnFilter(fault=fault))
