"""Pieces of loops whose steps depend on, or change, what is not a number in an attribute: what keys, sets, queues,
iterators, arguments, absent names, classes and objects of Python's own library hold."""

from __future__ import annotations

from tests.fuzz.pieces import Piece

_LOSS = "loss = loss * {}"
_LATER = "if n == 9: {}"

HEAD = """
import argparse, collections, contextvars, ctypes, enum, functools, importlib, itertools, logging, operator, queue
import sys, threading, types, weakref
class Mode(enum.Enum):
    ONE = 1
class Level:
    def __init__(self, k): self.k = k
class Bare: pass
class Kept:
    __slots__ = ("bonus",)
class Counting(logging.Handler):
    n = 0
    def emit(self, record): self.n += 1
class Gain:
    gain = 1.0
    @property
    def s(self): return self._s
    @s.setter
    def s(self, value): self._s = value * self.gain
class Mine(torch.optim.SGD):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.calls = [0]
    def step(self, closure=None):
        self.calls[0] += 1
        for group in self.param_groups:
            for p in group["params"]:
                if self.calls[0] % 7 == 0: p.grad.mul_(0.1)
        return super().step(closure)
def primed():
    value = 1.0
    while True:
        yield value
        value += 0.5
def level(k): return Level(k)
class Text(str): pass
class Tagged(torch.Tensor): pass
class Pair(tuple): pass
class Other: gain = 1.0
class Derived(Gain): pass
class Local(threading.local): late = 1.0
class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f, kinds, args=(), kwargs=None):
        made = f(*args, **(kwargs or {}))
        return made * 2 if f is F.linear else made
sys.modules["settings_of_a_loop"] = settings = types.ModuleType("settings_of_a_loop")
settings.k = 1.0
"""


def _changed(name: str, setup: str, read: str, change: str) -> Piece:
    """Something that the step reads, and that the loop changes at call 9."""
    return Piece(name, setup, loss=_LOSS.format(read), loop=_LATER.format(change))


