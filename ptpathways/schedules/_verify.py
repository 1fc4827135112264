"""What every schedule must keep, whatever its rule."""

from __future__ import annotations

from collections import Counter

from ptpathways.core import PipelineError
from ptpathways.schedules._actions import Action, Kind, Order, Size, dependencies


def verify(order: Order, size: Size, *, split: bool, name: str = "schedule") -> Order:
    """Returns ``order`` if it runs every action exactly once, on the right rank, and cannot deadlock.

    Raises:
        PipelineError: names the first action that breaks a rule.
    """
    kinds = (Kind.FORWARD, *((Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT) if split else (Kind.BACKWARD,)))
    wanted = {
        Action(kind, stage, number)
        for kind in kinds
        for stage in range(size.stages)
        for number in range(size.microbatches)
    }
    counts = Counter(action for actions in order for action in actions)
    for action, count in counts.items():
        if action not in wanted:
            raise PipelineError(f"schedule {name!r} runs {action}, which a step of this size does not have")
        if count > 1:
            raise PipelineError(f"schedule {name!r} runs {action} {count} times")
    missing = sorted(wanted - counts.keys())
    if missing:
        raise PipelineError(f"schedule {name!r} never runs {missing[0]} ({len(missing)} actions are missing)")
    if len(order) != size.ranks:
        raise PipelineError(f"schedule {name!r} orders {len(order)} ranks, and there are {size.ranks}")
    for rank, actions in enumerate(order):
        for action in actions:
            if size.rank_of(action.stage) != rank:
                raise PipelineError(
                    f"schedule {name!r} runs {action} on rank {rank}; its stage is on rank {size.rank_of(action.stage)}"
                )
    _ = serial(order, size, split=split, name=name)
    return order


def serial(order: Order, size: Size, *, split: bool, name: str = "schedule") -> list[Action]:
    """All actions in one order that keeps each rank's own and has every action after what it needs.

    Raises:
        PipelineError: the ranks wait for each other; names the actions at their heads.
    """
    made: list[Action] = []
    done: set[Action] = set()
    places = [0] * len(order)
    while len(made) < sum(map(len, order)):
        before = len(made)
        for rank, actions in enumerate(order):  # one action per rank and round: near to the order in time
            if places[rank] == len(actions):
                continue
            action = actions[places[rank]]
            if all(needed in done for needed in dependencies(action, size.stages, split)):
                made.append(action)
                places[rank] += 1
        done.update(made[before:])
        if len(made) == before:
            heads = [str(actions[place]) for actions, place in zip(order, places, strict=True) if place < len(actions)]
            raise PipelineError(f"schedule {name!r} deadlocks: the ranks wait at {', '.join(heads)}")
    return made
