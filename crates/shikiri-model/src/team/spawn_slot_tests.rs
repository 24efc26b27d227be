use std::time::Duration;

use super::*;
use crate::key::SecretToken;
use crate::record::Document;
use crate::team::InboxItemKind;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn target(agent: &str, purpose: SessionPurpose) -> SpawnTarget {
    let place = ProjectMember { project: "p".parse().unwrap(), agent: agent.parse().unwrap() };
    SpawnTarget { tenant: TenantId::local(), place, purpose }
}

fn limits(max_spawns: u32) -> TeamLimits {
    TeamLimits { max_spawns, spawn_guard: Duration::from_secs(32), ..TeamLimits::default() }
}

fn session(target: &SpawnTarget) -> AgentSession {
    AgentSession::start(
        "ses_1".parse().unwrap(),
        target.tenant.clone(),
        target.place.clone(),
        target.purpose,
        SecretToken::from_caller("x").hash(),
        &limits(3),
        at(0),
    )
}

fn waiting(what: InboxItemKind, created: i64, due: Option<i64>) -> StoredDocument<InboxItem> {
    let target = target("a", SessionPurpose::Chat);
    let value = InboxItem::new(target.tenant, target.place, what, due.map(at));
    StoredDocument {
        version: 1,
        attempts: 0,
        created_at: at(created),
        updated_at: at(created),
        value,
    }
}

fn ended() -> InboxItemKind {
    let reason = crate::team::DialogueEndReason::MaxTurns;
    InboxItemKind::Ended { dialogue: "dia_1".parse().unwrap(), reason }
}

#[test]
fn one_is_started_where_something_waits_and_no_agent_runs() {
    let mut slot = SpawnSlot::new(&target("a", SessionPurpose::Chat));
    assert_eq!(slot.decide(true, false, at(0)), SpawnDecision::Start);
    assert_eq!(slot.decide(false, false, at(0)), SpawnDecision::NotNeeded);
    assert_eq!(slot.decide(true, true, at(0)), SpawnDecision::NotNeeded);
    slot.not_before = Some(at(10));
    assert_eq!(slot.decide(true, false, at(9)), SpawnDecision::Later(at(10)));
    assert_eq!(slot.decide(true, false, at(10)), SpawnDecision::Start);
    assert_eq!(slot.decide(true, true, at(9)), SpawnDecision::NotNeeded);
}

#[test]
fn pauses_grow_and_after_five_failures_there_is_a_rest() {
    let target = target("a", SessionPurpose::Task);
    let (mut slot, limits) = (SpawnSlot::new(&target), limits(3));
    let end = |slot: &mut SpawnSlot, is_well, left| {
        slot.take(&session(&target), at(0));
        assert_eq!(slot.not_before, None);
        let next = slot.finish_run(is_well, left, &limits, at(0));
        assert_eq!(slot.occupant, None);
        next
    };
    for seconds in [1, 2, 4, 8] {
        let again = AfterRunAction::StartAgain(at(seconds * 1_000));
        // A run that ends well and leaves what it was started for is no better than a crash.
        let is_well = seconds == 2;
        assert_eq!(end(&mut slot, is_well, RemainingWork::Old), again);
        assert_eq!(slot.not_before, Some(at(seconds * 1_000)));
    }
    assert_eq!(end(&mut slot, false, RemainingWork::New), AfterRunAction::Rest(at(600_000)));
    assert_eq!(slot.not_before, Some(at(600_000)));
    // After that it has as many tries as before.
    assert_eq!(end(&mut slot, false, RemainingWork::Old), AfterRunAction::StartAgain(at(1_000)));
}

#[test]
fn rests_grow_and_end() {
    let target = target("a", SessionPurpose::Task);
    let (mut slot, limits) = (SpawnSlot::new(&target), limits(3));
    let end = |slot: &mut SpawnSlot, is_well, left| {
        slot.take(&session(&target), at(0));
        slot.finish_run(is_well, left, &limits, at(0))
    };
    let mut rests = Vec::new();
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 100, "for ever");
        match end(&mut slot, runs % 2 == 0, RemainingWork::Old) {
            AfterRunAction::Rest(until) => rests.push(until),
            AfterRunAction::GiveUp => break,
            AfterRunAction::StartAgain(_) => {}
            AfterRunAction::Nothing => panic!("something is left"),
        }
    }
    assert_eq!((runs, rests), (20, vec![at(600_000), at(1_200_000), at(2_400_000)]));
    assert_eq!(slot.not_before, None, "nothing waits");
    // What comes later has one try, until one goes well.
    assert_eq!(end(&mut slot, false, RemainingWork::Old), AfterRunAction::GiveUp);
    assert_eq!(end(&mut slot, true, RemainingWork::Nothing), AfterRunAction::Nothing);
    assert_eq!(end(&mut slot, false, RemainingWork::Old), AfterRunAction::StartAgain(at(1_000)));
}

