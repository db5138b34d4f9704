"""Images: from encoded bytes to normalised numbers, with augmentation and boxes."""
