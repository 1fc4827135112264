"""PyTorch/XLA and torch below their public names: its binding, its HLO, its types, and traces of functions.

What differs in another version of torch_xla is looked for at ``init`` (``_private``).
"""

from ptpathways.frontend.xla._late import execute_when_used

execute_when_used("torch_xla._dynamo.dynamo_bridge")
