"""What every layer uses: values, output, processes, storage, addresses. No torch."""
