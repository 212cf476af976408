"""Routes of the service, one file per noun."""
