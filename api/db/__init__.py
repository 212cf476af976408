"""The database: jobs, plans and profiles that outlive the process."""
