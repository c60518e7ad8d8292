"""What watches two steps of a script from inside: losses of backward passes, norms of gradients.

`ablate split --smoke` puts this file on the path of the script's Python as `sitecustomize`; it
imports nothing of ours. Once torch is there, whoever imports it, every backward pass of a single
number is noted, and every step of an optimizer with the norm of its gradients; after STEPS steps,
at the backward pass that follows, the process ends. Where ABLATE_SMOKE names no file, nothing of
this happens. What goes wrong in here is never the script's fault, and is kept from it.
"""

import atexit
import importlib
import importlib.util
import json
import math
import os
import random
import sys
from contextlib import suppress

PLACE = "ABLATE_SMOKE"  # the file that the process of rank 0 adds lines to
STEPS = 2


class Watch:
    """What a process has done so far."""

    def __init__(self, torch, place):
        self.torch = torch
        self.place = place
        self.n_steps = {}  # of each optimizer
        self.n_others = 0  # ends of steps that no optimizer of torch makes
        self.backward = False  # since the last of those
        self.squares = {}  # step -> sum of squares of its gradients

    def install(self):
        """Put the watch into torch."""
        torch = self.torch
        torch.manual_seed(0)
        random.seed(0)
        backward, zero_grad = torch.autograd.backward, torch.nn.Module.zero_grad

        def watched_backward(tensors, *arguments, **named):
            self.on_backward(tensors)
            return backward(tensors, *arguments, **named)

        def watched_zero_grad(module, *arguments, **named):
            self.on_zero_grad()
            return zero_grad(module, *arguments, **named)

        torch.autograd.backward = watched_backward
        vars(torch.nn)["Module"].zero_grad = watched_zero_grad
        hooks = importlib.import_module("torch.optim.optimizer")
        hooks.register_optimizer_step_pre_hook(self.on_step)
        atexit.register(self.tell_steps)
        self.write(torch=torch.__version__)

    def steps(self):
        """How many steps are over, or begun by an optimizer."""
        return max(self.n_steps.values(), default=self.n_others)

    def write(self, **told):
        """Add a line to the file; the other ranks of a run have none."""
        if os.environ.get("RANK", "0") == "0":
            with open(self.place, "a") as file:
                file.write(json.dumps(told) + "\n")

    def on_backward(self, tensors):
        """Note a loss; end the process where enough steps were made."""
        with suppress(Exception):
            self.backward = True
            if isinstance(tensors, self.torch.Tensor) and tensors.numel() == 1:
                self.write(step=self.steps(), loss=float(tensors.detach()))
            if self.steps() >= STEPS:
                self.end()

    def on_step(self, optimizer, arguments, named):
        """Note the norm of the gradients that an optimizer is given."""
        with suppress(Exception):
            step = self.n_steps[id(optimizer)] = self.n_steps.get(id(optimizer), 0) + 1
            with self.torch.no_grad():
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        if parameter.grad is not None:
                            norm = float(parameter.grad.detach().float().norm())
                            self.squares[step] = self.squares.get(step, 0.0) + norm * norm

    def on_zero_grad(self):
        """A step has ended, in a script whose optimizer is not one of torch's."""
        with suppress(Exception):
            if self.backward and not self.n_steps:
                self.n_others += 1
                self.backward = False

    def tell_steps(self):
        """Tell what was seen."""
        norms = [math.sqrt(self.squares[step]) for step in sorted(self.squares)[:STEPS]]
        self.write(norms=norms, steps=self.steps())

    def end(self):
        """Leave at once."""
        self.tell_steps()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Finder:
    """Lets torch be imported as ever, and puts the watch into it then."""

    def __init__(self, place):
        self.place = place
        self.looking = False

    def find_spec(self, name, path=None, target=None):
        """The spec that others find for torch, with a loader that installs the watch."""
        if name != "torch" or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            watch = Watch(module, self.place)
            try:
                watch.install()
            except Exception as error:
                watch.write(fault=repr(error))

        vars(spec.loader)["exec_module"] = exec_module
        sys.meta_path.remove(self)
        return spec


def start():
    """Begin to wait for torch, then give way to a sitecustomize of the environment's own."""
    place = os.environ.get(PLACE)
    if place:
        sys.meta_path.insert(0, Finder(place))
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this


if __name__ == "sitecustomize":
    start()
