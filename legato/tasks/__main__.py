"""``python -m legato.tasks``: list the tasks, pass them through the gate, scaffold new ones."""

from legato.tasks.cli import main

if __name__ == "__main__":
    main()
