"""Fine-tuning: detect the task, run trials, keep the best."""
