"""Fast kernels, each with a simple reference implementation."""
