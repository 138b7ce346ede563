"""The proof on a GPU: what is brought to a machine that has one, and what runs there."""
