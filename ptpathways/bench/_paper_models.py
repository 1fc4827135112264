"""The paper's language models, as far as it gives them: shapes, layouts over cores, and what a step works on.

The paper (5.3) gives layers, widths, cores, stages and microbatches. What it does not give is chosen here: lengths of
sequences, sizes of batches, the axes of the cores, and the shapes of the T5s (Raffel et al., JMLR 2020) and of the
models of 64B and 136B parameters (12 times the width's square per layer, as a decoder of that size has).
"""

from __future__ import annotations

from dataclasses import dataclass

CORES_PER_HOST = 8
"""Of a host with four TPUs v3."""


@dataclass(frozen=True, slots=True)
class Model:
    """A Transformer, and the batch of one step."""

    name: str
    layers: int
    width: int
    hidden: int
    heads: int
    head_size: int
    batch: int
    """Sequences."""
    length: int
    """Tokens of a sequence."""
    encoder_layers: int = 0
    encoder_length: int = 0
    vocabulary: int = 32000

    @property
    def tokens(self) -> int:
        """Of a step, those that an encoder reads included."""
        return self.batch * (self.length + self.encoder_length)

    @property
    def block_parameters(self) -> int:
        """Of a decoder's layer without cross-attention."""
        return 4 * self.width * self.heads * self.head_size + 2 * self.width * self.hidden


@dataclass(frozen=True, slots=True)
class Layout:
    """Cores in two axes: each batch is divided along ``data``, each product along ``model``."""

    data: int
    model: int
    fully_sharded: bool = False
    """Whether weights are divided along ``data``, too, and collected for each product."""

    @property
    def cores(self) -> int:
        """All of them."""
        return self.data * self.model

    @property
    def target(self) -> str:
        """The TPUs v3, of two cores each, to compile for."""
        chips = max(self.cores // 2, 4)
        side = 1 << (chips.bit_length() - 1) // 2
        return f"v3:{side}x{chips // side}"


@dataclass(frozen=True, slots=True)
class Trained:
    """A row of Table 1: SPMD over ``layout``."""

    model: Model
    layout: Layout
    published: float
    """Tokens per second, with Pathways and with JAX."""


def _t5(name: str, layers: int, width: int, hidden: int, heads: int, head_size: int, batch: int) -> Model:
    return Model(name, layers, width, hidden, heads, head_size, batch, 128, encoder_layers=layers, encoder_length=512)


TABLE_1 = (
    Trained(_t5("T5 270M", 12, 768, 3072, 12, 64, 128), Layout(32, 1), 618e3),
    Trained(_t5("T5 770M", 24, 1024, 4096, 16, 64, 128), Layout(32, 1), 90.4e3),
    Trained(_t5("T5 3B", 24, 1024, 16384, 32, 128, 2048), Layout(64, 8), 282.8e3),
    Trained(_t5("T5 11B", 24, 1024, 65536, 128, 128, 2048), Layout(64, 8), 84.8e3),
)

DECODER = Model("3B decoder", 62, 2048, 8192, 16, 128, 512, 1024)
STAGED_LAYERS = 64
"""The embedding and the logits count as a layer each, so that stages can be equal."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A row of Table 2: GPipe over ``stages``; one stage: SPMD."""

    name: str
    layout: Layout
    """Of one stage."""
    stages: int
    microbatches: int
    published: float
    batch: int = DECODER.batch


TABLE_2 = (
    Staged("SPMD", Layout(16, 8), 1, 1, 125.7e3),
    Staged("S=4, M=16", Layout(4, 8), 4, 16, 133.7e3),
    Staged("S=8, M=32", Layout(2, 8), 8, 32, 132.7e3),
    Staged("S=16, M=64", Layout(1, 8), 16, 64, 131.4e3),
    Staged("S=16, M=64, 512 cores", Layout(4, 8), 16, 64, 507.8e3, 4 * DECODER.batch),
)


@dataclass(frozen=True, slots=True)
class TwoIslands:
    """A bar of Figure 12: data parallel over two islands, beside one island of all their cores."""

    model: Model
    layout: Layout
    """Of one of the two."""


FIGURE_12 = (
    TwoIslands(Model("64B", 80, 8192, 32768, 64, 128, 512, 1024), Layout(32, 16, fully_sharded=True)),
    TwoIslands(Model("136B", 108, 10240, 40960, 128, 80, 1024, 1024), Layout(64, 16, fully_sharded=True)),
)
PUBLISHED_ISLANDS = 0.97
