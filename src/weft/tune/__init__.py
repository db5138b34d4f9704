"""Fine-tuning: what the data hold, which runs to try, which of them to keep."""
