"""Takes torch's place while ``install_fairseq.sh`` builds fairseq, and only there.

fairseq's ``setup.py`` imports torch's build tools for three extensions that nothing here uses: ``libbase``,
``libnat`` and the alignment binding. They take most of the two minutes of the build, and need torch's headers.
"""
