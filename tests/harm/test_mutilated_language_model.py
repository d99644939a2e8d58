"""Mutilated inputs of the commands of the lm group."""

from harm.campaign import WHOLE, mutilated, special

test_a_mutilated_file = mutilated("lm")
if WHOLE:
    test_a_special_file = special("lm")
