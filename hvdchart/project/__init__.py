"""A project of the user's own: new ones from templates, and changes of a spec's file."""
