use std::time::Duration;

use super::*;
use crate::record::Document;

const START: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(START + seconds * 1_000)
}

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn open(max_turns: Option<i64>) -> Result<Dialogue, TeamRefusal> {
    let limits = TeamLimits::default();
    let opening = DialogueOpening {
        id: "dia_1".parse().unwrap(),
        tenant: TenantId::local(),
        project: "shiritori".parse().unwrap(),
        initiator: agent("a"),
        participant: agent("b"),
        purpose: None,
        max_turns: Dialogue::check_max_turns(max_turns)?,
        delegation: None,
        budget: TeamBudget::fresh(&limits, at(0)),
        cause: None,
    };
    Ok(Dialogue::open(opening, &limits, at(0)))
}

fn say(dialogue: &mut Dialogue, by: &str, seconds: i64) -> Result<DialogueTurnResult, RefusalCode> {
    let limits = TeamLimits::default();
    dialogue.say(&agent(by), "りんご", &limits, at(seconds)).map_err(|refusal| refusal.code)
}

#[test]
fn six_rounds_are_twelve_messages_strictly_in_turn_and_then_it_ends() {
    let mut talk = open(Some(12)).unwrap();
    for message in 2..=12 {
        let (speaker, other) = if message % 2 == 0 { ("b", "a") } else { ("a", "b") };
        assert_eq!(say(&mut talk, other, message), Err(RefusalCode::NotYourTurn));
        let said = say(&mut talk, speaker, message).unwrap();
        assert_eq!(said, DialogueTurnResult { is_last: message == 12 });
        assert_eq!(talk.turns_left(), 12 - u32::try_from(message).unwrap());
    }
    assert_eq!(talk.end.as_ref().unwrap().reason, DialogueEndReason::MaxTurns);
    assert_eq!(say(&mut talk, "a", 99), Err(RefusalCode::DialogueEnded));
    assert!(!talk.end_for(DialogueEndReason::Timeout, at(99)));
}

#[test]
fn turns_are_bounded_and_the_budget_bounds_its_time() {
    for refused in [-1, 0, 1, 41, i64::MAX] {
        let code = open(Some(refused)).unwrap_err().code;
        assert_eq!(code, RefusalCode::InvalidArgument, "{refused}");
    }
    assert_eq!(open(None).unwrap().max_turns, 20);
    assert_eq!(open(Some(2)).unwrap().max_turns, 2);
    assert_eq!(open(Some(40)).unwrap().max_turns, 40);
    let limits = TeamLimits::default();
    let talk = open(None).unwrap();
    let opening = DialogueOpening {
        id: talk.id,
        tenant: talk.tenant,
        project: talk.project,
        initiator: talk.initiator,
        participant: talk.participant,
        purpose: None,
        max_turns: 5,
        delegation: None,
        budget: TeamBudget { ends_at: at(7), ..talk.budget },
        cause: None,
    };
    let tight = Dialogue::open(opening, &limits, at(0));
    assert_eq!((tight.max_turns, tight.turns_left(), tight.deadline), (5, 4, at(7)));
}

#[test]
fn no_other_agent_speaks_and_texts_are_checked() {
    let limits = TeamLimits::default();
    let mut talk = open(None).unwrap();
    assert_eq!(say(&mut talk, "c", 1), Err(RefusalCode::NotParticipant));
    let long = talk.say(&agent("b"), &"あ".repeat(4_001), &limits, at(1)).unwrap_err();
    assert_eq!(long.code, RefusalCode::ContentTooLong);
    let empty = talk.say(&agent("b"), "  ", &limits, at(1)).unwrap_err();
    assert_eq!(empty.code, RefusalCode::InvalidArgument);
    assert_eq!(talk, open(None).unwrap());
    assert_eq!(
        talk.end_by(&agent("c"), None, at(1)).unwrap_err().code,
        RefusalCode::NotParticipant
    );
}

#[test]
fn either_side_ends_it_at_any_time_once() {
    for (by, reason) in
        [("a", DialogueEndReason::InitiatorEnded), ("b", DialogueEndReason::ParticipantEnded)]
    {
        let mut talk = open(None).unwrap();
        assert_eq!(talk.end_by(&agent(by), None, at(1)), Ok(reason));
        let again = talk.end_by(&agent(by), None, at(2)).unwrap_err();
        assert_eq!(again.code, RefusalCode::DialogueEnded);
        assert_eq!(talk.end.unwrap().at, at(1));
    }
}

