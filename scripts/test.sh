#!/usr/bin/env bash
# Bare machine -> environment -> lint -> the whole suite. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/setup.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# A file's tests share what they trained, so they stay together; one thread each.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile "$@"
