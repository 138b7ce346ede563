"""The programs of `hvdchart.launch` in the pods: sent as code, together with cloudpickle."""
