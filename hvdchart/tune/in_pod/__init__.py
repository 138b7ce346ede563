"""Programs that run in the pods of a tuning run; their text is sent to the image's Python."""
