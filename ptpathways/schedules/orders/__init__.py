"""One file per schedule. A file that is added here is found by its ``NAME``; see ``docs/pipelines.md``.

Each file has

- ``NAME``: what users call it;
- ``SPLIT``: whether its backward passes are in two parts, for the inputs and for the weights;
- ``order(size)``: the actions of each rank, in order. Pure. Raises ``core.PipelineError`` for a size it cannot do;
- ``bubble(size, costs)``: the idle time in theory, in the unit of the costs, per rank and step.
"""
