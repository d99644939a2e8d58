#!/usr/bin/env bash
# Run `fairseq-doc prepare-mt` with this checkout's environment.
PATH="$(dirname "$0")/../.venv/bin:$PATH" exec fairseq-doc prepare-mt "$@"
