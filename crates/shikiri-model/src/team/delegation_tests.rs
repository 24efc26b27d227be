use super::*;
use crate::record::Document;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1_000)
}

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn session(name: &str) -> AgentSessionId {
    name.parse().unwrap()
}

fn delegation() -> Delegation {
    Delegation {
        id: "dlg_1".parse().unwrap(),
        tenant: TenantId::local(),
        project: "p".parse().unwrap(),
        agent: agent("a"),
        target: agent("b"),
        purpose: "6往復しりとり".to_owned(),
        context: None,
        status: DelegationStatus::Pending,
        task: None,
        session: session("task"),
        budget: TeamBudget::fresh(&TeamLimits::default(), at(0)),
        cause: None,
        attempts: 0,
        claim: None,
        dialogue: None,
        processed_at: None,
        result: None,
        reported: None,
    }
}

fn outcome() -> DelegationOutcome {
    DelegationOutcome::Dialogue {
        dialogue: "dia_1".parse().unwrap(),
        end_reason: DialogueEndReason::MaxTurns,
        messages: json!([]),
        failure: None,
    }
}

#[test]
fn one_session_has_it_as_long_as_it_gives_signs_of_life() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    assert!(one.claim(&session("first"), &limits, at(0)));
    assert!(!one.claim(&session("second"), &limits, at(1)));
    assert_eq!((one.status, one.attempts), (DelegationStatus::Processing, 1));
    assert_eq!(one.sweep(Some(at(100)), false, &limits, at(120)), DelegationSweep::Later);
    assert_eq!(one.columns().due_at, Some(at(220)));
    assert_eq!(one.sweep(Some(at(100)), false, &limits, at(220)), DelegationSweep::GivenBack);
    assert_eq!(one.status, DelegationStatus::Processing);
    assert!(one.claim(&session("second"), &limits, at(221)));
    assert_eq!(one.attempts, 2);
}

#[test]
fn after_the_third_that_died_it_fails_with_a_reason() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    for attempt in 1..=3 {
        assert!(one.claim(&session(&format!("s{attempt}")), &limits, at(attempt)));
        let swept = one.sweep(None, false, &limits, at(attempt));
        let expected =
            if attempt == 3 { DelegationSweep::Failed } else { DelegationSweep::GivenBack };
        assert_eq!(swept, expected, "{attempt}");
    }
    assert_eq!(one.status, DelegationStatus::Failed);
    assert!(one.result.as_ref().unwrap()["reason"].is_string());
    assert_eq!((one.columns().owner, one.columns().due_at), (None, None));
    assert!(!one.claim(&session("late"), &limits, at(9)));
}

#[test]
fn no_session_ever_comes() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    assert_eq!(one.sweep(None, false, &limits, at(3_599)), DelegationSweep::Later);
    assert_eq!(one.sweep(None, false, &limits, at(3_600)), DelegationSweep::Failed);
}

#[test]
fn while_its_dialogue_lives_attempts_do_not_count() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    for attempt in 0..5 {
        assert!(one.claim(&session(&format!("s{attempt}")), &limits, at(attempt)));
        assert_eq!(one.sweep(None, true, &limits, at(attempt)), DelegationSweep::GivenBack);
    }
    assert_eq!(one.sweep(None, true, &limits, at(9_999)), DelegationSweep::Later);
    one.complete(&outcome(), at(10_000));
    assert_eq!(one.status, DelegationStatus::Completed);
}

#[test]
fn the_server_completes_it_and_a_report_before_or_after_adds_its_text() {
    let text = json!("12語でした");
    let (mut before, mut after) = (delegation(), delegation());
    before.report(&agent("a"), DelegationStatus::Completed, Some(&text), false, at(1)).unwrap();
    before.complete(&outcome(), at(2));
    after.complete(&outcome(), at(1));
    after.report(&agent("a"), DelegationStatus::Completed, Some(&text), false, at(2)).unwrap();
    assert_eq!(before.result, after.result);
    assert_eq!(after.result.as_ref().unwrap()["end_reason"], "max_turns");
    assert_eq!(after.result.as_ref().unwrap()["report"], text);
    for one in [&mut before, &mut after] {
        let again =
            one.report(&agent("a"), DelegationStatus::Failed, None, false, at(3)).unwrap_err();
        assert_eq!(again.code, RefusalCode::DelegationProcessed);
        assert_eq!(one.status, DelegationStatus::Completed);
    }
}

