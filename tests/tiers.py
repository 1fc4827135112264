"""Which tests `make test` leaves to `make test-all`, so that it takes minutes, and which files it begins with.

A test that is long stands here if others of its file still see most of what it would find: another number of hosts or
devices, more seeds of a generator, a comparison with another backend, a wait for a deadline.
"""

from __future__ import annotations

import re

import pytest

LONG = (
    r"chaos/test_campaign.py::test_a_campaign_finds_what_is_wrong",
    r"conformance/test_jax_programs.py::",
    r"device/test_jax.py::",
    r"device/test_plugin.py::test_(pypjrts_conformance|a_client_may_be_bound)",
    r"fuzz/test_capture_steps.py::(.*\[(1|2)000\]|test_what_a_step_(reaches|is_given))",
    r"fuzz/test_error_inputs.py::",
    r"fuzz/test_promotions.py::test_results_of_mixed_types",
    r"proc/test_accelerate.py::.*after",
    r"proc/test_asynchrony.py::test_twenty_steps.*\[1\]",
    r"proc/test_bench_paper.py::(test_a_step|test_a_pipeline|test_layers|test_islands)",
    r"proc/test_capture.py::.*\[(views|tight|sharing|classes|unseen|batches|changes|results|graphs|two)-",
    r"proc/test_captured_mesh.py::",
    r"proc/test_captured_targets.py::",  # unit/test_capture_programs.py sees how a step becomes a program
    r"proc/test_checkpoints.py::test_a_single_device_goes_on",
    r"proc/test_code_room.py::(test_a_loop_of_many_shapes|test_functions_that_are_held|test_arrays_that_grow)",
    r"proc/test_compile_targets.py::test_(a_program_of|what_does_not_fit|from_python)",
    r"proc/test_convolutions.py::.*(\[[1-4]\]|two hosts|one host|bfloat16|without_onednn)",
    r"proc/test_data.py::(.*\[(1x1|4x1)|test_order_and_random_numbers.*2x2)\]",
    r"proc/test_entry.py::test_(silent_and_half_open|a_shard_that_was_changed)",
    r"proc/test_examples.py::(test_four_ways|test_the_digits_are_learnt|.*(1x1|4x1)|.*eager_twin\[0[12]|.*at_most_six_lines)",
    r"proc/test_examples.py::.*(08_transformers|09_accelerate|10_lightning|11_timm|12_torchvision|13_own_batches)",
    r"proc/test_floods.py::test_a_client_that_is_stopped",
    r"proc/test_far_memory.py::test_a_loop_on_one_slice",
    r"proc/test_first_step.py::(test_every_optimizer|test_models_of_libraries|test_what_cannot)",
    r"proc/test_kept_errors.py::test_a_loop",
    r"proc/test_launch_torchrun.py::test_(a_rank_that_never_comes|a_job_is_restarted|a_worker_that_dies)",
    r"proc/test_launch_torchrun.py::test_a_signal_to_torchrun.*\[15\]",
    r"proc/test_long_waits.py::test_a_process_that_leaves",
    r"proc/test_mesh.py::.*(\((1, 4|4, 1)\)|from_the_cpu|depend_on_the_seed|different_numbers_of)",
    r"proc/test_metrics.py::(.*\[single-|test_a_run_of_weights)",
    r"proc/test_models.py::.*\[(bert|t5|llama|mixtral|resnet18|gpt2)\]",
    r"proc/test_notebook.py::(.*interrupts-spmd|test_a_wrapped_backward)",
    r"proc/test_numbers.py::.*1x1",
    r"proc/test_operators.py::.*-2\]",
    r"proc/test_pauses.py::test_a_loop_survives",  # the campaign's minute has pauses
    r"proc/test_pipelines.py::.*\[(changes|updates|handling|mistakes)-",
    r"proc/test_plugin_islands.py::",
    r"proc/test_products.py::.*(\[1\]|bfloat16)",
    r"proc/test_ray.py::(test_a_loop|test_run_places|test_nothing_is|test_what_ray|.*actor)",
    r"proc/test_reads.py::.*-(one_by_one-pathways|single-pathways|.*xla-cpu)\]",
    r"proc/test_resume.py::.*(\[released-|stopped_and_then_killed|bad_network)",
    r"proc/test_rotation.py::test_a_loop_has_the_same_losses",
    r"proc/test_standby.py::.*\[(pipeline|captured)\]",
    r"proc/test_trainer_and_generator.py::.*(\[off-policy|\[sync-|an_eager_policy)",
    r"proc/test_training.py::.*(xla-cpu|\[single-|\[one_by_one-)",
    r"proc/test_training.py::test_(cpu_hosts_of_several_islands|transfers_go|init_after_the_runtime)",
    r"proc/test_tutorial.py::",
    r"proc/test_user_mistakes.py::.*\[(fallback|late_init|twice)\]",
    r"proc/test_wheel.py::",  # builds everything once more
)

FIRST = (
    *("proc/test_capture", "proc/test_checkpoints", "proc/test_data", "proc/test_operators", "proc/test_pipelines"),
    *("proc/test_mesh", "device/test_plugin", "proc/test_user_mistakes", "proc/test_loops", "proc/test_slice_devices"),
    *("proc/test_notebook", "proc/test_entry", "proc/test_far_memory", "proc/test_training", "chaos/test_campaign"),
    *("fuzz/test_views", "proc/test_accelerate", "proc/test_forks", "proc/test_launch_torchrun", "fuzz/test_refusals"),
    *("proc/test_resume", "proc/test_models", "proc/test_convolutions", "proc/test_first_step", "proc/test_cli_errors"),
    *("fuzz/test_capture_steps", "proc/test_functions", "proc/test_namespaces", "proc/test_numbers"),
)
"""Files that take longest, the longest first, so that no process is left with one of them at the end."""


def put_first(items: list[pytest.Item]) -> None:
    """Orders the tests of ``FIRST`` before all others; those of a file stay together, in their order."""
    places = {f"tests/{name}.py": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(FIRST)))


def mark_long(items: list[pytest.Item], *, whole: bool) -> None:
    """Marks the tests of ``LONG``. ``whole``: all tests are there, so an entry that names none is an error."""
    stale = []
    for entry in LONG:
        found = [item for item in items if re.search(entry, item.nodeid)]
        for item in found:
            item.add_marker(pytest.mark.long)
        if not found:
            stale.append(entry)
    files = {item.nodeid.partition("::")[0] for item in items}
    stale += [name for name in FIRST if f"tests/{name}.py" not in files]
    if whole and stale:
        raise pytest.UsageError(f"tests/tiers.py names tests that are not there: {', '.join(stale)}")
