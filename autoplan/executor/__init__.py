"""Runs a Plan with torch.distributed: everything it does, the plan says."""
