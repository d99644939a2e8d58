"""The subcommands of scripts/benchmark.py, one a file."""
