"""PyTorch's own database of operators (``op_db``), run on a cluster's device and compared with the CPU."""
