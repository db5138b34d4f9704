"""Images: decoding, transforms, augmentation and boxes."""