REACH = (
    _changed("key that is a pair", "d = {(1, 2): 1.0}", "d[1, 2]", "d[1, 2] = 3.0"),
    _changed("key that is a member", "d = {Mode.ONE: 1.0}", "d[Mode.ONE]", "d[Mode.ONE] = 3.0"),
    _changed("key that is a module", "d = {model[0]: 1.0}", "d[model[0]]", "d[model[0]] = 3.0"),
    _changed("key that comes later", "d = {}", "d.get((1, 2), 1.0)", "d[1, 2] = 3.0"),
    _changed("weak keys", "d = weakref.WeakKeyDictionary({model[0]: 1.0})", "d[model[0]]", "d[model[0]] = 3.0"),
    _changed("order of keys", "d = {'a': 1.0, 'b': 2.0}", "next(iter(d.values()))", "d['a'] = d.pop('a')"),
    _changed("queue of objects", "q = collections.deque([Level(1.0)])", "q[0].k", "q[0].k = 3.0"),
    _changed("set of objects", "s = {Level(1.0)}", "sum(one.k for one in s)", "next(iter(s)).k = 3.0"),
    _changed(
        "variable of a context", "v = contextvars.ContextVar('v', default=Level(1.0))", "v.get().k", "v.get().k = 3.0"
    ),
    _changed("user's list", "u = collections.UserList([1.0])", "u[0]", "u[0] = 3.0"),
    _changed("attribute that comes later", "b = Bare()", "(b.bonus if hasattr(b, 'bonus') else 1.0)", "b.bonus = 3.0"),
    _changed("attribute of a module", "", "getattr(model, 'bonus', 1.0)", "model.bonus = 3.0"),
    _changed("attribute of a namespace", "b = types.SimpleNamespace()", "getattr(b, 'bonus', 1.0)", "b.bonus = 3.0"),
    _changed("slot that is filled later", "b = Kept()", "getattr(b, 'bonus', 1.0)", "b.bonus = 3.0"),
    _changed("attribute of a class", "b = Bare()", "getattr(b, 'late', 1.0)", "Bare.late = 3.0"),
    _changed("global that comes later", "", "(BONUS if 'BONUS' in globals() else 1.0)", "BONUS = 3.0"),
    _changed("other class", "b = Level(1.0)", "(3.0 if isinstance(b, Bare) else 1.0)", "b.__class__ = Bare"),
    _changed("other attributes", "b = Level(1.0)", "b.k", "b.__dict__ = {'k': 3.0}"),
    _changed("forward of a layer", "", "1.0", "model[1].forward = lambda x: x * 0.3"),
    _changed("forward of a class", "old = nn.Tanh.forward", "1.0", "nn.Tanh.forward = lambda self, x: x * 0.3"),
    _changed("event", "e = threading.Event()", "(3.0 if e.is_set() else 1.0)", "e.set()"),
    _changed("commands", "q = queue.Queue()", "(1.0 if q.empty() else q.get_nowait())", "q.put(3.0)"),
    _changed(
        "cache", "k = [1.0]\ncached = functools.cache(lambda: k[0])", "cached()", "k[0] = 3.0; cached.cache_clear()"
    ),
    Piece("setter", "g = Gain()", loss="g.s = 1.5\nloss = loss * g.s", loop="if n == 9: g.gain = 3.0"),
    Piece("zipped", "z = zip(itertools.count(), itertools.count(1.0))", loss="loss = loss * (1 + next(z)[0] % 3)"),
    Piece("mapped", "z = map(float, itertools.count())", loss="loss = loss * (1 + next(z) % 3)"),
    Piece("generator", "z = primed()\nnext(z)", loss="loss = loss * next(z)"),
    Piece("counter under a pair", "d = {(1, 2): 0}\nt.seen = 0", loss="d[1, 2] += 1\nt.seen = d[1, 2]"),
    Piece("method of a list", "h = []\nadd = h.append", last="add(1.0)"),
    Piece(
        "handler",
        "h = Counting()\nlog = logging.getLogger('w')\nlog.propagate = False\nlog.handlers = [h]",
        last="log.warning('x')",
        after="t.n = h.n",
    ),
    Piece(
        "grad mode left", "", last="torch.set_grad_enabled(n < 0)", argument="n=n", after="torch.set_grad_enabled(True)"
    ),
    Piece(
        "popped",
        "t.left = 0",
        first="x = x * batch.pop('k')",
        argument="batch=box",
        loop="box = {'k': 1.0 if n < 9 else 3.0}",
    ),
    Piece("array", argument="a=np.array([1.0 if n < 9 else 3.0])", loss="loss = loss * float(a.sum())"),
    Piece("set argument", argument="a={1.0 if n < 9 else 3.0}", loss="loss = loss * sum(a)"),
    Piece(
        "generator of numbers",
        "chance = np.random.default_rng(3)",
        argument="r=chance",
        loss="loss = loss * r.random()",
    ),
    Piece(
        "sparse",
        argument="a=torch.eye(4).mul(1.0 if n < 9 else 3.0).to_sparse()",
        loss="loss = loss + a.to_dense().to(place).mean()",
    ),
    Piece(
        "hook of all modules",
        "hooks = []",
        loop="if n == 9: hooks.append(nn.modules.module.register_module_forward_hook(lambda m, i, o: o * 2))",
        after="if n == 14: hooks.pop().remove()",
    ),
    _changed("attribute of a member", "Mode.ONE.k = 1.0", "Mode.ONE.k", "Mode.ONE.k = 3.0"),
    _changed("attribute of a text", "b = Text('a')\nb.k = 1.0", "b.k", "b.k = 3.0"),
    _changed("attribute of a tuple", "b = Pair((1.0,))\nb.k = 1.0", "b.k", "b.k = 3.0"),
    _changed("attribute of a partial", "b = functools.partial(level, 1)\nb.k = 1.0", "b.k", "b.k = 3.0"),
    _changed("attribute of an error", "b = ValueError(1.0)", "b.args[0]", "b.args = (3.0,)"),
    _changed("attribute of an optimizer", "optimizer.k = 1.0", "optimizer.k", "optimizer.k = 3.0"),
    _changed("got by a path", "b = Level(Level(1.0))\nget = operator.attrgetter('k.k')", "get(b)", "b.k.k = 3.0"),
    _changed("weak reference", "b = Bare()\nw = weakref.ref(b)", "(3.0 if w() is None else 1.0)", "del b"),
    _changed("set of weak references", "b = Bare()\nw = weakref.WeakSet([b])", "(3.0 - len(w))", "del b"),
    _changed("queue by priority", "q = queue.PriorityQueue()\nq.put(1.0)", "q.queue[0]", "q.queue[0] = 3.0"),
    _changed("semaphore", "q = threading.Semaphore(1)", "(1.0 + q._value)", "q.acquire()"),
    _changed("number of C", "q = ctypes.c_double(1.0)", "q.value", "q.value = 3.0"),
    _changed("view of bytes", "q = memoryview(bytearray(b'ab'))", "q[0]", "q[0] = 3"),
    _changed("mask", "q = np.ma.array([1.0, 2.0], mask=[0, 0])", "float(q.sum())", "q.mask = [0, 1]"),
    _changed("arguments of the process", "sys.argv.append('1')", "float(sys.argv[-1])", "sys.argv[-1] = '3'"),
    _changed("bases of a class", "b = Derived()", "getattr(b, 'bonus', b.gain)", "Gain.gain = 3.0"),
    _changed("class of a thread's values", "b = Local()", "b.late", "Local.late = 3.0"),
    _changed(
        "option that is no float any more",
        "optimizer.param_groups[0]['momentum'] = 0.9",
        "1.0",
        "optimizer.param_groups[0]['momentum'] = 0",
    ),
    Piece(
        "import",
        first="import settings_of_a_loop",
        loss=_LOSS.format("settings_of_a_loop.k"),
        loop=_LATER.format("settings.k = 3.0"),
    ),
    Piece(
        "import by name",
        loss=_LOSS.format("importlib.import_module('settings_of_a_loop').k"),
        loop=_LATER.format("settings.k = 3.0"),
    ),
    Piece(
        "negative zero", argument="a=0.0 if n < 9 else -0.0", loss="loss = loss * (3.0 if str(a)[0] == '-' else 1.0)"
    ),
    Piece(
        "attribute of an argument",
        argument="a=tagged",
        loss=_LOSS.format("a.k"),
        loop="tagged = torch.ones(2)\ntagged.k = 1.0 if n < 9 else 3.0",
    ),
    Piece(
        "layout of an argument",
        argument="a=torch.ones(2, 3) if n < 9 else torch.ones(3, 2).t()",
        loss="loss = loss * (1.0 if a.is_contiguous() else 3.0)",
    ),
    Piece(
        "function mode",
        loop="mode = Doubled()\nif n == 9: mode.__enter__()",
        after="if n == 9: mode.__exit__(*[None] * 3)",
    ),
    Piece(
        "hooks for what is saved",
        loop="kept = torch.autograd.graph.saved_tensors_hooks(lambda a: a * 2, lambda a: a)\n"
        "if n == 9: kept.__enter__()",
        after="if n == 9: kept.__exit__()",
    ),
    Piece(
        "parameter that is replaced, and trained later",
        loop="if n == 7: model[0].bias = nn.Parameter(torch.ones(16).to(place))\n"
        "if n == 10: optimizer.param_groups[0]['params'][1] = model[0].bias",
    ),
    Piece(
        "gradient that is a part of another",
        loop="if n == 9: model[2].bias.grad = model[2].weight.grad[0, :1]",
        grads="model[2].bias.grad.mul_(2)",
    ),
    Piece(
        "tensor that an object of a package keeps",
        "held = torch.utils.data.TensorDataset(torch.zeros(1))",
        last="held.made = loss.detach() * 2\nheld.made.k = 1",
        after="t.kept = held.made",
    ),
    Piece(
        "class of an argument",
        argument="a=torch.ones(2) if n < 9 else torch.ones(2).as_subclass(Tagged)",
        loss="loss = loss * (3.0 if isinstance(a, Tagged) else 1.0)",
    ),
)
