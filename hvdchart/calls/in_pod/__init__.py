"""What runs in the pods of `hvdchart.launch`: it travels as code, with cloudpickle beside it."""
