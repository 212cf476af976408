"""Readers: files and names of the outside world become values of autoplan.spec."""
