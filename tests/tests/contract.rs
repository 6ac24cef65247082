//! The contract of the store, of the leases and of the other records: every case on the memory twin, on one broker and on three.

use std::process::Command;

mod arms;

/// Lists the cases once, and makes a test of each on every arm.
macro_rules! contract {
    ($($module:ident { $($case:ident)* })*) => {
        /// The cases of each file, as they are run.
        const CASES: &[(&str, &[&str])] = &[$((stringify!($module), &[$(stringify!($case)),*])),*];

        contract!(@arm memory [$($module { $($case)* })*]);
        contract!(@arm one_broker [$($module { $($case)* })*]);
        contract!(@arm three_brokers [$($module { $($case)* })*]);
    };
    (@arm $arm:ident [$($module:ident { $($case:ident)* })*]) => {
        mod $arm {
            $($(
                #[test]
                fn $case() {
                    crate::arms::$arm(stringify!($case), |fixture| Box::pin(tests::cases::$module::$case(fixture)));
                }
            )*)*
        }
    };
}

contract! {
    stores {
        a_write_meets_its_expectation_or_loses
        a_removal_leaves_a_marker
        a_purge_erases_no_later_revision
        a_listing_is_the_live_keys_of_its_filter
        a_watch_begins_with_a_listing_and_misses_no_change
        a_record_ends_with_the_buckets_age
        a_value_above_the_ceiling_is_refused
        the_brokers_clock_has_reached_what_was_written
    }
    sweeps {
        a_marker_goes_when_it_is_old_enough
        what_lives_is_left_alone
        a_key_that_does_not_decode_is_skipped
        what_is_created_again_meanwhile_stays
        the_count_is_the_brokers
        a_purge_that_fails_stops_no_other
        a_sweep_that_cannot_begin_is_unknown
        a_sweep_out_of_time_tells_what_is_left
        a_pass_that_stops_short_is_swept_as_far_as_it_came
        every_slot_that_keeps_markers_is_swept
        a_swept_bucket_is_listed_without_a_read
        a_sweep_changes_no_answer
    }
    listings {
        a_listing_under_rewrites_is_never_short_and_never_old
        a_class_of_any_size_is_listed_whole
        a_class_of_the_longest_names_is_listed_whole
        every_record_is_listed_and_no_barrier
        an_empty_class_is_an_answer
        a_barrier_proves_as_long_as_its_record_stands
        a_barrier_that_has_aged_away_proves_nothing
        a_barrier_that_moves_meanwhile_is_listed_as_it_was_read_last
        a_renewal_carries_a_listing_of_the_leases
        a_barrier_is_written_whatever_stands_there
    }
    doubts {
        a_pass_that_goes_wrong_costs_no_key
        what_a_copy_lacks_is_nobodys_word
        what_comes_back_while_another_is_looked_for_is_told
        a_silent_pass_is_ended_and_the_rest_is_read
        a_pass_whose_records_age_out_is_ended
        a_marker_from_the_past_hides_no_key
        without_a_consumer_a_listing_is_made_of_copies
        without_an_index_there_is_no_listing
        an_index_from_before_the_barrier_is_refused
        a_member_behind_is_asked_again_and_never_believed
        what_is_named_and_not_found_is_asked_again
        a_key_purged_meanwhile_is_asked_about_once_more
        a_removal_from_the_past_hides_no_key
        a_read_behind_the_pass_is_refused
        a_listing_ends_at_its_deadline
        an_unanswered_barrier_is_unknown
        an_unknown_listing_of_leases_names_the_class
        a_proved_copy_is_never_from_before_the_barrier
    }
    drains {
        a_large_class_is_listed_again_without_an_index
        what_is_small_or_one_of_many_is_not_drained
        a_large_class_under_rewrites_is_never_short
        a_drain_that_proves_nothing_is_followed_by_what_does
        many_list_a_large_class_at_once
    }
    claims {
        a_fresh_resource_is_granted_at_epoch_one
        a_free_resource_reads_as_none
        a_peer_is_refused_and_told_by_whom
        the_holders_own_claim_again_keeps_its_epoch
        a_released_resource_is_granted_at_the_next_epoch
        a_lapsed_resource_is_granted_at_the_next_epoch
        a_live_lease_is_never_stolen
        a_duty_may_last_three_hours_and_no_longer
        a_short_lease_ends_at_its_own_deadline
        awkward_names_survive_the_trip
        bad_arguments_are_refused_before_any_write
        hints_and_meta_are_kept_until_replaced
        a_class_lists_its_live_leases
        thirty_two_at_once_have_one_winner_at_epoch_one
        sixteen_claims_of_one_owner_share_one_epoch
        no_epoch_is_given_to_two_owners
    }
    tenures {
        a_renewal_moves_the_deadline_and_nothing_else
        a_renewed_lease_outlives_its_ttl
        a_renewal_can_carry_a_new_status
        a_lapsed_lease_is_lost_to_its_holder
        a_former_holder_touches_nothing
        a_burst_answers_for_every_lease
        what_does_not_decode_is_unknown_and_never_free
        a_counter_never_starts_again
        a_removed_lease_reads_as_free
    }
    gate {
        an_older_lease_closes_the_gate
        the_gate_is_about_seats
        a_holder_outranks_the_gate
        the_gate_sees_every_lease_written_before
        the_gates_cost_does_not_grow
        a_protocol_out_of_use_is_retired
        a_build_that_just_came_retires_nothing
        a_retirement_that_cannot_be_done_holds_nobody_back
    }
    opening {
        the_first_nodes_ttl_is_in_force
        the_ttl_in_force_can_be_asked_for
        a_bucket_short_of_copies_is_refused
        the_duties_age_is_only_raised
        an_impossible_retention_is_refused_before_anything_is_asked
        every_bucket_of_the_table_is_opened_and_adopted
        every_bucket_short_of_copies_is_named
        many_nodes_open_at_once
    }
    faults {
        a_store_that_cannot_be_asked_is_unknown_in_every_verb
        an_unanswered_renewal_may_still_land
        a_claim_without_an_answer_gives_the_resource_back
        an_abandoned_claim_leaves_the_next_one_granted
        a_stale_read_is_unknown_and_never_lost
        a_second_look_from_the_past_leaves_nobody_out
        a_listing_from_the_past_leaves_nobody_out
        one_lost_reply_is_not_a_lost_lease
        no_fault_breaks_the_fence
        one_expectation_is_met_once
        a_give_back_is_not_settled_by_the_past
        a_lost_race_is_not_told_from_the_past
        an_unknown_after_a_doubtful_refusal_may_still_land
        a_give_back_touches_no_other_owners_lease
        a_give_back_spares_what_a_sibling_was_granted
    }
    pauses {
        a_pause_is_created_once
        a_resume_lifts_the_pause_that_was_seen
        a_resume_of_nothing_says_so
        of_many_at_once_one_pauses_and_one_resumes
        handles_are_kept_to_the_byte_or_refused
        an_unreadable_row_is_unknown_until_it_is_corrected
        a_follow_begins_with_every_pause_and_misses_no_change
        nothing_older_than_the_answer_is_told
        a_follow_of_a_short_pass_begins_with_every_pause
        a_follow_that_ended_begins_again_with_everything
        without_an_answer_nothing_is_said_of_a_pause
        the_past_resumes_nothing
        a_purge_is_told_to_nobody
    }
    config {
        an_activation_moves_the_pointer_and_brings_its_body
        an_activation_is_judged_before_anything_is_asked
        a_body_too_large_is_refused_and_disturbs_nobody
        an_expectation_fails_against_another_pointer_only
        identical_bytes_again_are_a_new_epoch
        every_activation_is_later_than_the_one_it_replaces
        of_many_first_activations_one_is_and_its_body_stands
        of_many_at_once_each_has_an_epoch_of_its_own
        a_pointer_is_never_read_without_its_body
        an_activation_without_an_answer_may_land_and_has_its_body
        a_late_pointer_has_its_body_or_does_not_land
        what_is_not_erased_is_left_to_the_next
        the_past_moves_no_pointer
        an_unreadable_pointer_is_unknown_and_stays
    }
    status {
        the_fleet_is_told_freshest_first
        many_report_at_once
        a_long_error_is_cut_by_the_store
        node_ids_are_kept_to_the_byte_or_refused
        an_unreadable_report_is_left_out
        the_past_leaves_no_report_out
        without_an_answer_nothing_is_said_of_the_fleet
        a_node_that_stops_reporting_vanishes
    }
    channels {
        a_channel_is_opened_once
        a_second_close_keeps_the_first_instant
        messages_are_counted_while_it_is_open
        channels_are_listed_by_id
        an_idle_channel_is_told_by_the_brokers_clock
        what_is_closed_and_old_is_purged
        an_earlier_channel_of_the_same_id_decides_nothing
        of_many_at_once_one_opens_and_one_closes
        a_channel_is_purged_once
        an_unreadable_channel_is_unknown
        a_bad_channel_is_refused_before_anything_is_asked
        without_an_answer_nothing_is_said_of_a_channel
        a_purge_without_an_answer_stops_no_other
        the_past_closes_nothing
        a_channel_that_stood_is_not_absent_on_a_word
    }
    sandbox_runs {
        a_run_is_created_once
        a_runs_bytes_come_back_as_they_are
        every_change_of_a_run_is_conditional
        a_version_from_nowhere_is_unknown_and_touches_nothing
        runs_are_listed_by_turn
        of_many_changes_of_a_run_one_happens
        a_bad_run_is_refused_before_anything_is_asked
        without_an_answer_nothing_is_said_of_a_run
        the_past_changes_no_run
    }
    secrets {
        the_last_secret_set_stands
        a_delete_says_whether_the_secret_was_there
        an_unreadable_secret_fails_the_listing_and_is_not_shown
        a_bad_name_is_refused_unseen
        no_value_is_shown_by_anything
        without_an_answer_nothing_is_said_of_a_secret
    }
    integrations {
        the_last_state_of_a_surface_stands
        a_surface_is_forgotten_once
        of_many_who_forget_a_surface_one_has
        what_is_written_meanwhile_is_forgotten_too
        a_bad_surface_is_refused_before_anything_is_asked
        without_an_answer_nothing_is_said_of_a_surface
    }
    mailboxes {
        a_mailbox_is_recorded_once
        every_change_of_a_mailbox_is_conditional
        a_returning_seat_and_the_sweep_do_not_both_win
        of_many_changes_of_a_mailbox_one_happens
        mailboxes_are_listed_by_handle
        an_unreadable_mailbox_is_unknown
        a_bad_mailbox_is_refused_before_anything_is_asked
        without_an_answer_nothing_is_said_of_a_mailbox
        the_past_retires_nothing
    }
    fires {
        a_fire_is_claimed_once
        of_many_who_claim_a_fire_one_fires
        a_fire_without_a_name_is_refused
        an_unanswered_fire_is_not_fired
        a_fire_that_cannot_be_read_is_taken
    }
    rebases {
        a_rebase_is_recorded_once_and_inherited
        a_rebase_is_replaced_at_its_version
        of_many_attempts_one_records_its_instant
        a_rebase_of_nothing_is_refused
        without_an_answer_nothing_is_said_of_a_rebase
        a_rebase_that_cannot_be_read_is_unknown
    }
    custody {
        a_batch_has_one_keeper
        of_many_who_claim_a_batch_all_are_told_one_keeper
        custody_of_nothing_is_refused
        without_an_answer_nobody_is_told_a_keeper
        a_keeper_that_cannot_be_read_is_unknown
    }
    follows {
        a_thread_is_followed_until_it_is_not
        a_follow_restarts_its_age
        of_many_who_unfollow_one_removes_it
        a_follow_beside_an_unfollow_loses_neither
        an_incomplete_thread_is_refused_and_not_followed
        without_an_answer_nothing_is_said_of_a_follow
        the_past_unfollows_nothing
        a_follow_that_cannot_be_read_is_one
    }
    objects {
        the_first_backend_is_the_one
        of_many_that_boot_all_agree_on_one_backend
        the_newest_collection_is_told
        a_backend_without_a_name_is_refused
        without_an_answer_nobody_agrees_on_a_backend
        a_backend_that_cannot_be_read_is_unknown
    }
    positions {
        a_listing_of_positions_is_of_one_class
        a_node_stands_where_it_recorded
        a_hold_stands_until_it_is_released
        of_each_owner_one_backup_stands
        a_floor_does_not_contradict_itself
        an_operation_is_open_until_it_is_closed
        of_many_at_one_operation_one_is_heard
        an_admission_is_forgotten_by_its_own_run
        a_run_that_was_admitted_anew_is_forgotten
        of_many_runs_one_is_admitted_and_forgotten_once
        an_acknowledgement_is_for_one_operation
        a_position_that_cannot_be_read_fails_its_class
        a_position_without_a_name_is_refused
        names_of_positions_are_kept_to_the_byte
        without_an_answer_nothing_is_said_of_a_position
        a_removal_stands_though_its_purge_is_lost
    }
    rate {
        a_window_lets_through_its_limit
        the_next_window_begins_anew
        takes_at_once_never_exceed_the_limit
        a_valve_of_nothing_is_closed
        what_no_valve_can_count_is_refused
        a_valve_without_an_answer_is_closed
        an_unreadable_count_is_unknown
        the_past_lets_nothing_through
        a_counted_window_ages_away
    }
    deliveries {
        a_delivery_is_first_once
        a_claim_lapses_at_its_own_deadline
        a_claim_without_a_readable_deadline_is_taken_over
        of_many_attempts_one_is_first
        a_thousand_deliveries_to_two_nodes_are_handled_once_each
        a_release_gives_back_ones_own
        a_late_release_takes_nothing_from_the_next
        a_claim_lasts_no_longer_than_the_age_in_force
        what_names_no_delivery_is_refused
        a_claim_without_an_answer_suppresses_nothing
        the_past_frees_no_delivery
    }
    ledger {
        a_trigger_is_recorded_once
        a_trigger_is_its_scopes_own
        many_keys_are_one_answer
        of_many_who_record_one_is_first
        what_names_no_trigger_is_refused
        one_failed_read_fails_the_whole_answer
        an_unreadable_record_is_unknown_and_stays
        a_record_without_an_answer_may_stand
    }
    cooldowns {
        the_later_instant_stays
        a_credential_cools_under_its_entry
        of_many_instants_the_latest_stays
        what_says_nothing_is_left_out
        without_an_answer_every_cooldown_holds
        a_word_is_told_to_the_end_and_in_time
        the_past_shortens_no_cooldown
    }
    budgets {
        a_refused_charge_is_counted_on_both
        what_has_no_ceiling_is_counted
        the_refusal_that_ends_last_is_named
        windows_roll_once_and_never_back
        a_post_charge_is_never_refused
        a_refusal_without_a_charge_counts_nothing
        every_scope_is_listed_as_it_stands
        bad_handles_are_charged_nothing
        what_cannot_be_read_is_unknown_and_never_reset
        many_nodes_charge_one_company_to_the_token
        charges_that_wait_are_counted_together
        a_seat_that_cannot_be_written_is_named_with_its_share
        a_lost_answer_costs_no_charge
        no_fault_counts_a_charge_twice
        an_abandoned_charge_is_counted_on_both_or_on_neither
    }
    values {
        where_even_a_marker_is_too_large_nothing_is_said
        what_is_too_large_is_refused_by_record_size_and_limit
        a_value_at_the_limit_is_whole
        the_largest_value_that_nobody_can_read_is_by_its_familys_rule
        names_of_one_segment_are_kept_to_the_byte
    }
}

