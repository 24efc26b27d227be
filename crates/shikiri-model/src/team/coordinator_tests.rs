use super::*;
use crate::key::Secret;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn errand(agent: &str, purpose: Purpose) -> Errand {
    let place = Place { project: "p".parse().unwrap(), agent: agent.parse().unwrap() };
    Errand { tenant: TenantId::local(), place, purpose }
}

fn limits(max_spawns: u32) -> TeamLimits {
    TeamLimits { max_spawns, spawn_guard: Duration::from_secs(32), ..TeamLimits::default() }
}

fn session(errand: &Errand) -> AgentSession {
    AgentSession::start(
        "ses_1".parse().unwrap(),
        errand.tenant.clone(),
        errand.place.clone(),
        errand.purpose,
        Secret::from_caller("x").hash(),
        &limits(3),
        at(0),
    )
}

fn waiting(what: What, created: i64, due: Option<i64>) -> Stored<Waiting> {
    let errand = errand("a", Purpose::Chat);
    let value = Waiting::new(errand.tenant, errand.place, what, due.map(at));
    Stored { version: 1, attempts: 0, created_at: at(created), updated_at: at(created), value }
}

fn ended() -> What {
    let reason = crate::team::EndReason::MaxTurns;
    What::Ended { dialogue: "dia_1".parse().unwrap(), reason }
}

/// All that are given a place at this time.
fn taken(agenda: &mut Agenda, limits: &TeamLimits, now: i64) -> Vec<(String, Purpose)> {
    let next = std::iter::from_fn(|| agenda.next(limits, at(now)));
    next.map(|errand| (errand.place.agent.to_string(), errand.purpose)).collect()
}

#[test]
fn no_more_are_carried_out_at_once_than_there_are_places() {
    use Purpose::Chat;
    let (mut agenda, limits) = (Agenda::default(), limits(2));
    for (agent, ms) in [("a", 3), ("b", 1), ("c", 2)] {
        agenda.want(errand(agent, Chat), at(ms));
    }
    assert_eq!(agenda.next_at(&limits), Some(at(1)));
    assert_eq!(taken(&mut agenda, &limits, 0), []);
    let (b, c) = (("b".to_owned(), Chat), ("c".to_owned(), Chat));
    assert_eq!(taken(&mut agenda, &limits, 9), [b, c], "the longest waiting first");
    assert_eq!(agenda.next_at(&limits), None, "nothing to look at before one is free");
    agenda.free(&errand("c", Chat));
    assert_eq!(agenda.next_at(&limits), Some(at(3)));
    assert_eq!(taken(&mut agenda, &limits, 9), [("a".to_owned(), Chat)]);
    agenda.free(&errand("b", Chat));
    assert_eq!(taken(&mut agenda, &limits, 9), []);
}

#[test]
fn talk_comes_before_tasks_and_tasks_leave_room_for_a_talk() {
    use Purpose::{Chat, Task};
    let (mut agenda, three) = (Agenda::default(), limits(3));
    for agent in ["a", "b"] {
        agenda.want(errand(agent, Task), at(1));
        agenda.want(errand(agent, Chat), at(2));
    }
    let expected = [("a".to_owned(), Chat), ("b".to_owned(), Chat), ("a".to_owned(), Task)];
    assert_eq!(taken(&mut agenda, &three, 9), expected);
    agenda.free(&errand("a", Chat));
    assert_eq!(taken(&mut agenda, &three, 9), [], "a second task would take a talk's place");
    agenda.free(&errand("a", Task));
    assert_eq!(taken(&mut agenda, &three, 9), [("b".to_owned(), Task)]);
    // With fewer places than that, a task takes the one there is.
    let mut agenda = Agenda::default();
    agenda.want(errand("a", Task), at(1));
    assert_eq!(taken(&mut agenda, &limits(1), 9), [("a".to_owned(), Task)]);
}

#[test]
fn what_comes_for_a_busy_errand_is_looked_at_when_it_is_free() {
    let (mut agenda, limits, one) = (Agenda::default(), limits(3), errand("a", Purpose::Chat));
    agenda.keep(one.clone());
    agenda.want(one.clone(), at(5));
    agenda.want(one.clone(), at(3));
    agenda.want(one.clone(), at(7));
    assert_eq!((agenda.next(&limits, at(9)), agenda.next_at(&limits)), (None, None));
    agenda.free(&one);
    assert_eq!(agenda.next_at(&limits), Some(at(3)), "at the earliest time that was wanted");
    assert_eq!(agenda.next(&limits, at(9)), Some(one));
}

