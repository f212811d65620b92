"""Lets the tests of parts use what the tests of networks define."""