#[test]
fn a_run_that_did_its_work_makes_good_what_went_wrong() {
    let target = target("a", SessionPurpose::Chat);
    let (mut slot, limits) = (SpawnSlot::new(&target), limits(3));
    slot.failures = 4;
    slot.take(&session(&target), at(0));
    let next = slot.finish_run(true, RemainingWork::New, &limits, at(7));
    assert_eq!((next, slot.failures), (AfterRunAction::StartAgain(at(7)), 0));
    assert_eq!(slot.decide(true, false, at(7)), SpawnDecision::Start);
    slot.failures = 4;
    slot.take(&session(&target), at(0));
    assert_eq!(
        slot.finish_run(false, RemainingWork::Nothing, &limits, at(7)),
        AfterRunAction::Nothing
    );
    assert_eq!((slot.failures, slot.not_before), (0, None));
}

#[test]
fn a_pause_is_never_longer_than_the_guard() {
    let target = target("a", SessionPurpose::Chat);
    let mut slot = SpawnSlot::new(&target);
    let limits = TeamLimits { spawn_guard: Duration::from_millis(10), ..limits(3) };
    for _ in 1..MAX_FAILURES {
        slot.take(&session(&target), at(0));
        let AfterRunAction::StartAgain(again) =
            slot.finish_run(false, RemainingWork::Old, &limits, at(0))
        else {
            panic!("a rest too early")
        };
        assert!(again <= at(10), "{again:?}");
    }
}

#[test]
fn ends_alone_and_items_that_need_no_agent_start_none() {
    let message = || InboxItemKind::Message("msg_1".parse().unwrap());
    let occupant = SpawnedRun { session: "ses_1".parse().unwrap(), execution: None, since: at(5) };
    let left = |waiting: &[StoredDocument<InboxItem>]| RemainingWork::of(waiting, &occupant, true);
    assert_eq!(left(&[]), RemainingWork::Nothing);
    assert_eq!(left(&[waiting(ended(), 1, Some(1))]), RemainingWork::Nothing);
    assert_eq!(left(&[waiting(message(), 1, None)]), RemainingWork::Nothing);
    assert_eq!(left(&[waiting(message(), 6, Some(6))]), RemainingWork::New);
    let both = [waiting(message(), 6, Some(6)), waiting(message(), 5, Some(5))];
    assert_eq!(left(&both), RemainingWork::Old);
    assert_eq!(SpawnTarget::of(&waiting(ended(), 1, Some(1)).value), None);
    let task = InboxItemKind::Task("tsk_1".parse().unwrap());
    let of_task = SpawnTarget::of(&waiting(task, 1, Some(1)).value);
    assert_eq!(of_task, Some(target("a", SessionPurpose::Task)));
}

#[test]
fn a_message_that_a_run_read_before_it_ended_well_is_taken() {
    let session: AgentSessionId = "ses_1".parse().unwrap();
    let occupant = SpawnedRun { session: session.clone(), execution: None, since: at(5) };
    let seen = |what, by: &AgentSessionId| {
        let mut one = waiting(what, 1, Some(1));
        one.value.mark_seen(by, at(6));
        [one]
    };
    let message = || InboxItemKind::Message("msg_1".parse().unwrap());
    assert_eq!(
        RemainingWork::of(&seen(message(), &session), &occupant, true),
        RemainingWork::Nothing
    );
    assert_eq!(
        RemainingWork::of(&seen(message(), &session), &occupant, false),
        RemainingWork::Old,
        "it crashed"
    );
    let other = "ses_2".parse().unwrap();
    assert_eq!(RemainingWork::of(&seen(message(), &other), &occupant, true), RemainingWork::Old);
    let delegation = || InboxItemKind::Delegation("dlg_1".parse().unwrap());
    assert_eq!(
        RemainingWork::of(&seen(delegation(), &session), &occupant, true),
        RemainingWork::Old
    );
}

#[test]
fn a_seat_belongs_to_one_agent_project_and_purpose() {
    let (chat, task) = (target("a", SessionPurpose::Chat), target("a", SessionPurpose::Task));
    let mut slot = SpawnSlot::new(&chat);
    assert_eq!(slot.spawn_target(), chat);
    assert_ne!(SpawnSlot::id_of(&chat), SpawnSlot::id_of(&task));
    assert_ne!(SpawnSlot::id_of(&chat), SpawnSlot::id_of(&target("b", SessionPurpose::Chat)));
    assert_eq!(slot.columns().state, "free");
    slot.take(&session(&chat), at(0));
    assert_eq!(slot.columns().state, SpawnSlot::TAKEN);
}
