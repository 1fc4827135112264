"""The pieces of code that loops of ``capture_steps`` are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """What one property of a loop adds to its text. ``{n}`` in ``loop`` is the number of the call."""

    name: str
    setup: str = ""
    first: str = ""
    """In the step, before the forward pass."""
    loss: str = ""
    """In the step, with ``loss``, before the backward pass."""
    grads: str = ""
    """In the step, between the backward pass and the optimizer."""
    last: str = ""
    """In the step, after the optimizer."""
    loop: str = ""
    """Before each call."""
    after: str = ""
    """After each call; ``loss`` is what it returned."""
    argument: str = ""
    """``name=expression``: one more argument."""


PIECES = (
    Piece("scheduler outside", "schedule = lr.StepLR(optimizer, 3, 0.7)", after="schedule.step()"),
    Piece("scheduler inside", "schedule = lr.CosineAnnealingLR(optimizer, 16)", last="schedule.step()"),
    Piece("scheduler with rare steps inside", "rare = lr.StepLR(optimizer, 7, 0.5)", last="rare.step()"),
    Piece("warm-up from 0", "warm = lr.LambdaLR(optimizer, lambda n: min(1.0, n / 4))", after="warm.step()"),
    Piece("gradients of 0", grads="for p in model.parameters():\n    if p.grad is not None: p.grad[:1] = 0"),
    Piece(
        "number like the rate",
        loss="loss = loss * 0.02 * 50",
        loop="optimizer.param_groups[0]['lr'] = (0.01, 0.015, 0.03, 0.012, 0.02)[n % 5]",
    ),
    Piece("own counter", "t.n = 0", last="t.n += 1", loss="loss = loss * (1.0 if t.n % 4 else 2.0)"),
    Piece("counter nobody reads", "t.calls = 0", last="t.calls += 1"),
    Piece("cycle", "t.turn = 0", first="t.turn = (t.turn + 1) % 3", loss="loss = loss * (1 + t.turn)"),
    Piece(
        "flag reset inside",
        "t.fresh = True",
        "if t.fresh:\n    hidden.zero_()\n    t.fresh = False",
        loop="if n % 6 == 0: t.fresh = True",
    ),
    Piece(
        "flag from outside",
        "t.double = False",
        loss="loss = loss * 2 if t.double else loss",
        loop="t.double = n % 7 == 5",
    ),
    Piece("hidden attribute", loss="loss = loss * t.factor", loop="if n == 9: t.factor = 3.0"),
    Piece("global number", "box = {'k': 1.0}", loss="loss = loss * box['k']", loop="box['k'] = 1.0 if n < 8 else 2.5"),
    Piece("list of numbers", "row = [1.0, 2.0]", loss="loss = loss * row[1]", loop="row[1] = 2.0 if n < 10 else 0.5"),
    Piece(
        "branch on the rate",
        loss="loss = loss * (3.0 if optimizer.param_groups[0]['lr'] < 0.04 else 1.0)",
        loop="optimizer.param_groups[0]['lr'] = 0.05 - 0.002 * n",
    ),
    Piece("momentum changes", loop="optimizer.param_groups[0]['momentum'] = 0.5 + 0.02 * n"),
    Piece(
        "lengths on the CPU",
        argument="lengths=torch.tensor([3, 2]) if n < 8 else torch.tensor([8, 5])",
        first="x = x[:, : int(lengths.max())]\nx = F.pad(x, (0, 8 - x.shape[1]))",
    ),
    Piece(
        "clamped on the CPU",
        argument="extra=torch.full((4, 8), 0.5 if n < 8 else 9.0)",
        first="x = x + extra.clamp(-2, 2).to(place)",
    ),
    Piece(
        "two masks",
        argument="one=torch.ones(4, 1), other=torch.ones(4, 1) if n < 8 else torch.zeros(4, 1)",
        loss="loss = loss + (model(x) * one.to(place)).mean() + 0.1 * (model(x) * other.to(place)).sum()",
    ),
    Piece(
        "the same twice",
        argument="first=x, second=x if n < 8 else x + 1",
        loss="loss = loss + (first.to(place) * second.to(place)).mean() * model[0].weight.mean()",
    ),
    Piece("scalar on the CPU", argument="scale=torch.tensor(0.5 + 0.1 * n)", loss="loss = loss * scale.to(place)"),
    Piece(
        "branch on a scalar", argument="level=torch.tensor(0.1 * n)", loss="loss = loss * (2.0 if level > 0.8 else 1.0)"
    ),
    Piece("number argument", argument="beta=0.5 if n < 9 else 0.25", loss="loss = loss * beta"),
    Piece(
        "statistics as an argument",
        "totals = {'sum': torch.zeros(1, device=place)}",
        argument="totals=totals",
        last="totals['sum'] += loss.detach()",
    ),
    Piece(
        "parameters as an argument",
        argument="weights=list(model.parameters())",
        loss="loss = loss + 0.01 * sum(w.square().sum() for w in weights)",
    ),
    Piece(
        "target network",
        "target = copy.deepcopy(model)",
        loss="with torch.no_grad(): aim = target(x)\nloss = loss + F.mse_loss(model(x), aim)",
        last="with torch.no_grad():\n    for a, b in zip(target.parameters(), model.parameters()): a.lerp_(b, 0.1)",
    ),
    Piece(
        "target every few steps",
        "target = copy.deepcopy(model)\nt.k = 0",
        loss="with torch.no_grad(): aim = target(x)\nloss = loss + F.mse_loss(model(x), aim)",
        last="t.k += 1\nif t.k % 5 == 0: target.load_state_dict(model.state_dict())",
    ),
    Piece("kept loss", "kept = []", last="t.loss = loss.detach()", after="kept.append(t.loss)"),
    Piece("kept gradients", "kept = []", after="kept.append([p.grad for p in model.parameters()][0])"),
    Piece("kept views of gradients", "kept = []", after="kept.append(model[0].weight.grad.detach())"),
    Piece("hook later", loop="if n == 8: model[0].weight.register_hook(lambda g: g * 2)"),
    Piece("forward hook later", loop="if n == 8: model[0].register_forward_hook(lambda m, a, o: o * 2)"),
    Piece(
        "mode inside",
        last="model.eval()",
        loss="loss = loss * (2.0 if model.training else 1.0)",
        loop="if n % 5 == 0: model.train()",
    ),
    Piece("freeze", loop="model[0].requires_grad_(n not in (7, 8, 9, 10))"),
    Piece("data assigned", loop="if n == 8: model[0].weight.data = torch.ones(16, 8, device=place) * 0.1"),
    Piece(
        "buffer data assigned",
        loss="loss = loss * scale_buffer.mean()",
        setup="scale_buffer = torch.ones(3, device=place)",
        loop="if n == 8: scale_buffer.data = torch.full((3,), 2.0, device=place)",
    ),
    Piece(
        "array behind a tensor",
        "array = np.ones((4, 1))\nrows = torch.from_numpy(array)",
        loss="loss = loss + (model(x) * rows.to(place)).mean()",
        loop="if n == 8: array[:2] = 5.0",
    ),
    Piece(
        "array",
        "array = np.ones(4)",
        loss="loss = loss * float(array[1])",
        loop="if n == 8: array[1] = 3.0",
    ),
    Piece("list turned in the step", "turned = [1.0, 3.0]", first="turned.reverse()", loss="loss = loss * turned[0]"),
    Piece("set", "chosen = {1}", loss="loss = loss * (2.0 if 2 in chosen else 1.0)", loop="if n == 8: chosen.add(2)"),
    Piece(
        "generator of one's own", "own = random.Random(3)", loss="loss = loss * (2.0 if own.random() < 0.2 else 1.0)"
    ),
    Piece("iterator", "numbers = iter([1.0] * 6 + [2.0] * 40)", loss="loss = loss * next(numbers)"),
    Piece("history in the step", "t.history = []", last="t.history.append(len(t.history))"),
    Piece("history outside", "t.past = []", after="t.past.append(n)"),
    Piece(
        "function attribute",
        "def scaled(v): return v * scaled.k\nscaled.k = 1.0",
        loss="loss = scaled(loss)",
        loop="if n == 8: scaled.k = 2.0",
    ),
    Piece(
        "dataclass",
        "config = Config(1.0)",
        loss="loss = loss * (2.0 if config == Config(2.0) else 1.0)",
        loop="if n == 8: config.level = 2.0",
    ),
    Piece("slots", "slotted = Slotted(1.0)", loss="loss = loss * slotted.level", loop="if n == 8: slotted.level = 2.0"),
    Piece(
        "match",
        "config = Config(1.0)",
        loss="match config:\n    case Config(level=2.0): loss = loss * 2\n    case _: pass",
        loop="if n == 8: config.level = 2.0",
    ),
    Piece(
        "two in one buffer",
        "shadow = hidden.clone()",
        first="hidden.copy_(shadow)\nhidden.add_(1)",
        loss="loss = loss + 0.01 * (hidden - shadow).mean()",
    ),
    Piece(
        "previous weights",
        "before = model[0].weight.detach().clone()",
        loss="loss = loss + (model[0].weight - before).square().sum()",
        last="before.copy_(model[0].weight.detach())",
    ),
    Piece("accumulation", "t.m = 0", last="", first="t.m = (t.m + 1) % 2\nif t.m: optimizer.zero_grad()"),
    Piece(
        "lookahead",
        "slow = [p.detach().clone() for p in model.parameters()]\nt.k6 = 0",
        last="t.k6 = (t.k6 + 1) % 3\nif t.k6 == 0:\n    with torch.no_grad():\n"
        "        for s, p in zip(slow, model.parameters()): s.lerp_(p, 0.5); p.copy_(s)",
    ),
    Piece("clipping", grads="nn.utils.clip_grad_norm_(model.parameters(), 0.5)"),
    Piece("clipping by value", grads="clip_grad_value_(model.parameters(), 0.05)"),
    Piece("gradients scaled", grads="for p in model.parameters(): p.grad.mul_(0.9)"),
    Piece("gradients replaced", grads="for p in model.parameters(): p.grad = p.grad * 0.5"),
    Piece(
        "a gradient dropped", "t.drop = False", grads="if t.drop: model[0].bias.grad = None", loop="t.drop = n % 6 == 5"
    ),
    Piece(
        "second optimizer",
        "gain = nn.Parameter(torch.ones(1, device=place))\nsecond = torch.optim.Adam([gain], lr=0.01)",
        first="second.zero_grad()",
        loss="loss = loss * gain.mean()",
        last="second.step()",
    ),
    Piece(
        "turns of two optimizers",
        "other = torch.optim.SGD(model[2].parameters(), lr=0.01)\nt.whose = 0",
        last="t.whose = 1 - t.whose\nif t.whose: other.step()",
    ),
    Piece(
        "nested object",
        "nest = Trainer()\nnest.inner = Trainer()\nnest.inner.k = 1.0",
        loss="loss = loss * nest.inner.k",
        loop="if n == 9: nest.inner.k = 2.0",
    ),
    Piece(
        "nested object replaced",
        "nest = Trainer()\nnest.inner = Trainer()\nnest.inner.k = 1.0",
        loss="loss = loss * nest.inner.k",
        loop="if n == 9:\n    nest.inner = Trainer()\n    nest.inner.k = 2.0",
    ),
    Piece(
        "average outside",
        "average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))",
        after="average.update_parameters(model)\naveraged = list(average.parameters())",
    ),
    Piece(
        "average used",
        "average = copy.deepcopy(model)",
        loss="loss = loss + F.mse_loss(model(x), average(x).detach())",
        after="with torch.no_grad():\n    for a, b in zip(average.parameters(), model.parameters()): a.lerp_(b, 0.2)",
    ),
    Piece(
        "hook removed",
        "handle = model[1].register_forward_hook(lambda m, a, o: o * 0.5)",
        loop="if n == 9: handle.remove()",
    ),
    Piece(
        "hook that keeps",
        "seen = {}\nmodel[0].register_forward_hook(lambda m, a, o: seen.__setitem__('h', o.detach()))\nkept = []",
        after="kept.append(seen['h'].mean())",
    ),
    Piece("hook of a gradient", loop="if n == 8: model[2].bias.register_post_accumulate_grad_hook(halve)"),
    Piece("view kept", "view = model[0].weight.data[1]\ncolumn = model[2].weight[:, :2]", after="seen = view.clone()"),
    Piece("view written", "view = model[0].weight.data[1]", loop="if n in (7, 12): view.fill_(0.1)"),
    Piece(
        "view taken later", loop="if n == 8: view = model[0].bias.data[:5]\nif n == 14: model[0].bias.data[3:] = 0.2"
    ),
    Piece("state held", loop="if n == 8: held = list(model.state_dict().values())"),
    Piece(
        "momentum held",
        loop="if n == 8: held = [v for one in optimizer.state.values() for v in one.values() if v is not None]",
    ),
    Piece("argument written", "own = torch.zeros(3, device=place)", argument="mine=own", first="mine.add_(1)"),
    Piece("argument of the CPU written", "own = torch.zeros(3)", argument="mine=own", first="mine.add_(1)"),
    Piece(
        "functions in a list",
        "fns = [torch.tanh, torch.sin]",
        loss="loss = fns[0](loss)",
        loop="if n == 9: fns.reverse()",
    ),
    Piece(
        "functions in a table",
        "fns = {'f': torch.tanh}",
        loss="loss = fns['f'](loss)",
        loop="if n == 9: fns['f'] = abs",
    ),
    Piece("parameter replaced", loop="if n == 9: model[2].bias = nn.Parameter(torch.zeros(1, device=place))"),
    Piece("module replaced", loop="if n == 9: model[1] = nn.ReLU()"),
    Piece(
        "statistics of a module", "center = Center().to(place)", first="x = center(x)", loop="if n == 10: center.eval()"
    ),
    Piece("dataclass as an argument", argument="conf=Config(1.0 if n < 8 else 2.0)", loss="loss = loss * conf.level"),
    Piece("table as an argument", argument="opts={'k': 1.0 if n % 5 else 2.0}", loss="loss = loss * opts['k']"),
    Piece("property", "lazy = Computed()", loss="loss = loss * lazy.k", loop="if n == 8: lazy.base = 2.0"),
    Piece("attribute made up", "lazy = Made()", loss="loss = loss * lazy.k", loop="if n == 8: lazy.table['k'] = 2.0"),
    Piece("optimizer reset", loop="if n == 9: optimizer.state.clear()"),
    Piece(
        "weights loaded",
        "saved = None",
        loop="if n == 4: saved = copy.deepcopy(model.state_dict())\nif n == 10: model.load_state_dict(saved)",
    ),
    Piece(
        "optimizer loaded",
        "saved = None",
        loop="if n == 4: saved = copy.deepcopy(optimizer.state_dict())\nif n == 10: optimizer.load_state_dict(saved)",
    ),
    Piece("weights set outside", after="if n % 4 == 3:\n    with torch.no_grad(): model[0].weight.clamp_(-0.2, 0.2)"),
    Piece("weights set inside", last="with torch.no_grad():\n    for p in model.parameters(): p.clamp_(-0.3, 0.3)"),
    Piece("tied later", loop="if n == 9: model[0].bias = wide.bias", setup="wide = nn.Linear(2, 16).to(place)"),
    Piece(
        "error before the backward pass",
        loss="if t.bad: raise ValueError('bad')",
        setup="t.bad = False",
        loop="t.bad = n in (2, 9)",
    ),
    Piece(
        "error after the backward pass",
        grads="if t.bad: raise ValueError('bad')",
        setup="t.bad = False",
        loop="t.bad = n in (8, 9)",
    ),
    Piece(
        "error after the step",
        last="if t.bad: raise ValueError('bad')",
        setup="t.bad = False",
        loop="t.bad = n % 7 == 6",
    ),
    Piece(
        "counter on the device",
        "count = torch.zeros((), dtype=torch.int64, device=place)",
        last="count += 1",
        loss="loss = loss * (1 + count % 3)",
    ),
    Piece("rate changed inside", last="for g in optimizer.param_groups: g['lr'] *= 0.95"),
    Piece("decay changes", loop="optimizer.param_groups[0]['weight_decay'] = 0.1 if n > 8 else 0.0"),
    Piece(
        "group added",
        "wide = nn.Linear(2, 16).to(place)",
        loss="loss = loss + wide.bias.square().mean()",
        loop="if n == 8: optimizer.add_param_group({'params': wide.parameters(), 'lr': 0.01})",
    ),
    Piece(
        "coin", "own = random.Random(4)", argument="heads=own.random() < 0.4", loss="loss = loss * 2 if heads else loss"
    ),
    Piece(
        "default argument",
        "def grow(v, cache=[1.0]): return v * cache[0]",
        loss="loss = grow(loss)",
        loop="if n == 8: grow.__defaults__[0][0] = 2.0",
    ),
    Piece(
        "partial",
        "import functools\nfn = functools.partial(torch.mul, other=2.0)",
        loss="loss = fn(loss)",
        loop="if n == 8: fn = functools.partial(torch.mul, other=3.0)",
    ),
    Piece("class attribute", loss="loss = loss * Trainer.factor", loop="Trainer.factor = 1.0 if n < 8 else 2.0"),
    Piece("rows that vary", loop="if n % 6 == 5: x, y = x[:2], y[:2]"),
    Piece("rows that are not dense", loop="if n % 3: x = x.t().contiguous().t()"),
    Piece("no rows", loss="loss = (model(x) - y).square().sum() * 0.1", loop="if n % 6 == 5: x, y = x[:0], y[:0]"),
    Piece(
        "result of a closure",
        "state = {'h': torch.zeros(4, 16, device=place)}",
        loss="state['h'] = torch.tanh(state['h'].detach() + model[0](x))\nloss = loss + state['h'].mean()",
    ),
    Piece(
        "nonlocal",
        "level = 1.0\ndef raise_level():\n    global level\n    level += 0.0",
        first="raise_level()",
        loss="loss = loss * level",
        loop="if n == 8: level = 2.0",
    ),
    Piece(
        "adversary",
        "critic = nn.Linear(1, 1).to(place)\ncritics = torch.optim.Adam(critic.parameters(), lr=0.01)",
        first="critics.zero_grad()\nfake = model(x)\n"
        "(F.softplus(-critic(y)).mean() + F.softplus(critic(fake.detach())).mean()).backward()\ncritics.step()",
        loss="loss = loss + 0.1 * F.softplus(-critic(fake)).mean()",
    ),
    Piece(
        "adversary frozen in between",
        "critic = nn.Linear(1, 1).to(place)\ncritics = torch.optim.SGD(critic.parameters(), lr=0.01)",
        first="critic.requires_grad_(True)\ncritics.zero_grad()\n"
        "(critic(model(x).detach()) - critic(y)).mean().backward()\ncritics.step()\ncritic.requires_grad_(False)",
        loss="loss = loss - 0.1 * critic(model(x)).mean()",
    ),
    Piece(
        "gradient penalty",
        first="x = x.detach().requires_grad_(True)",
        loss="(slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)\n"
        "loss = loss + 0.1 * (slope.norm(dim=1) - 1).square().mean()",
    ),
    Piece(
        "gradients by torch.func",
        "from torch import func",
        loss="weights = {k: v.detach() for k, v in model.named_parameters()}\n"
        "each = func.grad(lambda w, a: func.functional_call(model, w, (a,)).square().mean())(weights, x)\n"
        "loss = loss + 0.01 * (each['0.weight'] * model[0].weight).sum()",
    ),
    Piece(
        "weights normed",
        "nn.utils.parametrizations.weight_norm(model[0])\noptimizer = type(optimizer)(model.parameters(), lr=0.02)",
    ),
    Piece(
        "spectral norm on top",
        "top = nn.utils.parametrizations.spectral_norm(nn.Linear(1, 1).to(place))",
        loss="loss = loss + 0.1 * top(model(x)).square().mean()",
        loop="if n == 9: top.eval()",
    ),
    Piece(
        "checkpointed",
        "from torch.utils.checkpoint import checkpoint",
        loss="loss = loss + 0.1 * checkpoint(model, x, use_reentrant=False).square().mean()",
    ),
    Piece(
        "normed batches",
        "normed = nn.BatchNorm1d(1, affine=False, track_running_stats=False).to(place)",
        loss="loss = loss + 0.1 * (normed(model(x)) * y).mean()",
    ),
    Piece("gradients zeroed in place", grads="", last="optimizer.zero_grad(set_to_none=False)"),
    Piece("gradients dropped at the end", last="optimizer.zero_grad()"),
    Piece(
        "gradients by autograd.grad",
        grads="ps = list(model.parameters())\nfor p, g in zip(ps, torch.autograd.grad(model(x).square().mean(), ps)):\n"
        "    p.grad = p.grad + 0.1 * g",
    ),
    Piece(
        "gradient clipped with one of no optimizer",
        "free = nn.Parameter(torch.ones(1, device=place))",
        loss="loss = loss * free.mean()",
        grads="nn.utils.clip_grad_norm_([*model.parameters(), free], 0.5)",
        after="freed = free.grad",
    ),
    Piece(
        "loss function replaced",
        "t.kind = nn.L1Loss()",
        loss="loss = loss + t.kind(model(x), y)",
        loop="if n == 7: t.kind = nn.SmoothL1Loss()\nif n == 13: t.kind.beta = 0.3",
    ),
    Piece(
        "state passed on",
        "carried = torch.zeros(4, 16, device=place)",
        argument="memory=carried[: len(x)]",
        loss="memory = torch.tanh(memory + model[0](x))\nloss = loss + 0.1 * memory.mean()\nt.memory = memory.detach()",
        after="carried = torch.zeros(4, 16, device=place) + 0.1 * n if n % 7 == 6 else carried",
    ),
    Piece(
        "sharpness",
        grads="with torch.no_grad():\n    moves = [0.01 * p.grad for p in model.parameters()]\n"
        "    for p, e in zip(model.parameters(), moves): p.add_(e)\noptimizer.zero_grad()\n"
        "F.mse_loss(model(x), y).backward()\nwith torch.no_grad():\n"
        "    for p, e in zip(model.parameters(), moves): p.sub_(e)",
    ),
    Piece(
        "queue of keys",
        "keys = torch.zeros(12, 1, device=place)\nt.at = 0",
        loss="loss = loss + 0.1 * (model(x) @ keys.t()).square().mean()",
        last="with torch.no_grad(): keys[t.at : t.at + 4] = model(x).mean()\nt.at = (t.at + 4) % 12",
    ),
    Piece(
        "argument of the devices written",
        "own = torch.zeros(4, 8)",
        loop="own = x.clone().to(place)",
        argument="mine=own",
        first="mine.mul_(0.5)\nmine[:, 0] = 0.0",
        loss="loss = loss + 0.1 * model(mine).mean()",
    ),
    Piece(
        "autocast",
        loss="with torch.autocast(place.type, dtype=torch.bfloat16, enabled=t.low):\n    loss = loss + 0.0 * x.mean()",
        setup="t.low = False",
        loop="t.low = n > 9",
    ),
    Piece("early stop", after="if n > 8 and float(loss) < 0.3: break"),
    Piece(
        "rates of groups",
        "optimizer = type(optimizer)([{'params': model[0].parameters()}, {'params': model[2]"
        ".parameters(), 'lr': 0.01}], lr=0.05)",
        loop="optimizer.param_groups[1]['lr'] = 0.01 * (1 + n % 3)",
    ),
    Piece(
        "flat vector of weights",
        after="with torch.no_grad():\n    flat = nn.utils.parameters_to_vector(model.parameters())\n"
        "    if n % 5 == 4: nn.utils.vector_to_parameters(flat * 0.9, model.parameters())",
    ),
    Piece(
        "means that are read",
        "mean = torch.zeros((), device=place)\nread = []",
        last="mean.mul_(0.9).add_(0.1 * loss.detach())",
        after="if n % 4 == 3: read.append(float(mean)); mean.zero_()",
    ),
    Piece(
        "moment of the loss",
        "t.total = torch.zeros((), device=place)",
        last="t.total = t.total + loss.detach()",
        after="if n % 5 == 4: t.total = torch.zeros((), device=place)",
    ),
    Piece(
        "experts",
        "experts = nn.ModuleList(nn.Linear(8, 1) for _ in range(3)).to(place)\n"
        "trained = torch.optim.Adam(experts.parameters(), lr=0.01)",
        argument="which=n % 3",
        first="trained.zero_grad()",
        loss="loss = loss + 0.1 * F.mse_loss(experts[which](x), y)",
        last="trained.step()",
    ),
    Piece(
        "deep copy in the middle",
        loop="if n == 9: model = copy.deepcopy(model)\nif n == 9: optimizer = "
        "type(optimizer)(model.parameters(), lr=0.03)",
    ),
)
OPTIMIZERS = (
    "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)",
    "torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01, nesterov=True)",
    "torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)",
    "torch.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=0.1)",
    "torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.3)",
)
HEAD = """import copy, random
import numpy as np
import torch
from dataclasses import dataclass
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_value_
from torch.optim import lr_scheduler as lr, swa_utils
class Trainer:
    factor = 1.0
t = Trainer()
@dataclass
class Config:
    level: float
class Slotted:
    __slots__ = ("level",)
    def __init__(self, level): self.level = level
class Center(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
    def forward(self, x):
        if self.training:
            with torch.no_grad(): self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean.clone()
class Computed:
    base = 1.0
    @property
    def k(self): return self.base * 2
class Made:
    def __init__(self): self.table = {"k": 1.0}
    def __getattr__(self, name): return self.__dict__["table"][name]
def halve(p): p.grad.mul_(0.5)
"""
