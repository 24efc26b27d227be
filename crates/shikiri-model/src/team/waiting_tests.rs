use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn waiting(what: What) -> Waiting {
    let place = Place { project: "p".parse().unwrap(), agent: "a".parse().unwrap() };
    Waiting::new(TenantId::local(), place, what, None)
}

fn message() -> What {
    What::Message("msg_1".parse().unwrap())
}

fn ended() -> What {
    What::Ended { dialogue: "dia_1".parse().unwrap(), reason: EndReason::MaxTurns }
}

fn delegation() -> What {
    What::Delegation("dlg_1".parse().unwrap())
}

/// What a look does, seconds after the first session was shown it.
fn look(one: &Waiting, session: &str, arrival: Arrival, is_attended: bool, seconds: i64) -> Look {
    let (session, limits) = (session.parse().unwrap(), TeamLimits::default());
    one.look(&session, arrival, is_attended, &limits, at(seconds))
}

#[test]
fn what_nobody_was_shown_is_shown() {
    for what in [message(), ended(), delegation()] {
        assert_eq!(look(&waiting(what), "ses_1", Arrival::Unknown, false, 0), Look::Show);
    }
}

#[test]
fn an_answer_that_was_lost_is_given_again_and_one_that_came_is_not() {
    for what in [message(), ended(), delegation()] {
        let is_task = what.stays() == Stay::UntilDone;
        let mut one = waiting(what);
        one.see(&"ses_1".parse().unwrap(), at(0));
        assert_eq!(look(&one, "ses_1", Arrival::Unknown, false, 0), Look::Show);
        assert_eq!(look(&one, "ses_1", Arrival::OnItsWay, false, 999), Look::Leave);
        let came = if is_task { Look::Leave } else { Look::TakeOff };
        assert_eq!(look(&one, "ses_1", Arrival::Came, false, 1), came);
        // As written down, whoever has forgotten it.
        one.has_come = true;
        assert_eq!(look(&one, "ses_1", Arrival::Unknown, false, 1), came);
        // Shown to another, it has not come to that one.
        one.see(&"ses_2".parse().unwrap(), at(2));
        assert_eq!(look(&one, "ses_2", Arrival::Unknown, false, 2), Look::Show);
    }
}

#[test]
fn what_waits_to_be_done_is_not_called_to_mind_every_few_seconds() {
    let mut one = waiting(delegation());
    one.see(&"ses_1".parse().unwrap(), at(0));
    let first = (1..).find(|now| look(&one, "ses_1", Arrival::Came, false, *now) == Look::Show);
    assert_eq!(first, Some(60), "half of the time for which it has the delegation");
}

#[test]
fn what_another_session_is_thinking_about_is_left_to_it() {
    for what in [message(), ended(), delegation()] {
        let mut one = waiting(what);
        one.see(&"ses_1".parse().unwrap(), at(0));
        for arrival in [Arrival::Unknown, Arrival::Came] {
            assert_eq!(look(&one, "ses_2", arrival, true, 999), Look::Leave);
            assert_eq!(look(&one, "ses_2", arrival, false, 0), Look::Show);
        }
        one.forget();
        assert_eq!(look(&one, "ses_2", Arrival::Unknown, true, 0), Look::Show);
    }
}

#[test]
fn a_call_proves_that_an_end_was_heard_and_nothing_else() {
    let (first, second) = ("ses_1".parse().unwrap(), "ses_2".parse().unwrap());
    let mut end = waiting(ended());
    assert!(!end.was_shown() && !end.is_proven_heard(&first, Arrival::Came));
    end.see(&first, at(0));
    assert!(end.was_shown());
    // Its answer is on the way, or lost: a call in the meantime says nothing of it.
    assert!(!end.is_proven_heard(&first, Arrival::OnItsWay));
    assert!(!end.is_proven_heard(&first, Arrival::Unknown));
    assert!(end.is_proven_heard(&first, Arrival::Came));
    end.has_come = true;
    assert!(end.is_proven_heard(&first, Arrival::Unknown));
    assert!(!end.is_proven_heard(&second, Arrival::Unknown), "another's call proves nothing");
    // What asks for something stays until that is done.
    for what in [message(), delegation()] {
        let mut one = waiting(what);
        one.see(&first, at(0));
        one.has_come = true;
        assert!(!one.is_proven_heard(&first, Arrival::Came));
    }
}

/// It was written to a session that never called again: the next one is shown it, as one that may
/// have been told before.
#[test]
fn an_end_outlives_a_session_that_died_with_it() {
    let mut end = waiting(ended());
    end.see(&"ses_1".parse().unwrap(), at(0));
    end.has_come = true;
    assert_eq!(look(&end, "ses_2", Arrival::Unknown, true, 0), Look::Leave, "it may be reading");
    assert_eq!(look(&end, "ses_2", Arrival::Unknown, false, 0), Look::Show);
    assert!(end.was_shown());
    end.see(&"ses_2".parse().unwrap(), at(1));
    assert!(!end.is_proven_heard(&"ses_2".parse().unwrap(), Arrival::Unknown));
    assert!(!end.is_proven_heard(&"ses_1".parse().unwrap(), Arrival::Came), "it is another's");
}
