"""What judges share. They run confined, without any library: standard library only."""
