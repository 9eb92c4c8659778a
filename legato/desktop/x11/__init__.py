"""Speaking to an X server: screen, keyboard, pointer, windows. Any backend with X can use it."""