/// Every case that is written is run, and on every arm.
#[test]
fn no_case_is_skipped_on_any_arm() {
    let sources = [
        ("stores", include_str!("../src/cases/stores.rs")),
        ("sweeps", include_str!("../src/cases/sweeps.rs")),
        ("listings", include_str!("../src/cases/listings.rs")),
        ("doubts", include_str!("../src/cases/doubts.rs")),
        ("drains", include_str!("../src/cases/drains.rs")),
        ("claims", include_str!("../src/cases/claims.rs")),
        ("tenures", include_str!("../src/cases/tenures.rs")),
        ("gate", include_str!("../src/cases/gate.rs")),
        ("opening", include_str!("../src/cases/opening.rs")),
        ("faults", include_str!("../src/cases/faults.rs")),
        ("pauses", include_str!("../src/cases/pauses.rs")),
        ("config", include_str!("../src/cases/config.rs")),
        ("status", include_str!("../src/cases/status.rs")),
        ("channels", include_str!("../src/cases/channels.rs")),
        ("sandbox_runs", include_str!("../src/cases/sandbox_runs.rs")),
        ("secrets", include_str!("../src/cases/secrets.rs")),
        ("integrations", include_str!("../src/cases/integrations.rs")),
        ("mailboxes", include_str!("../src/cases/mailboxes.rs")),
        ("fires", include_str!("../src/cases/fires.rs")),
        ("rebases", include_str!("../src/cases/rebases.rs")),
        ("custody", include_str!("../src/cases/custody.rs")),
        ("follows", include_str!("../src/cases/follows.rs")),
        ("objects", include_str!("../src/cases/objects.rs")),
        ("positions", include_str!("../src/cases/positions.rs")),
        ("rate", include_str!("../src/cases/rate.rs")),
        ("deliveries", include_str!("../src/cases/deliveries.rs")),
        ("ledger", include_str!("../src/cases/ledger.rs")),
        ("cooldowns", include_str!("../src/cases/cooldowns.rs")),
        ("budgets", include_str!("../src/cases/budgets.rs")),
        ("values", include_str!("../src/cases/values.rs")),
    ];
    let listed = Command::new(std::env::current_exe().unwrap()).args(["--list", "--format=terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut cases = 0;
    for (module, source) in sources {
        let written: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
            .filter_map(|rest| rest.split(['<', '(']).next())
            .collect();
        let (_, run) = CASES.iter().find(|(name, _)| *name == module).expect("the file is listed");
        assert_eq!(written, *run, "the cases of {module}.rs");
        for arm in ["memory", "one_broker", "three_brokers"] {
            for case in &written {
                assert!(listed.lines().any(|line| line == format!("{arm}::{case}: test")), "{arm}::{case}");
                cases += 1;
            }
        }
    }
    let run: usize = CASES.iter().map(|(_, cases)| cases.len()).sum();
    assert_eq!(cases, 3 * run, "arms times cases");
}
