"""``fairseq-doc``: each command is a file, and imports what it needs."""
