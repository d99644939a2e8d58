"""Mutilated inputs of the commands of the trees group."""

from harm.campaign import WHOLE, mutilated, special

test_a_mutilated_file = mutilated("trees")
if WHOLE:
    test_a_special_file = special("trees")
