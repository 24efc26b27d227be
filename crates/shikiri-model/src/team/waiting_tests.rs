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
