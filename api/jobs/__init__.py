"""Searches in processes of their own: a queue, its workers, and what becomes of each job."""
