"""The service: plans over HTTP, searched in processes of their own and kept in a database."""
