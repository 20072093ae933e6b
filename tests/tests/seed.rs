//! Where the page of Agent Swarm's tools and its program differ, what is done here; and what is to be checked of a
//! successor (spec: Agent Swarm, appendices A and B). Each point names the tests that keep it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::path::Path;

/// What is done where page and program differ.
const DIFFERENCES: &[(&str, &str)] = &[
    ("get-tasks: by priority, then the latest changed", "lists_are_ordered_and_filtered_before_they_are_cut"),
    (
        "get-tasks: the pool, my own, open offers, ready ones alone, before the limit",
        "lists_are_ordered_and_filtered_before_they_are_cut",
    ),
    ("get-inbox-message: the lead, and its own", "the_table_of_permissions_is_kept"),
    ("slack-list-channels: those that the bot is in", "every_method_is_called_as_slack_wants_it"),
    ("slack by channelId, slack-post: the lead", "the_table_of_permissions_is_kept"),
    ("cancel-task: whatever has not ended", "lead_or_creator_cancels"),
    ("task-action: the backlog too", "the_backlog_hides_from_the_pool"),
    (
        "poll-task: offers at once, the pool counted, leads too",
        "a_poll_tells_all_that_there_is a_lead_polls_like_a_worker",
    ),
    ("read-messages without a channel: all that is unread", "messages_are_read_once"),
    ("update-profile: capabilities too", "a_profile_changes_what_is_given"),
    ("join-swarm: requestedId, role, capabilities too", "a_member_shows_the_agent_shape"),
    ("send-task: githubRepo and allowDuplicate too", "duplicates_are_refused_for_ten_minutes"),
    ("store-progress: costData too", "what_it_cost_is_kept_with_the_result"),
    ("inject-learning: into the memory of its agent", "what_the_lead_teaches_is_found"),
    ("cancel-task is deferred", "the_core_is_the_core_in_its_order"),
    ("list-schedules: hides one-time ones that ran", "a_disabled_one_time_schedule_keeps_its_moment"),
    ("update-service-status: by a label too", "the_swarm_knows_what_its_members_keep_running"),
    ("an offer that is rejected returns to the pool", "offers_are_answered_from_offered_and_reviewing"),
];

/// What a successor is checked for.
const CHECKS: &[(&str, &str)] = &[
    (
        "1 names, annotations, schemas; unknown arguments are dropped",
        "the_annotations_are_those_of_the_seed every_deferred_tool_can_be_found_and_called wrong_calls_say_how_to_call_right",
    ),
    ("2 a claim has one winner", "a_claim_has_one_winner whatever_goes_wrong_the_promises_hold"),
    ("3 capacity and offers", "targets_are_checked_in_order"),
    ("4 offers are answered from both states", "offers_are_answered_from_offered_and_reviewing"),
    ("5 dependencies", "nothing_starts_before_its_dependencies a_broken_dependency_is_seen_and_told"),
    ("6 the first result stays", "the_first_result_stays"),
    ("7 a child goes to its parent's agent", "a_child_goes_to_the_agent_of_its_parent"),
    (
        "8 duplicates, by words of any script, at the same cost whatever was before",
        "duplicates_are_refused_for_ten_minutes scripts_without_blanks_are_not_all_alike what_a_new_task_is_held_against_does_not_grow",
    ),
    ("9 empty polls", "empty_polls_are_counted_until_there_is_work"),
    (
        "10 unread messages, mentions, /task",
        "only_what_was_returned_is_marked_as_read a_mention_wakes_once_until_it_is_forgotten an_order_makes_one_task_per_agent",
    ),
    (
        "12 schedules",
        "the_dialect the_clock_goes_forward the_clock_goes_back a_one_time_schedule_is_consumed what_was_missed_runs_once refusals_back_off_and_disable",
    ),
    ("13 versions of profiles", "what_a_profile_said_before_is_kept the_same_text_again_is_no_version"),
    ("14 the table of permissions", "the_table_of_permissions_is_kept"),
    ("15 signatures of webhooks", "what_is_not_signed_is_not_believed a_signed_event_is_written_down_once"),
    (
        "16 deaths of runners and coordinators",
        "a_silent_runner_loses_the_task_to_the_same_agent_then_to_the_pool acknowledged_work_survives_kill_9",
    ),
    (
        "17 both official libraries",
        "python_stateless python_sessions typescript_stateless typescript_sessions",
    ),
    (
        "18 malformed bodies",
        "bad_bodies_and_tokens_are_refused malformed_requests_are_told_what_is_wrong whoever_lacks_the_key_a_name_or_the_right_is_told_so",
    ),
];

/// All code of a folder.
fn code(folder: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push_str(&code(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
    all
}

#[test]
fn every_point_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let code: String =
        ["shared/src", "coordinator/src", "tests/tests"].map(|folder| code(&root.join(folder))).concat();
    let named = DIFFERENCES.iter().chain(CHECKS).flat_map(|(_, tests)| tests.split(' '));
    let missing: Vec<&str> = named.filter(|test| !code.contains(&format!("fn {test}("))).collect();
    assert!(missing.is_empty(), "{missing:?} are named and do not exist");
}
