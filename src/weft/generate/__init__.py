"""Text generation: sampling, beam search, speculative decoding."""
