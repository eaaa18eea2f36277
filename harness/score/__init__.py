"""From tasks and texts to token sequences, and from their log-probabilities to measures."""
