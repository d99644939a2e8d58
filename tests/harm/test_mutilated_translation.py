"""Mutilated inputs of the commands of the translation group."""

from harm.campaign import WHOLE, mutilated, special

test_a_mutilated_file = mutilated("translation")
if WHOLE:
    test_a_special_file = special("translation")