#[test]
fn one_is_started_where_something_waits_and_nobody_is() {
    let mut seat = Seat::new(&errand("a", Purpose::Chat));
    assert_eq!(seat.decide(true, false, at(0)), Verdict::Start);
    assert_eq!(seat.decide(false, false, at(0)), Verdict::NotNeeded);
    assert_eq!(seat.decide(true, true, at(0)), Verdict::NotNeeded);
    seat.not_before = Some(at(10));
    assert_eq!(seat.decide(true, false, at(9)), Verdict::Later(at(10)));
    assert_eq!(seat.decide(true, false, at(10)), Verdict::Start);
    assert_eq!(seat.decide(true, true, at(9)), Verdict::NotNeeded);
}

#[test]
fn pauses_grow_and_after_five_failures_there_is_a_rest() {
    let errand = errand("a", Purpose::Task);
    let (mut seat, limits) = (Seat::new(&errand), limits(3));
    let end = |seat: &mut Seat, is_well, left| {
        seat.take(&session(&errand), at(0));
        assert_eq!(seat.not_before, None);
        let next = seat.leave(is_well, left, &limits, at(0));
        assert_eq!(seat.occupant, None);
        next
    };
    for seconds in [1, 2, 4, 8] {
        let again = Next::StartAgain(at(seconds * 1_000));
        // A run that ends well and leaves what it was started for is no better than a crash.
        let is_well = seconds == 2;
        assert_eq!(end(&mut seat, is_well, Left::Old), again);
        assert_eq!(seat.not_before, Some(at(seconds * 1_000)));
    }
    assert_eq!(end(&mut seat, false, Left::New), Next::Rest(at(600_000)));
    assert_eq!(seat.not_before, Some(at(600_000)));
    // After that it has as many tries as before.
    assert_eq!(end(&mut seat, false, Left::Old), Next::StartAgain(at(1_000)));
}

#[test]
fn a_run_that_did_its_work_makes_good_what_went_wrong() {
    let errand = errand("a", Purpose::Chat);
    let (mut seat, limits) = (Seat::new(&errand), limits(3));
    seat.failures = 4;
    seat.take(&session(&errand), at(0));
    let next = seat.leave(true, Left::New, &limits, at(7));
    assert_eq!((next, seat.failures), (Next::StartAgain(at(7)), 0));
    assert_eq!(seat.decide(true, false, at(7)), Verdict::Start);
    seat.failures = 4;
    seat.take(&session(&errand), at(0));
    assert_eq!(seat.leave(false, Left::Nothing, &limits, at(7)), Next::Nothing);
    assert_eq!((seat.failures, seat.not_before), (0, None));
}

#[test]
fn a_pause_is_never_longer_than_the_guard() {
    let errand = errand("a", Purpose::Chat);
    let mut seat = Seat::new(&errand);
    let limits = TeamLimits { spawn_guard: Duration::from_millis(10), ..limits(3) };
    for _ in 1..MAX_FAILURES {
        seat.take(&session(&errand), at(0));
        let Next::StartAgain(again) = seat.leave(false, Left::Old, &limits, at(0)) else {
            panic!("a rest too early")
        };
        assert!(again <= at(10), "{again:?}");
    }
}

#[test]
fn ends_alone_and_what_nobody_is_started_for_start_nobody() {
    let message = || What::Message("msg_1".parse().unwrap());
    let since = at(5);
    assert_eq!(Left::of(&[], since), Left::Nothing);
    assert_eq!(Left::of(&[waiting(ended(), 1, Some(1))], since), Left::Nothing);
    assert_eq!(Left::of(&[waiting(message(), 1, None)], since), Left::Nothing);
    assert_eq!(Left::of(&[waiting(message(), 6, Some(6))], since), Left::New);
    let both = [waiting(message(), 6, Some(6)), waiting(message(), 5, Some(5))];
    assert_eq!(Left::of(&both, since), Left::Old);
    assert_eq!(Errand::of(&waiting(ended(), 1, Some(1)).value), None);
    let task = What::Task("tsk_1".parse().unwrap());
    let of_task = Errand::of(&waiting(task, 1, Some(1)).value);
    assert_eq!(of_task, Some(errand("a", Purpose::Task)));
}

#[test]
fn a_seat_belongs_to_one_agent_project_and_purpose() {
    let (chat, task) = (errand("a", Purpose::Chat), errand("a", Purpose::Task));
    let mut seat = Seat::new(&chat);
    assert_eq!(seat.errand(), chat);
    assert_ne!(Seat::id_of(&chat), Seat::id_of(&task));
    assert_ne!(Seat::id_of(&chat), Seat::id_of(&errand("b", Purpose::Chat)));
    assert_eq!(seat.columns().state, "free");
    seat.take(&session(&chat), at(0));
    assert_eq!(seat.columns().state, Seat::TAKEN);
}
