"""Tasks in OSWorld's format on desktops of our own: the steps and evaluators they can take."""
