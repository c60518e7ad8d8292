"""What an optimizer remembers of its parameters, brought back as it was saved."""

import torch
from torch.optim.optimizer import StateDict


class AsSaved(torch.optim.Optimizer):
    """An optimizer whose memory may have another dtype than its parameters."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """As it was saved: the library alone would round the memory to the parameters' dtype.

        Counts stay on the CPU, where they are read at every step.
        """
        super().load_state_dict(state_dict)
        params = [p for group in self.param_groups for p in group["params"]]
        for i, memory in state_dict["state"].items():
            for name, value in memory.items():
                device = "cpu" if name == "step" else params[i].device
                self.state[params[i]][name] = value.to(device, copy=True)