#[test]
fn only_its_agent_uses_it_once_for_its_target() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    let code = |one: &Delegation, by: &str, target: &str| {
        one.check_use(&agent(by), &agent(target)).map_err(|refusal| refusal.code)
    };
    assert_eq!(code(&one, "b", "a"), Err(RefusalCode::NotDelegationOwner));
    assert_eq!(code(&one, "a", "c"), Err(RefusalCode::InvalidArgument));
    assert_eq!(code(&one, "a", "b"), Ok(()));
    one.begin_dialogue(&"dia_1".parse().unwrap(), &session("s"), &limits, at(1));
    assert_eq!((one.status, one.attempts), (DelegationStatus::Processing, 1));
    assert_eq!(code(&one, "a", "b"), Err(RefusalCode::DelegationProcessed));
}

/// Every way through it, in any order: nothing leaves completed or failed, and nothing goes back
/// to pending.
#[test]
fn states_only_go_forward() {
    let limits = TeamLimits::default();
    let rank = |status| match status {
        DelegationStatus::Pending => 0,
        DelegationStatus::Processing => 1,
        DelegationStatus::Completed | DelegationStatus::Failed => 2,
    };
    // Five kinds of step, six deep.
    for path in 0..5_u32.pow(6) {
        let mut one = delegation();
        let mut rest = path;
        for step in 0..6 {
            let (before, kind) = (one.clone(), rest % 5);
            rest /= 5;
            match kind {
                0 => drop(one.claim(&session("s"), &limits, at(step))),
                1 if one.status.is_open() => drop(one.sweep(None, false, &limits, at(step * 900))),
                2 => one.complete(&outcome(), at(step)),
                3 => {
                    let status = DelegationStatus::Failed;
                    let _ = one.report(&agent("a"), status, None, step % 2 == 0, at(step));
                }
                _ => {}
            }
            assert!(rank(one.status) >= rank(before.status), "{path}");
            if rank(before.status) == 2 {
                assert_eq!(one.status, before.status, "{path}");
            }
            assert!(one.status != DelegationStatus::Failed || one.result.is_some(), "{path}");
        }
    }
}

#[test]
fn a_report_during_its_dialogue_is_noted_and_its_end_closes_it() {
    for (status, text) in [(DelegationStatus::Completed, "済"), (DelegationStatus::Failed, "無理")]
    {
        let mut one = delegation();
        let text = json!(text);
        one.report(&agent("a"), status, Some(&text), true, at(1)).unwrap();
        assert!(one.status.is_open());
        one.complete(&outcome(), at(2));
        assert_eq!(one.status, status);
        let result = one.result.unwrap();
        assert_eq!((&result["report"], &result["end_reason"]), (&text, &json!("max_turns")));
    }
}

#[test]
fn its_time_ends_also_while_a_session_that_has_it_calls_and_calls() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    one.claim(&session("s"), &limits, at(3_590));
    assert_eq!(one.columns().due_at, Some(at(3_600)));
    assert_eq!(one.sweep(Some(at(3_599)), false, &limits, at(3_599)), DelegationSweep::Later);
    assert_eq!(one.sweep(Some(at(3_600)), false, &limits, at(3_600)), DelegationSweep::Failed);
    assert!(one.result.unwrap()["reason"].as_str().unwrap().contains("took it on"));
}

#[test]
fn sessions_that_follow_a_living_dialogue_are_no_attempts() {
    let limits = TeamLimits::default();
    let mut one = delegation();
    one.begin_dialogue(&"dia_1".parse().unwrap(), &session("first"), &limits, at(0));
    for round in 1..6 {
        let now = at(round * 200);
        assert_eq!(one.sweep(None, true, &limits, now), DelegationSweep::GivenBack);
        assert!(one.claim(&session("next"), &limits, now));
    }
    assert_eq!(one.attempts, 1);
}

