"""The promises of the README and its pages, and the tests of workers that show them in `make test`.

All other tests here are `thorough`: `make test-all` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: How the ids of these tests begin.
FOLDER = "tests/acceptance/"
#: Where the promises stand: the README, and pages that it links to.
PAGES = ("README.md", "docs/howto/production.md", "docs/limits.md")
#: Words of these pages, and ids of tests below this folder.
PROMISES: Mapping[str, Sequence[str]] = {
    "no task runs twice because it takes long": [
        "test_long_tasks.py::test_twelve_long_tasks_run_once_each_and_without_the_flag_more_often",
        "test_long_tasks.py::test_a_countdown_longer_than_the_visibility_timeout_runs_once",
        "test_reconnect.py::test_a_task_that_runs_through_a_reconnect_runs_once",
        "test_late_arrivals.py::test_a_late_message_runs_only_after_an_extension_confirms_its_lease",
    ],
    "it extends the visibility timeout, in batches": [
        "test_long_tasks.py::test_each_task_runs_once_although_calls_and_entries_fail",
        "test_consuming.py::test_receives_that_fail_do_not_end_the_consuming",
    ],
    "until SQS has confirmed the delete": [
        "test_shutdown.py::test_a_warm_shutdown_holds_running_messages_until_their_delete_is_confirmed[prefork]",
        "test_shutdown.py::test_a_worker_that_gives_up_its_last_delete_names_the_message",
    ],
    "releases the message: at once the first time": [
        "test_failing_tasks.py::test_a_short_outage_of_what_tasks_depend_on_makes_no_dead_letters"
        "[standard]",
        "test_failing_tasks.py::test_any_end_that_leaves_its_message_in_the_queue_releases_it_at_once",
        "test_deciding_tasks.py::test_a_task_that_releases_its_message_gets_it_after_the_delay_and_"
        "has_not_failed[prefork]",
        "test_deciding_tasks.py::test_a_task_that_releases_its_message_gets_it_after_the_delay_and_"
        "has_not_failed[threads]",
        "test_deciding_tasks.py::test_the_delay_that_a_task_has_set_counts_for_its_later_error"
        "[prefork-error]",
        "test_deciding_tasks.py::test_the_delay_that_a_task_has_set_counts_for_its_later_error"
        "[threads-error]",
        "test_last_polls.py::test_an_idle_worker_releases_messages_of_its_last_poll",
        "test_shutdown.py::test_a_warm_shutdown_immediately_releases_messages_that_no_process_has_started[prefork]",
        "test_shutdown.py::test_a_cold_shutdown_releases_running_prefetched_and_eta_messages_in_"
        "batches",
        "test_shutdown.py::test_a_soft_shutdown_lets_short_tasks_end_and_releases_the_rest[SIGQUIT]",
        "test_unusual_ends.py::test_however_a_task_ends_its_message_is_settled_and_its_slot_is_free"
        "[prefork]",
    ],
    "every crash or failure waits for it": [
        "test_crashes.py::test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds"
        "[prefork]",
    ],
    "A message on its last receive whose task has not started": [
        "test_last_receives.py::test_a_warm_shutdown_runs_what_was_received_for_the_last_time"
        "[prefork-False-2]",
        "test_last_receives.py::test_what_can_not_run_is_sent_again_and_runs_on_another_worker"
        "[cold-prefork-2]",
    ],
    "pip install ./celery-sqs-heartbeat": [
        "test_readme.py::test_nothing_in_the_readme_goes_untested",
        "test_readme.py::test_the_package_is_installed_by_pip",
        "test_readme.py::test_without_an_aws_account_the_readmes_lines_run_its_task",
    ],
    "celery -A proj worker --heartbeat-sqs": [
        "test_readme.py::test_the_worker_of_the_readme_runs_its_task_with_the_permissions_of_the_readme",
        "test_readme.py::test_the_worker_shows_the_flag_in_its_help",
        "test_settings.py::test_the_flag_overrides_the_setting[args1-conf1-False]",
    ],
    "No setting is required": [
        "test_readme.py::test_the_settings_of_the_readme_are_accepted",
        "test_settings.py::test_bad_settings_are_listed_in_one_error_and_the_worker_exits",
        "test_settings.py::test_settings_that_do_not_fit_the_queues_own_timeouts_are_listed_in_one_"
        "error[prefork]",
        "test_settings.py::test_receives_and_extensions_use_the_visibility_timeout_of_the_settings",
        "test_failing_tasks.py::test_a_release_delay_can_be_set_by_receive_count",
        "test_queues.py::test_messages_of_each_queue_are_held_by_its_own_visibility_timeout",
        "test_lost_leases.py::test_a_stuck_task_does_not_hold_its_message_indefinitely",
        "test_settings.py::test_a_task_that_opted_out_is_not_extended",
    ],
    "what happened to every message": [
        "test_operating.py::test_the_journal_records_the_life_of_a_message",
        "test_operating.py::test_a_broken_journal_loses_no_message",
    ],
    "the page, /livez, /readyz, /metrics": [
        "test_operating.py::test_the_status_page_shows_the_leases_of_the_worker[prefork]",
        "test_unanswered_polls.py::test_an_unreachable_sqs_makes_a_worker_unready_but_no_restart_"
        "would_help_it[prefork-refusing]",
        "test_status_page.py::test_leases_are_bars_by_queue_and_task_and_move",
    ],
    "celery -A proj sqs-heartbeat doctor": [
        "test_readme.py::test_the_commands_of_the_readme_look_at_its_worker",
        "test_readme.py::test_the_commands_of_the_readme_read_its_journal",
    ],
    "sqs:ChangeMessageVisibility": [
        "test_permissions.py::test_without_permission_to_extend_the_worker_continues_without_leases",
    ],
    "just before they do what must not happen twice": [
        "test_current_lease.py::test_a_task_whose_lease_is_lost_is_stopped_before_its_side_effect",
        "test_lost_leases.py::test_with_a_lost_lease_a_waiting_task_is_not_started_and_a_running_one_continues",
    ],
    "in prefork, threads, solo, gevent and eventlet pools": [
        "test_crashes.py::test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds"
        "[threads]",
        "test_pools.py::test_the_rest_of_a_batch_is_kept_while_a_solo_task_runs",
        "test_pools.py::test_a_message_whose_task_fails_is_released[gevent]",
        "test_pools.py::test_a_message_whose_task_fails_is_released[eventlet]",
        "test_pools.py::test_a_task_that_never_yields_is_extended_while_it_runs[gevent]",
    ],
    "[one at a time, in order](docs/howto/fifo.md)": [
        "test_fifo.py::test_workers_of_several_processes_keep_the_order_of_each_group",
        "test_fifo_order.py::test_a_failure_stops_its_group_until_its_message_has_come_again"
        "[threads]",
    ],
    "[Tutorial](docs/tutorial.md)": [
        "test_tutorial.py::test_the_tutorial_is_true",
    ],
}


def promised() -> set[str]:
    """Return the ids of all tests that show a promise."""
    return {name for names in PROMISES.values() for name in names}
