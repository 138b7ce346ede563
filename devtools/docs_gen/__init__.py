"""Write generated files: values.yaml, schemas and the tables in docs."""
