"""The accelerator and the strategy that Lightning calls ``pathways``."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ptpathways import core, frontend

if TYPE_CHECKING:
    import torch

NAME = "pathways"


def register(package: ModuleType) -> None:
    """Makes ``accelerator="pathways"`` and ``strategy="pathways"`` known to a Lightning package. Idempotent.

    Args:
        package: ``lightning.pytorch`` or ``pytorch_lightning``, imported.
    """
    accelerators, strategies = package.accelerators, package.strategies
    if NAME in accelerators.AcceleratorRegistry.available_accelerators():
        return
    accelerators.AcceleratorRegistry.register(
        NAME, _accelerator(accelerators.Accelerator), description="all devices of a ptpathways cluster"
    )
    precisions = package.plugins.precision
    strategies.StrategyRegistry.register(
        NAME, _strategy(strategies.SingleDeviceStrategy, precisions), description="a ptpathways cluster, as one device"
    )
    _choose_it_by_the_accelerator(package.trainer.connectors.accelerator_connector)


def _choose_it_by_the_accelerator(module: ModuleType) -> None:
    """``Trainer(accelerator="pathways")`` alone is enough. Lightning chooses among its own strategies only.

    Where Lightning's private class has changed, the strategy must be named; the accelerator's error says so.
    """
    connector = getattr(module, "_AcceleratorConnector", None)
    choose = getattr(connector, "_choose_strategy", None)
    if choose is None:
        return

    @functools.wraps(choose)
    def choose_strategy(self: Any) -> Any:
        return NAME if getattr(self, "_accelerator_flag", None) == NAME else choose(self)

    setattr(connector, "_choose_strategy", choose_strategy)  # noqa: B010  (a method of another library's class)


def _accelerator(base: Any) -> Any:
    class PathwaysAccelerator(base):
        """All devices of the cluster that ``ptpathways.init`` has joined, as one."""

        @staticmethod
        def parse_devices(devices: Any) -> int:
            """Raises InvalidOption when Lightning is asked for a number of devices."""
            if devices in ("auto", 1, "1", -1, "-1", None):
                return 1
            raise core.InvalidOption(
                f"Trainer(devices=...) must be 'auto' with accelerator 'pathways', got {devices!r}: one process drives "
                "all devices; give their number to ptpathways.init(hosts=..., devices_per_host=...)"
            )

        @staticmethod
        def get_parallel_devices(devices: int) -> list[torch.device]:
            return [frontend.device()]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return NAME

        def setup_device(self, device: torch.device) -> None:
            """Raises InvalidOption when another strategy has chosen another device: it would train there."""
            if device.type != "xla":
                raise core.InvalidOption(
                    f"accelerator 'pathways' must go with strategy='pathways', got a strategy on {device}: say "
                    "Trainer(accelerator='pathways', strategy='pathways')"
                )

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return {}

        def teardown(self) -> None: ...

    return PathwaysAccelerator


def _strategy(base: Any, precisions: Any) -> Any:
    class PathwaysStrategy(base):
        """The whole cluster as one device; each batch is one computation."""

        strategy_name = NAME

        def __init__(self, **options: Any) -> None:
            super().__init__(device=frontend.device(), **options)

        @property
        def precision_plugin(self) -> Any:
            return super().precision_plugin

        @precision_plugin.setter
        def precision_plugin(self, plugin: Any) -> None:
            """Mixed precision is autocast of the cluster's devices. Raises InvalidOption for ``16-mixed``."""
            if isinstance(plugin, precisions.MixedPrecision):
                if plugin.scaler is not None:
                    raise core.InvalidOption(
                        f"Trainer(precision=...) must not scale losses with accelerator 'pathways', got "
                        f"{plugin.precision!r}; use 'bf16-mixed', which needs no scaling"
                    )
                plugin.device = "xla"
            self._precision_plugin = plugin

        def setup(self, trainer: Any) -> None:
            # Trainer.num_nodes is what the strategy says, so the argument is nowhere else.
            nodes = getattr(trainer._accelerator_connector, "_num_nodes_flag", 1)
            if nodes != 1:
                raise core.InvalidOption(
                    f"Trainer(num_nodes=...) must be 1 with accelerator 'pathways', got {nodes}: one "
                    "process drives all hosts; give their number to ptpathways.init(hosts=...)"
                )
            super().setup(trainer)

        def optimizer_step(self, *arguments: Any, **options: Any) -> Any:
            made = super().optimizer_step(*arguments, **options)
            frontend.step()
            return made

        def validation_step(self, *arguments: Any, **options: Any) -> Any:
            made = super().validation_step(*arguments, **options)
            frontend.step()
            return made

        def test_step(self, *arguments: Any, **options: Any) -> Any:
            made = super().test_step(*arguments, **options)
            frontend.step()
            return made

        def predict_step(self, *arguments: Any, **options: Any) -> Any:
            made = super().predict_step(*arguments, **options)
            frontend.step()
            return made

    return PathwaysStrategy
