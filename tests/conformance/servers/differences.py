"""Known differences of the servers from AWS: by behaviour, then by server.

Each entry is tested too: the behaviour's test must fail on that server, or the entry is
outdated.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """What a server does instead, and the version that this was measured with."""

    instead: str
    measured: str


def moto(instead: str) -> dict[str, Difference]:
    return {"moto": Difference(instead, "5.2.5")}


def ministack(instead: str) -> dict[str, Difference]:
    return {"ministack": Difference(instead, "1.5.33")}


def localstack(instead: str) -> dict[str, Difference]:
    return {"localstack": Difference(instead, "4.13.1")}


KNOWN: dict[str, dict[str, Difference]] = {
    # test_visibility.py
    "test_a_receive_refuses_a_timeout_beyond_43200": {
        **ministack("takes it"),
        **localstack("takes it"),
    },
    "test_a_change_refuses_a_negative_timeout": {
        **moto("takes it"),
        **ministack("takes it"),
        **localstack("takes it"),
    },
    "test_a_change_refuses_a_timeout_beyond_43200": {
        **ministack("takes it"),
        **localstack("takes it"),
    },
    "test_a_refused_change_leaves_the_old_timeout": {
        **ministack("does not refuse 43201"),
        **localstack("does not refuse 43201"),
    },
    "test_no_change_reaches_past_12_hours_after_the_receive": {
        **ministack("knows no limit"),
        **localstack("knows no limit"),
    },
    "test_the_12_hours_count_from_the_receive_and_not_from_the_send": {
        **moto("counts them from the send"),
    },
    # test_handles.py
    "test_a_change_by_an_expired_handle_changes_nothing": {
        **moto("hides the message"),
        **ministack("hides the message"),
    },
    "test_a_release_by_a_stale_handle_breaks_the_new_owners_lease": {
        **ministack("refuses it: ReceiptHandleIsInvalid"),
    },
    "test_a_change_by_a_stale_handle_moves_the_new_owners_lease": {
        **ministack("refuses it: ReceiptHandleIsInvalid"),
    },
    "test_a_delete_by_a_stale_handle_answers_success": {
        **ministack("refuses it: ReceiptHandleIsInvalid"),
    },
    "test_a_delete_by_a_stale_handle_deletes_nothing": {
        **moto("deletes the message"),
        **localstack("deletes the message"),
    },
    "test_a_change_by_the_handle_of_a_deleted_message_is_refused": {
        **moto("says ReceiptHandleIsInvalid instead of InvalidParameterValue"),
        **ministack("says ReceiptHandleIsInvalid instead of InvalidParameterValue"),
    },
    "test_a_second_delete_answers_success": {**ministack("refuses it: ReceiptHandleIsInvalid")},
    # test_batches.py
    "test_a_bad_handle_in_a_batch_is_the_senders_fault": {**localstack("says SenderFault false")},
    "test_a_batch_with_a_timeout_out_of_range_fails_that_entry_alone": {
        **ministack("takes it"),
        **localstack("takes it"),
    },
    "test_a_delete_batch_repeats_without_harm": {
        **ministack("fails the entry: ReceiptHandleIsInvalid"),
    },
    "test_an_empty_batch_is_refused": {**moto("answers 200, of ChangeMessageVisibilityBatch")},
    "test_a_batch_of_eleven_is_refused": {**moto("does all of them")},
    "test_a_delete_batch_of_eleven_is_refused": {**moto("does all of them")},
    "test_a_batch_with_equal_ids_is_refused": {**moto("does both")},
    "test_a_batch_with_an_invalid_id_is_refused": {**moto("takes it")},
    "test_a_delete_batch_with_an_invalid_id_is_refused": {**moto("takes it")},
    # test_fifo.py
    "test_a_fifo_delete_by_an_expired_handle_is_refused": {
        **moto("deletes the message"),
        **ministack("deletes the message"),
    },
    "test_a_fifo_change_by_an_expired_handle_is_refused": {
        **moto("hides the message"),
        **ministack("hides the message"),
        **localstack("answers success"),
    },
    "test_a_fifo_change_by_a_stale_handle_is_refused": {
        **moto("moves the new owner's lease"),
        **localstack("moves the new owner's lease"),
    },
    "test_a_fifo_delete_by_a_stale_handle_is_refused": {
        **moto("deletes the message"),
        **localstack("deletes the message while its new owner has it"),
    },
    "test_a_fifo_batch_with_an_expired_handle_fails_that_entry_alone": {
        **moto("deletes the message"),
        **ministack("deletes the message"),
    },
    "test_an_equal_deduplication_id_sends_nothing_new": {
        **moto("sends it again once the first is deleted"),
    },
    "test_a_fifo_change_by_an_expired_handle_changes_nothing": {
        **moto("hides the message"),
        **ministack("hides the message"),
    },
    "test_a_fifo_batch_that_extends_by_an_expired_handle_fails_that_entry_alone": {
        **moto("hides the message"),
        **ministack("hides the message"),
        **localstack("answers success"),
    },
    "test_sequence_numbers_rise_within_a_group": {**moto("draws them by chance")},
    "test_sequence_numbers_rise_from_group_to_group_and_have_20_digits": {
        **moto("draws them by chance"),
        **ministack("counts from 1, with leading zeros"),
    },
    # test_fifo_groups.py
    "test_a_receive_fills_up_from_one_group_first": {
        **moto("brings messages as they were sent"),
        **ministack("brings messages as they were sent"),
    },
    "test_the_order_stays_after_the_timeout": {**moto("brings the last of the group alone")},
    "test_a_message_released_before_one_in_flight_comes_again": {
        **moto("waits for all of the group"),
        **ministack("waits for all of the group"),
    },
    "test_a_message_behind_one_in_flight_waits_although_its_timeout_has_ended": {
        **moto("waits for all of the group, before and behind"),
        **ministack("waits for all of the group, before and behind"),
    },
    "test_a_message_released_behind_one_in_flight_waits": {
        **localstack("brings it before the one in flight"),
    },
    "test_a_message_that_was_never_received_waits_behind_one_in_flight": {
        **localstack("brings it, once any of the group is released"),
    },
    "test_a_delayed_first_message_holds_its_released_group_back": {
        **localstack("brings the others at once"),
    },
    "test_a_message_released_behind_one_in_flight_waits_after_a_delete_before_it": {
        **localstack("brings the third before the second"),
    },
    "test_a_lease_of_one_group_holds_back_no_other": {
        **localstack(
            "keeps an expired message hidden while one that was received before it is not"
        ),
    },
    "test_receives_take_one_group_after_the_other": {
        **moto("brings messages as they were sent"),
        **ministack("brings messages as they were sent"),
    },
    "test_a_released_group_comes_after_those_that_wait": {
        **moto("waits for all of the group"),
        **ministack("waits for all of the group"),
    },
    # test_dead_letters.py
    "test_a_dead_letter_of_a_fifo_queue_has_the_highest_sequence_number": {
        **moto("draws them by chance"),
        **ministack("keeps the one of the queue that it comes from"),
    },
    "test_a_dead_letter_of_a_fifo_queue_has_its_id_for_deduplication": {
        **moto("keeps the one that it was sent with"),
        **ministack("keeps the one that it was sent with"),
        **localstack("keeps the one that it was sent with"),
    },
}
