from legato.rl.cli import main

main()
