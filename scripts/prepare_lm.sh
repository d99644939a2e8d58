#!/usr/bin/env bash
# Run `fairseq-doc prepare-lm` with this checkout's environment.
PATH="$(dirname "$0")/../.venv/bin:$PATH" exec fairseq-doc prepare-lm "$@"
