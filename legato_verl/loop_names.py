"""The names by which verl's config asks for us."""

LOOP = "legato"
MANAGER = "legato_verl.manager.LegatoAgentLoopManager"
