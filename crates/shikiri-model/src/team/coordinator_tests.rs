use std::time::Duration;

use super::*;
use crate::key::Secret;
use crate::team::What;

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
fn rests_grow_and_end() {
    let errand = errand("a", Purpose::Task);
    let (mut seat, limits) = (Seat::new(&errand), limits(3));
    let end = |seat: &mut Seat, is_well, left| {
        seat.take(&session(&errand), at(0));
        seat.leave(is_well, left, &limits, at(0))
    };
    let mut rests = Vec::new();
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 100, "for ever");
        match end(&mut seat, runs % 2 == 0, Left::Old) {
            Next::Rest(until) => rests.push(until),
            Next::GiveUp => break,
            Next::StartAgain(_) => {}
            Next::Nothing => panic!("something is left"),
        }
    }
    assert_eq!((runs, rests), (20, vec![at(600_000), at(1_200_000), at(2_400_000)]));
    assert_eq!(seat.not_before, None, "nobody waits for anything");
    // What comes later has one try, until one goes well.
    assert_eq!(end(&mut seat, false, Left::Old), Next::GiveUp);
    assert_eq!(end(&mut seat, true, Left::Nothing), Next::Nothing);
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
    let occupant = Occupant { session: "ses_1".parse().unwrap(), execution: None, since: at(5) };
    let left = |waiting: &[Stored<Waiting>]| Left::of(waiting, &occupant, true);
    assert_eq!(left(&[]), Left::Nothing);
    assert_eq!(left(&[waiting(ended(), 1, Some(1))]), Left::Nothing);
    assert_eq!(left(&[waiting(message(), 1, None)]), Left::Nothing);
    assert_eq!(left(&[waiting(message(), 6, Some(6))]), Left::New);
    let both = [waiting(message(), 6, Some(6)), waiting(message(), 5, Some(5))];
    assert_eq!(left(&both), Left::Old);
    assert_eq!(Errand::of(&waiting(ended(), 1, Some(1)).value), None);
    let task = What::Task("tsk_1".parse().unwrap());
    let of_task = Errand::of(&waiting(task, 1, Some(1)).value);
    assert_eq!(of_task, Some(errand("a", Purpose::Task)));
}

#[test]
fn a_message_that_a_run_read_before_it_ended_well_is_taken() {
    let session: AgentSessionId = "ses_1".parse().unwrap();
    let occupant = Occupant { session: session.clone(), execution: None, since: at(5) };
    let seen = |what, by: &AgentSessionId| {
        let mut one = waiting(what, 1, Some(1));
        one.value.see(by, at(6));
        [one]
    };
    let message = || What::Message("msg_1".parse().unwrap());
    assert_eq!(Left::of(&seen(message(), &session), &occupant, true), Left::Nothing);
    assert_eq!(Left::of(&seen(message(), &session), &occupant, false), Left::Old, "it crashed");
    let other = "ses_2".parse().unwrap();
    assert_eq!(Left::of(&seen(message(), &other), &occupant, true), Left::Old);
    let delegation = || What::Delegation("dlg_1".parse().unwrap());
    assert_eq!(Left::of(&seen(delegation(), &session), &occupant, true), Left::Old);
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
