#!/usr/bin/env bash
# Run the linter, the formatter and the type checker, which every change must pass before its tests.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
