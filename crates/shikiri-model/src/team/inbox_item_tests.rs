use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn waiting(what: InboxItemKind) -> InboxItem {
    let place = ProjectMember { project: "p".parse().unwrap(), agent: "a".parse().unwrap() };
    InboxItem::new(TenantId::local(), place, what, None)
}

fn message() -> InboxItemKind {
    InboxItemKind::Message("msg_1".parse().unwrap())
}

fn ended() -> InboxItemKind {
    InboxItemKind::Ended { dialogue: "dia_1".parse().unwrap(), reason: DialogueEndReason::MaxTurns }
}

fn delegation() -> InboxItemKind {
    InboxItemKind::Delegation("dlg_1".parse().unwrap())
}

/// What a look does, seconds after the first session was shown it.
fn look(
    one: &InboxItem,
    session: &str,
    arrival: DeliveryState,
    is_attended: bool,
    seconds: i64,
) -> InboxAction {
    let (session, limits) = (session.parse().unwrap(), TeamLimits::default());
    one.action_for(&session, arrival, is_attended, &limits, at(seconds))
}

#[test]
fn what_was_never_shown_is_shown() {
    for what in [message(), ended(), delegation()] {
        assert_eq!(
            look(&waiting(what), "ses_1", DeliveryState::Unknown, false, 0),
            InboxAction::Show
        );
    }
}

#[test]
fn an_answer_that_was_lost_is_given_again_and_one_that_came_is_not() {
    for what in [message(), ended(), delegation()] {
        let is_task = what.retention() == InboxRetention::UntilDone;
        let mut one = waiting(what);
        one.mark_seen(&"ses_1".parse().unwrap(), at(0));
        assert_eq!(look(&one, "ses_1", DeliveryState::Unknown, false, 0), InboxAction::Show);
        assert_eq!(look(&one, "ses_1", DeliveryState::OnItsWay, false, 999), InboxAction::Leave);
        let came = if is_task { InboxAction::Leave } else { InboxAction::TakeOff };
        assert_eq!(look(&one, "ses_1", DeliveryState::Came, false, 1), came);
        // As written down, even if a session has forgotten it.
        one.has_come = true;
        assert_eq!(look(&one, "ses_1", DeliveryState::Unknown, false, 1), came);
        // Shown to another, it has not come to that one.
        one.mark_seen(&"ses_2".parse().unwrap(), at(2));
        assert_eq!(look(&one, "ses_2", DeliveryState::Unknown, false, 2), InboxAction::Show);
    }
}

#[test]
fn what_waits_to_be_done_is_not_called_to_mind_every_few_seconds() {
    let mut one = waiting(delegation());
    one.mark_seen(&"ses_1".parse().unwrap(), at(0));
    let first = (1..)
        .find(|now| look(&one, "ses_1", DeliveryState::Came, false, *now) == InboxAction::Show);
    assert_eq!(first, Some(60), "half of the time for which it has the delegation");
}

#[test]
fn what_another_session_is_thinking_about_is_left_to_it() {
    for what in [message(), ended(), delegation()] {
        let mut one = waiting(what);
        one.mark_seen(&"ses_1".parse().unwrap(), at(0));
        for arrival in [DeliveryState::Unknown, DeliveryState::Came] {
            assert_eq!(look(&one, "ses_2", arrival, true, 999), InboxAction::Leave);
            assert_eq!(look(&one, "ses_2", arrival, false, 0), InboxAction::Show);
        }
        one.reset_seen();
        assert_eq!(look(&one, "ses_2", DeliveryState::Unknown, true, 0), InboxAction::Show);
    }
}

#[test]
fn a_call_proves_that_an_end_was_heard_and_nothing_else() {
    let (first, second) = ("ses_1".parse().unwrap(), "ses_2".parse().unwrap());
    let mut end = waiting(ended());
    assert!(!end.was_shown() && !end.is_confirmed_by(&first, DeliveryState::Came));
    end.mark_seen(&first, at(0));
    assert!(end.was_shown());
    // Its answer is on the way, or lost: a call in the meantime says nothing of it.
    assert!(!end.is_confirmed_by(&first, DeliveryState::OnItsWay));
    assert!(!end.is_confirmed_by(&first, DeliveryState::Unknown));
    assert!(end.is_confirmed_by(&first, DeliveryState::Came));
    end.has_come = true;
    assert!(end.is_confirmed_by(&first, DeliveryState::Unknown));
    assert!(!end.is_confirmed_by(&second, DeliveryState::Unknown), "another's call proves nothing");
    // What asks for something stays until that is done.
    for what in [message(), delegation()] {
        let mut one = waiting(what);
        one.mark_seen(&first, at(0));
        one.has_come = true;
        assert!(!one.is_confirmed_by(&first, DeliveryState::Came));
    }
}

/// It was written to a session that never called again: the next one is shown it, as one that may
/// have been told before.
#[test]
fn an_end_outlives_a_session_that_died_with_it() {
    let mut end = waiting(ended());
    end.mark_seen(&"ses_1".parse().unwrap(), at(0));
    end.has_come = true;
    assert_eq!(
        look(&end, "ses_2", DeliveryState::Unknown, true, 0),
        InboxAction::Leave,
        "it may be reading"
    );
    assert_eq!(look(&end, "ses_2", DeliveryState::Unknown, false, 0), InboxAction::Show);
    assert!(end.was_shown());
    end.mark_seen(&"ses_2".parse().unwrap(), at(1));
    assert!(!end.is_confirmed_by(&"ses_2".parse().unwrap(), DeliveryState::Unknown));
    assert!(
        !end.is_confirmed_by(&"ses_1".parse().unwrap(), DeliveryState::Came),
        "it is another's"
    );
}