#[test]
fn a_talk_of_its_two_agents_holds_it_up_if_it_was_taken_on_and_not_begun() {
    use crate::team::DialogueOpening;
    let limits = TeamLimits::default();
    let talk = |initiator: &str, participant: &str| {
        let opening = DialogueOpening {
            id: "dia_2".parse().unwrap(),
            tenant: TenantId::local(),
            project: "p".parse().unwrap(),
            initiator: agent(initiator),
            participant: agent(participant),
            purpose: None,
            max_turns: 20,
            delegation: None,
            budget: TeamBudget::fresh(&limits, at(0)),
            cause: None,
        };
        Dialogue::open(opening, &limits, at(0))
    };
    let mut one = delegation();
    assert!(!one.is_blocked_by(&talk("b", "a")), "no session has it");
    one.claim(&session("first"), &limits, at(0));
    assert!(one.is_blocked_by(&talk("b", "a")) && one.is_blocked_by(&talk("a", "b")));
    assert!(!one.is_blocked_by(&talk("a", "c")));
    one.begin_dialogue(&"dia_1".parse().unwrap(), &session("first"), &limits, at(1));
    assert!(!one.is_blocked_by(&talk("a", "b")));
}

/// Three sessions die of the first; the second was listed beside it each time.
#[test]
fn what_was_listed_beside_another_loses_no_attempt() {
    let limits = TeamLimits::default();
    let (mut first, mut second) = (delegation(), delegation());
    for attempt in 1..=3 {
        let by = session(&format!("s{attempt}"));
        assert!(first.claim(&by, &limits, at(attempt)));
        assert!(second.claim_without_attempt(&by, &limits, at(attempt)));
        assert!(!second.claim(&session("other"), &limits, at(attempt)), "it is taken all the same");
        let is_last = attempt == 3;
        let expected = if is_last { DelegationSweep::Failed } else { DelegationSweep::GivenBack };
        assert_eq!(first.sweep(None, false, &limits, at(attempt)), expected);
        assert_eq!(second.sweep(None, false, &limits, at(attempt)), DelegationSweep::GivenBack);
    }
    assert_eq!((second.status, second.attempts), (DelegationStatus::Processing, 0));
    // Then its own come.
    for attempt in 4..=6 {
        assert!(second.claim(&session(&format!("s{attempt}")), &limits, at(attempt)));
        second.sweep(None, false, &limits, at(attempt));
    }
    assert_eq!((second.status, second.attempts), (DelegationStatus::Failed, 3));
}

#[test]
fn turning_to_what_was_listed_beside_another_is_an_attempt() {
    let limits = TeamLimits::default();
    let by = session("s");
    let beside = || {
        let mut one = delegation();
        assert!(one.claim_without_attempt(&by, &limits, at(0)));
        assert_eq!(one.attempts, 0);
        one
    };
    let (mut begun, mut sent, mut reported) = (beside(), beside(), beside());
    begun.begin_dialogue(&"dia_1".parse().unwrap(), &by, &limits, at(1));
    sent.complete(&DelegationOutcome::Message("msg_1".parse().unwrap()), at(1));
    reported.report(&agent("a"), DelegationStatus::Failed, None, false, at(1)).unwrap();
    assert_eq!([begun.attempts, sent.attempts, reported.attempts], [1; 3]);
}

/// Whatever its chat session has reported or reports then.
#[test]
fn it_has_failed_if_its_partner_never_spoke() {
    let silence = DelegationOutcome::Dialogue {
        dialogue: "dia_1".parse().unwrap(),
        end_reason: DialogueEndReason::InitiatorEnded,
        messages: json!(["りんご"]),
        failure: Some("it was ended before the partner had answered"),
    };
    let (text, limits) = (json!("done"), TeamLimits::default());
    let (mut before, mut after) = (delegation(), delegation());
    for one in [&mut before, &mut after] {
        one.begin_dialogue(&"dia_1".parse().unwrap(), &session("first"), &limits, at(0));
    }
    let completed = DelegationStatus::Completed;
    before.report(&agent("a"), completed, Some(&text), true, at(1)).unwrap();
    before.complete(&silence, at(2));
    after.complete(&silence, at(1));
    after.report(&agent("a"), completed, Some(&text), false, at(2)).unwrap();
    for one in [before, after] {
        assert_eq!(one.status, DelegationStatus::Failed);
        assert_eq!(one.result.unwrap()["report"], text);
    }
}

#[test]
fn why_a_dialogue_came_to_nothing_is_in_the_result() {
    let mut one = delegation();
    one.complete(
        &DelegationOutcome::Dialogue {
            dialogue: "dia_1".parse().unwrap(),
            end_reason: DialogueEndReason::Timeout,
            messages: json!(["りんご"]),
            failure: Some("nobody answered"),
        },
        at(1),
    );
    let result = one.result.unwrap();
    assert_eq!(
        (&result["reason"], &result["end_reason"]),
        (&json!("nobody answered"), &json!("timeout"))
    );
}
