"""The programs of the public repository pytorch/examples, and what is changed in each to run it on a cluster.

Nothing of them is kept here: each edit says how a line begins and what comes after it or in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.compatibility._edits import Edit, after, instead

REPOSITORY = "https://github.com/pytorch/examples"
IMPORT = "import ptpathways as pw"
PREPARE = "model, optimizer, train_loader, test_loader = pw.prepare(model, optimizer, train_loader, test_loader)"


@dataclass(frozen=True)
class Example:
    """A program, its arguments and its edits."""

    key: str
    script: str
    """In the repository."""
    edits: tuple[Edit, ...]
    arguments: tuple[str, ...] = ()
    data: str = "digits"
    """What stands in for its data set; see ``_standins``."""
    per_step: int = 1
    """Backward passes in a step."""
    note: str = ""
    optimizer: bool = True
    """Whether it has one; without, its weights are not changed by a rounding to see what that does."""


_DEVICE = instead('device = torch.device("cpu")', "pw.init()", "device = pw.device()")
_DIGITS = ("--batch-size", "64", "--epochs", "1")

EXAMPLES: tuple[Example, ...] = (
    Example(
        "mnist", "mnist/main.py",
        (after("import argparse", IMPORT), _DEVICE, after("optimizer = optim", PREPARE)),
        (*_DIGITS, "--test-batch-size", "256"),
    ),
    Example(
        "mnist_rnn", "mnist_rnn/main.py",
        (after("import argparse", IMPORT), _DEVICE, after("optimizer = optim", PREPARE)),
        (*_DIGITS, "--test-batch-size", "256"),
    ),
    Example(
        "vae", "vae/main.py",
        (after("import argparse", IMPORT), _DEVICE, after("optimizer = optim", PREPARE)),
        _DIGITS,
        note="reads the loss before `optimizer.step()`, which splits each step into two computations",
    ),
    Example(
        "siamese_network", "siamese_network/main.py",
        (after("import argparse", IMPORT), _DEVICE, after("optimizer = optim", PREPARE)),
        (*_DIGITS, "--test-batch-size", "256"),
        note="ResNet-18 with ReLU and a Siamese head: training amplifies rounding, see above",
    ),
    Example(
        "dcgan", "dcgan/main.py",
        (
            after("import argparse", IMPORT),
            _DEVICE,
            after(
                "optimizerG = optim",
                "netD, netG, optimizerD, optimizerG, dataloader = pw.prepare("
                "netD, netG, optimizerD, optimizerG, dataloader)",
            ),
        ),
        (
            "--dataset", "fake", "--workers", "0", "--batchSize", "16", "--ngf", "8", "--ndf", "8", "--niter", "1",
            "--manualSeed", "1",
        ),
        data="none",
        per_step=3,
        note="two models, two optimizers; torchvision's FakeData; each step reads six values",
    ),
    Example(
        "word_language_model (LSTM)", "word_language_model/main.py",
        (
            after("import argparse", IMPORT),
            _DEVICE,
            instead("return data.to(device)", "return data"),
            instead("return data, target", "return data.to(device), target.to(device)"),
            after("optimizer = torch.optim", "model, optimizer = pw.prepare(model, optimizer)"),
        ),
        (
            "--use-optimizer", "--lr", "0.001", "--emsize", "32", "--nhid", "32", "--nlayers", "1", "--epochs", "1",
            "--bptt", "16", "--data", "text",
        ),
        data="text",
        note="the corpus stays on the client, because a slice of it at another position would be another computation",
    ),
    Example(
        "word_language_model (Transformer)", "word_language_model/main.py",
        (
            after("import argparse", IMPORT),
            _DEVICE,
            instead("return data.to(device)", "return data"),
            instead("return data, target", "return data.to(device), target.to(device)"),
            after("optimizer = torch.optim", "model, optimizer = pw.prepare(model, optimizer)"),
        ),
        (
            "--use-optimizer", "--lr", "0.001", "--model", "Transformer", "--emsize", "32", "--nhid", "32",
            "--nlayers", "1", "--epochs", "1", "--bptt", "16", "--data", "text",
        ),
        data="text",
    ),
    Example(
        "regression", "regression/main.py",
        (
            after("from itertools", IMPORT, "pw.init()"),
            after("fc = torch.nn.Linear", "fc = pw.prepare(fc)"),
            instead("batch_x, batch_y =", "batch_x, batch_y = (part.to(pw.device()) for part in get_batch())"),
            after("param.data.add_", "pw.step()"),
        ),
        data="none",
        note="no optimizer, so it calls `pw.step()`",
        optimizer=False,
    ),
    Example(
        "mnist_forward_forward", "mnist_forward_forward/main.py",
        (
            after("import argparse", IMPORT),
            instead('device = torch.device("cpu")', 'device = torch.device("cpu")', "pw.init()"),
            after("x_neg = overlay_y_on_x", "for layer in net.layers: pw.prepare(layer, layer.opt)",
                  "device = pw.device()",
                  "x, x_pos, x_neg, y = (part.to(device) for part in (x, x_pos, x_neg, y))"),
        ),
        ("--train_size", "64", "--test_size", "64", "--epochs", "20"),
        note="an optimizer for each layer, trained one after the other; labels are drawn on the client",
    ),
    Example(
        "super_resolution", "super_resolution/main.py",
        (
            after("import argparse", IMPORT),
            _DEVICE,
            after(
                "optimizer = optim",
                "model, optimizer, training_data_loader, testing_data_loader = pw.prepare("
                "model, optimizer, training_data_loader, testing_data_loader)",
            ),
        ),
        ("--upscale_factor", "8", "--batchSize", "4", "--testBatchSize", "4", "--nEpochs", "1", "--threads", "0"),
        data="photographs",
    ),
    Example(
        "time_sequence_prediction", "time_sequence_prediction/train.py",
        (
            after("import argparse", IMPORT),
            after("opt = parser.parse_args()", "pw.init()"),
            instead("input = torch.from_numpy", "input = torch.from_numpy(data[3:, :-1]).to(pw.device())"),
            instead("target = torch.from_numpy", "target = torch.from_numpy(data[3:, 1:]).to(pw.device())"),
            after("seq.double()", "torch.set_default_device(pw.device())"),
            after("optimizer = optim", "seq, optimizer = pw.prepare(seq, optimizer)"),
        ),
        ("--steps", "1"),
        data="waves",
        note="LBFGS in float64; stopped before it predicts",
    ),
)  # fmt: skip
"""In the order of the table. Data stand-ins are not counted as changed lines: the plain run has them, too."""

NOT_RUN: tuple[tuple[str, str], ...] = (
    ("reinforcement_learning", "needs gymnasium; each action is read, so every step waits: not work for a cluster"),
    ("language_translation", "needs torchtext, which has no version for this torch"),
    ("fast_neural_style", "needs downloaded VGG weights, and a Pillow of before version 10"),
    ("gcn, gat", "download their graph; gcn keeps it in sparse tensors, which PyTorch/XLA does not have"),
    ("mnist_hogwild", "several processes write the same CPU tensors; that is its subject"),
    ("imagenet, distributed", "bring their own distribution over processes"),
)
