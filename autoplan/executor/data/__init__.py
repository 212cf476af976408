"""Training data: a corpus of tokens, and the batch of every step as a pure function of seed and step."""
