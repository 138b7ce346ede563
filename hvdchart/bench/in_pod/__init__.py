"""The program that runs in the pods of a scaling measurement."""
