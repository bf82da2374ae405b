"""What the pages promise of a worker, and the tests of workers that show it: no other is here.

`make test` runs those that are named in full. A name that begins with `+` is that of a test, or of
the rest of its cases, that `make test-all` runs: other pools, and what only a few users need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: How the ids of these tests begin.
FOLDER = "tests/acceptance/"
#: Where the promises stand: the README, and pages that it links to.
PAGES = (
    *("README.md", "docs/howto/production.md", "docs/limits.md", "docs/motivation.md"),
    *("docs/operations.md", "docs/settings.md", "docs/howto/fifo.md", "docs/faq.md"),
)
#: Words of these pages, and ids of tests below this folder.
PROMISES: Mapping[str, Sequence[str]] = {
    "no task runs twice because it takes long": [
        "test_long_tasks.py::test_twelve_long_tasks_run_once_each_and_without_the_flag_more_often",
        "test_long_tasks.py::test_a_late_message_runs_only_after_an_extension_confirms_its_lease",
        "test_restarts.py::test_a_task_that_runs_through_a_reconnect_runs_once",
        "+test_restarts.py::test_a_task_cancelled_for_a_lost_connection_is_received_again",
        "+test_restarts.py::test_a_pool_restart_keeps_running_and_waiting_messages",
        "+test_restarts.py::test_sighup_releases_waiting_messages_and_the_restarted_worker_runs_them",
        "+test_restarts.py::test_a_pool_that_grows_and_shrinks_and_replaces_its_processes_runs_each_task_once",
    ],
    "Why does a task with a countdown or an ETA run several times?": [
        "+test_long_tasks.py::test_a_message_is_extended_whatever_it_waits_for",
    ],
    "A parked task starts in time": [
        "+test_long_tasks.py::test_a_task_that_is_due_later_is_not_held_and_starts_within_one_poll_of_its_time",
    ],
    "it extends the visibility timeout, in batches": [
        "test_long_tasks.py::test_each_task_runs_once_although_calls_and_entries_fail",
        "+test_long_tasks.py::test_no_lease_expires_when_a_firewall_forgets_the_connections_of_a_keeper",
    ],
    "until SQS has confirmed the delete": [
        "test_shutdown.py::test_a_warm_shutdown_holds_running_messages_until_their_delete_is_confirmed[prefork]",
        "+test_shutdown.py::test_a_warm_shutdown_holds_running_messages_until_their_delete_is_confirmed",
        "test_shutdown.py::test_a_worker_that_gives_up_its_last_delete_names_the_message",
        "+test_ends_of_tasks.py::test_however_a_task_ends_its_message_is_deleted_and_its_lease_ends",
    ],
    "releases the message: at once the first time": [
        "test_ends_of_tasks.py::test_a_short_outage_of_what_tasks_depend_on_makes_no_dead_letters",
        "test_ends_of_tasks.py::test_any_end_that_leaves_its_message_in_the_queue_releases_it_at_once",
        "+test_ends_of_tasks.py::test_in_an_instrumented_worker_messages_end_as_usual_and_each_error_is_reported",
        "test_ends_of_tasks.py::test_however_a_task_ends_its_message_is_settled_and_its_slot_is_free[prefork]",
        "+test_ends_of_tasks.py::test_however_a_task_ends_its_message_is_settled_and_its_slot_is_free",
    ],
    "the message is released when the process is dead, even if its task ignores SIGTERM": [
        "+test_ends_of_tasks.py::test_a_message_is_released_only_after_its_overdue_process_has_died",
    ],
    "kombu 5.7 deletes the message, and the task is gone": [
        "+test_ends_of_tasks.py::test_a_stock_worker_deletes_what_fails_if_the_queue_has_no_redrive_policy",
    ],
    "The first of [five rules]": [
        "test_leases.py::test_a_task_that_releases_its_message_gets_it_after_the_delay_and_has_not_failed",
        "test_leases.py::test_the_delay_that_a_task_has_set_counts_for_its_later_error[error]",
        "+test_leases.py::test_the_delay_that_a_task_has_set_counts_for_its_later_error",
        "+test_leases.py::test_a_worker_without_the_flag_deletes_no_message_that_its_task_released",
    ],
    "or a shutdown stops it, and its message stays in the queue": [
        "test_shutdown.py::test_a_warm_shutdown_immediately_releases_messages_that_no_process_has_started",
        "test_shutdown.py::test_a_cold_shutdown_releases_running_prefetched_and_eta_messages_in_batches",
        "test_shutdown.py::test_a_soft_shutdown_lets_short_tasks_end_and_releases_the_rest[SIGQUIT]",
        "+test_shutdown.py::test_a_soft_shutdown_lets_short_tasks_end_and_releases_the_rest",
        "test_shutdown.py::test_a_message_of_the_last_poll_is_run_or_released[prefork]",
        "+test_shutdown.py::test_a_message_of_the_last_poll_is_run_or_released",
    ],
    "every crash or failure waits for it": [
        "test_crashes.py::test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds[prefork]",
    ],
    "waits for the worker's open long polls: up to 11 s": [
        "+test_crashes.py::test_an_open_poll_of_a_killed_worker_does_not_make_its_messages_dead_letters",
    ],
    "the processes of the pool are gone by then": [
        "+test_crashes.py::test_no_process_is_left_however_a_worker_is_killed",
        "+test_crashes.py::test_after_a_signal_to_all_processes_the_keeper_deletes_messages_and_exits",
        "+test_crashes.py::test_embedded_workers_that_have_ended_leave_nothing_in_their_process",
    ],
    "another starts within a second and continues with every lease": [
        "+test_crashes.py::test_another_keeper_takes_over_during_deletes_and_releases_and_nothing_runs_twice",
        "+test_crashes.py::test_a_worker_whose_first_keeper_dies_at_its_start_receives_nothing_and_exits_with_one_error",
        "+test_crashes.py::test_a_worker_whose_keepers_only_die_now_settles_its_messages_itself_and_exits",
    ],
    "`sys.executable` may be empty": [
        "+test_crashes.py::test_a_keeper_starts_if_the_worker_does_not_know_its_interpreter",
    ],
    "A message on its last receive whose task has not started": [
        "test_shutdown.py::test_a_warm_shutdown_runs_what_was_received_for_the_last_time[standard]",
        "+test_shutdown.py::test_a_warm_shutdown_runs_what_was_received_for_the_last_time",
        "test_shutdown.py::test_what_can_not_run_is_sent_again_and_runs_on_another_worker[shutdown]",
        "+test_shutdown.py::test_what_can_not_run_is_sent_again_and_runs_on_another_worker",
    ],
    "the machine stalls": [
        "+test_standstill.py::test_a_worker_that_was_stopped_reports_it_and_leaves_the_next_owner_alone",
    ],
    "pip install ./celery-sqs-heartbeat": [
        "test_readme.py::test_nothing_in_the_readme_goes_untested",
        "test_readme.py::test_the_package_is_installed_by_pip",
        "test_readme.py::test_without_an_aws_account_the_readmes_lines_run_its_task",
    ],
    "celery -A proj worker --heartbeat-sqs": [
        "test_readme.py::test_the_worker_of_the_readme_runs_its_task_with_the_permissions_of_the_readme",
        "test_settings.py::test_the_flag_overrides_the_setting[args1-conf1-False]",
        "+test_settings.py::test_the_flag_overrides_the_setting",
        "+test_settings.py::test_on_another_broker_the_flag_does_nothing_and_logs_it_once",
        "+test_settings.py::test_an_app_that_others_create_gets_the_heartbeat_in_both_ways_of_the_page",
        "+test_readme.py::test_a_lambda_function_sends_a_task_that_a_worker_runs",
    ],
    "the installed versions do not work together": [
        "+test_settings.py::test_a_worker_does_not_start_without_a_name_that_it_needs",
    ],
    "No setting is required": [
        "test_readme.py::test_the_settings_of_the_readme_are_accepted",
        "test_settings.py::test_messages_of_each_queue_are_held_by_its_own_visibility_timeout",
        "test_settings.py::test_a_task_that_opted_out_is_not_extended",
    ],
    "If settings are wrong, the worker lists every fault": [
        "test_settings.py::test_bad_settings_are_listed_in_one_error_and_the_worker_exits",
        "test_settings.py::test_settings_that_do_not_fit_the_queues_own_timeouts_are_listed_in_one_error",
        "+test_settings.py::test_a_pool_that_can_not_do_what_is_set_is_named_at_the_start",
    ],
    "for credentials that only code can get": [
        "+test_permissions.py::test_the_keeper_signs_its_calls_with_a_session_that_only_code_can_make",
        "+test_permissions.py::test_the_keeper_signs_with_the_key_of_its_worker_and_shows_the_secret_to_no_one",
    ],
    "a page: what ran twice, and why": [
        "+test_operating.py::test_a_report_blames_a_killed_worker_by_name",
    ],
    "what happened to every message": [
        "test_operating.py::test_the_journal_records_the_life_of_a_message",
        "test_operating.py::test_a_broken_journal_loses_no_message",
    ],
    "the page, /livez, /readyz, /metrics": [
        "test_operating.py::test_the_status_page_shows_the_leases_of_the_worker",
        "+test_operating.py::test_the_spans_are_on_the_trace_of_the_message",
        "test_operating.py::test_an_unreachable_sqs_makes_a_worker_unready_but_no_restart_would_help_it",
        "test_status_page.py::test_the_page_shows_leases_and_how_they_end_and_what_is_wrong",
    ],
    "the worker starts no tasks and settles nothing; its leases are kept": [
        "+test_operating.py::test_a_stalled_loop_is_reported_and_its_message_is_held",
    ],
    "Why does a worker stop receiving after a network failure?": [
        "+test_operating.py::test_a_worker_polls_again_after_polls_that_are_never_answered_and_is_deaf_meanwhile",
    ],
    "Why do messages wait in flight while other workers are idle?": [
        "+test_settings.py::test_a_worker_whose_tasks_take_long_leaves_the_next_ones_to_others",
        "+test_restarts.py::test_in_a_rolling_deployment_hardly_any_message_is_received_in_vain",
    ],
    "the pool takes no tasks: the worker is broken": [
        "+test_operating.py::test_a_worker_whose_pool_takes_no_task_exits_with_an_error_and_releases_its_messages",
    ],
    "most likely not a Celery message": [
        "+test_ends_of_tasks.py::test_malformed_messages_become_dead_letters_and_all_others_run",
    ],
    "celery -A proj sqs-heartbeat doctor": [
        "test_readme.py::test_the_commands_of_the_readme_look_at_its_worker",
    ],
    "`make demo` in a clone": [
        "+test_readme.py::test_make_demo_shows_no_duplicate_and_no_loss_under_the_heartbeat",
    ],
    "sqs:ChangeMessageVisibility": [
        "test_permissions.py::test_without_permission_to_extend_the_worker_continues_without_leases",
        "+test_permissions.py::test_a_worker_that_starts_without_permission_logs_one_line",
    ],
    "just before they do what must not happen twice": [
        "test_leases.py::test_a_task_whose_lease_is_lost_is_stopped_before_its_side_effect",
        "+test_leases.py::test_a_task_sees_its_lease_count_down_and_grow_with_every_extension_and_no_file_is_left",
    ],
    "whose lease is lost, has expired or is capped": [
        "test_leases.py::test_with_a_lost_lease_a_waiting_task_is_not_started_and_a_running_one_continues",
        "test_leases.py::test_a_stuck_task_does_not_hold_its_message_indefinitely",
        "+test_leases.py::test_terminate_stops_the_task_and_leaves_its_message_to_its_next_owner",
    ],
    "in prefork, threads, solo, gevent and eventlet pools": [
        "test_long_tasks.py::test_a_call_that_blocks_python_for_three_timeouts_loses_no_lease_in_any_pool",
        "test_crashes.py::test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds[threads]",
        "+test_crashes.py::test_all_messages_of_a_killed_worker_are_visible_again_within_two_seconds",
    ],
    "**celery-batches** works with Celery up to 5.6": [
        "+test_batches.py::test_every_name_that_batches_need_is_there",
        "+test_batches.py::test_a_warm_shutdown_lets_a_batch_finish",
        "+test_batches.py::test_a_batch_survives_a_lost_connection",
        "+test_batches.py::test_a_warm_shutdown_immediately_releases_messages_that_wait_for_a_full_batch",
        "+test_batches.py::test_a_batch_is_received_again_soon_after_its_process_was_killed",
    ],
    "[one at a time, in order](docs/howto/fifo.md)": [
        "test_fifo.py::test_workers_keep_the_order_of_each_group_whatever_fails[prefork]",
        "+test_fifo.py::test_workers_keep_the_order_of_each_group_whatever_fails",
        "+test_fifo.py::test_a_group_continues_when_a_message_that_can_not_be_decoded_is_a_dead_letter",
    ],
    "Messages of a group that arrive in one receive then run side by side": [
        "+test_fifo.py::test_in_parallel_messages_of_a_group_run_side_by_side",
    ],
    "the message becomes visible after the countdown, before the rest of its group": [
        "+test_fifo.py::test_a_retry_comes_before_the_rest_of_its_group_unless_it_is_another_message",
        "+test_fifo.py::test_a_chord_waits_behind_its_header_in_their_group",
    ],
    "[Tutorial](docs/tutorial.md)": [
        "test_readme.py::test_the_tutorial_is_true",
    ],
}


def promised() -> set[str]:
    """Return the ids of the tests of `make test`."""
    return {name for names in PROMISES.values() for name in names if not name.startswith("+")}


def named() -> set[str]:
    """Return the ids of all tests, without their parameters."""
    names = (name for names in PROMISES.values() for name in names)
    return {name.removeprefix("+").partition("[")[0] for name in names}
