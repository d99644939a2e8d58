#!/usr/bin/env bash
# Run the long form of tests/harm: every kind of damage to every input, and more kills.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 FAIRSEQ_DOC_HARM=whole
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests/harm "$@"
