"""Makes a plain decoder run as the plan says: one file per axis or technique."""
