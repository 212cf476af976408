"""What a run says about itself: a line per step, and the memory behind it."""