#[test]
fn a_side_that_crosses_an_end_by_the_server_is_told_of_it() {
    for reason in [
        DialogueEndReason::MaxTurns,
        DialogueEndReason::Timeout,
        DialogueEndReason::SessionExpired,
        DialogueEndReason::Cancelled,
    ] {
        let mut talk = open(None).unwrap();
        assert!(talk.end_for(reason, at(1)));
        let before = talk.clone();
        for by in ["a", "b"] {
            assert_eq!(talk.end_by(&agent(by), Some("done".to_owned()), at(2)), Ok(reason));
        }
        assert_eq!(talk, before);
        let other = talk.end_by(&agent("c"), None, at(2)).unwrap_err();
        assert_eq!(other.code, RefusalCode::NotParticipant);
    }
}

#[test]
fn it_waits_for_its_partner_then_for_each_message_and_never_past_its_budget() {
    let limits =
        TeamLimits { delegation_wall: Duration::from_secs(3_600), ..TeamLimits::default() };
    let mut talk = open(None).unwrap();
    assert!(!talk.is_overdue(at(299)) && talk.is_overdue(at(300)));
    assert!(talk.activate(&limits, at(299)) && !talk.activate(&limits, at(300)));
    assert!(!talk.is_overdue(at(898)) && talk.is_overdue(at(899)));
    say(&mut talk, "b", 800).unwrap();
    assert_eq!(talk.deadline, at(1_400));
    for second in [1_300, 1_800, 2_300, 2_800, 3_300] {
        let speaker = talk.agent(talk.turn).to_string();
        say(&mut talk, &speaker, second).unwrap();
    }
    assert_eq!(talk.deadline, at(3_600));
}

#[test]
fn a_pair_of_agents_has_one_open_dialogue_in_either_direction() {
    let mut talk = open(None).unwrap();
    let mut other = talk.clone();
    std::mem::swap(&mut other.initiator, &mut other.participant);
    assert_eq!(talk.columns().unique, other.columns().unique);
    talk.end_for(DialogueEndReason::Cancelled, at(1));
    let columns = talk.columns();
    assert_eq!((columns.unique, columns.owner, columns.due_at), (None, None, None));
}

#[test]
fn the_invited_side_is_expected_until_it_comes_and_is_told_what_may_follow() {
    let mut talk = open(None).unwrap();
    assert!(talk.is_expecting(&agent("b")) && !talk.is_expecting(&agent("a")));
    talk.activate(&TeamLimits::default(), at(1));
    assert!(!talk.is_expecting(&agent("b")));
    let said = |from: &str| DialogueMessage {
        message_id: "msg_1".parse().unwrap(),
        from_agent_id: agent(from),
        content: "りんご".to_owned(),
        created_at: at(2),
    };
    say(&mut talk, "b", 2).unwrap();
    let InboxItemKind::Turn { budget, .. } = talk.turn_after(said("b")) else { panic!("no turn") };
    assert_eq!(budget, None, "the side that began it is not talked into anything");
    say(&mut talk, "a", 3).unwrap();
    let InboxItemKind::Turn { budget, .. } = talk.turn_after(said("a")) else { panic!("no turn") };
    assert_eq!(budget, Some(talk.budget));
}

#[test]
fn a_dialogue_without_an_answer_came_to_nothing() {
    let ended = |messages: i64, reason| {
        let mut talk = open(None).unwrap();
        for message in 2..=messages {
            say(&mut talk, if message % 2 == 0 { "b" } else { "a" }, message).unwrap();
        }
        assert_eq!(talk.failure(), None, "it lives");
        talk.end_for(reason, at(99));
        talk.failure()
    };
    assert!(ended(1, DialogueEndReason::Timeout).unwrap().contains("nobody answered"));
    assert!(
        ended(1, DialogueEndReason::SessionExpired).unwrap().contains("before anybody answered")
    );
    assert_eq!(ended(2, DialogueEndReason::Timeout), None);
    assert!(ended(1, DialogueEndReason::Cancelled).is_some());
    assert_eq!(ended(2, DialogueEndReason::Cancelled), None);
}
