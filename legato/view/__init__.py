"""See what the agents did: a viewer of run directories, a live view, films and contact sheets."""
