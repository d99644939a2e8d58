#!/usr/bin/env bash
# Build the environment, run the lint and the type checker, then the whole test suite. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/setup.sh
# What the type checker finds depends on the versions that it reads.
[ "${CONSTRAINTS-constraints.txt}" != constraints.txt ] || ./scripts/lint.sh
# The tests of one file share what they trained, so they run in one process; one thread each. The files run in
# the order of their names, which leaves the short ones of tests/unit for the end.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile \
    --no-loadscope-reorder "$@"
