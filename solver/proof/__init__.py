"""The search's answer derived again by listing everything, with nothing of the search's own to rely on."""
