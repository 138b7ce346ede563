"""Code that tests of several folders use. Code for one folder is in that folder."""
