#!/usr/bin/env bash
# Build the environment, run the lint and the type checker, then the whole test suite. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/setup.sh
# The findings of the type checker depend on the installed versions.
[ "${CONSTRAINTS-constraints.txt}" != constraints.txt ] || ./scripts/lint.sh
# The tests in a file share trained models, so they run in one process, with one thread each. The files run in
# the order of their names, so that the short ones in tests/unit come last.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec .venv/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile \
    --no-loadscope-reorder "$@"
