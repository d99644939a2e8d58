"""The subcommands of scripts/benchmark.py, one per file."""
