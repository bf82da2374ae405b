"""What every other folder may use: time, numbers, words. It imports nothing of ours but errors."""
