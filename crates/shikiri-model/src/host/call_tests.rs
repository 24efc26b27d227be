use serde_json::{Map, json};

use super::*;
use crate::ids::{HostCallId, TenantId};
use crate::time::Timestamp;

fn call() -> HostCall {
    HostCall {
        id: "hcl_1".parse::<HostCallId>().unwrap(),
        tenant: TenantId::local(),
        server: "旅".to_owned(),
        endpoint: "http://127.0.0.1:1/mcp".to_owned(),
        tool: "travel_agent".to_owned(),
        arguments: Map::new(),
        repeatable: false,
        state: HostCallState::Open,
        bookmark: ResumePoint::default(),
        progress: None,
        told: 0,
        deadline: Timestamp::from_millis(1_000),
        result: None,
        reason: None,
    }
}

fn met(session: &str) -> CallEvent {
    CallEvent::Met { protocol: "2025-11-25".to_owned(), session: Some(session.to_owned()) }
}

fn sending(id: &str) -> CallEvent {
    CallEvent::Sending { request_id: id.to_owned() }
}

fn passed(cursor: &str) -> CallEvent {
    CallEvent::Passed { cursor: cursor.to_owned() }
}

fn progress(progress: f64) -> CallEvent {
    CallEvent::Progress(CallProgress { progress, total: Some(100.0), message: None })
}

fn asked(key: &str) -> CallEvent {
    CallEvent::Asked(CallQuestion {
        key: key.to_owned(),
        method: "elicitation/create".to_owned(),
        params: json!({}),
    })
}

fn told(call: &mut HostCall, news: &[CallEvent]) -> Vec<&'static str> {
    news.iter().filter_map(|news| call.apply_event(news)).map(|event| event.kind()).collect()
}

#[test]
fn what_only_moves_the_bookmark_is_not_told_and_nothing_is_told_twice() {
    let mut call = call();
    let news = [
        met("s"),
        sending("1"),
        passed("e1"),
        progress(25.0),
        progress(25.0),
        progress(10.0),
        progress(f64::NAN),
        asked("q"),
        asked("q"),
        CallEvent::Answered { key: "q".to_owned() },
        CallEvent::Answered { key: "q".to_owned() },
        progress(50.0),
    ];
    assert_eq!(told(&mut call, &news), ["sent", "progress", "asked", "answered", "progress"]);
}

#[test]
fn after_the_end_nothing_is_learnt_and_no_token_is_kept() {
    let mut call = call();
    told(&mut call, &[met("s"), sending("1"), passed("e1"), asked("q")]);
    let result = Map::from_iter([("isError".to_owned(), json!(true))]);
    assert_eq!(told(&mut call, &[CallEvent::Ended(CallOutcome::Answered(result))]), ["ended"]);
    assert_eq!((call.state, &call.bookmark), (HostCallState::Completed, &ResumePoint::default()));
    assert!(call.is_tool_error());
    let late = [CallEvent::Ended(CallOutcome::Cancelled), progress(99.0), passed("e9")];
    assert!(told(&mut call, &late).is_empty());
    assert_eq!(call.state, HostCallState::Completed);
}

#[test]
fn a_call_is_taken_up_by_the_best_that_is_known_of_it() {
    let task = RemoteTaskRef { id: "t".to_owned(), poll_ms: None };
    let round = InputRound { state: Some("sealed".to_owned()), responses: Map::new() };
    let stream = ResumeMethod::Stream {
        session: Some("s".to_owned()),
        request_id: "1".to_owned(),
        cursor: "e1".to_owned(),
    };
    let lost = |way: &ResumeMethod| matches!(way, ResumeMethod::Lost(_));
    for (news, repeatable, wanted) in [
        (vec![], false, Some(ResumeMethod::Send(None))),
        (vec![met("s")], false, Some(ResumeMethod::Send(None))),
        (vec![met("s"), sending("1")], false, None),
        (vec![met("s"), sending("1"), CallEvent::Unsent], false, Some(ResumeMethod::Send(None))),
        (vec![met("s"), sending("1")], true, Some(ResumeMethod::Send(None))),
        (vec![met("s"), sending("1"), passed("e1")], true, Some(stream)),
        // The session is gone, and the call with it.
        (vec![met("s"), sending("1"), passed("e1"), CallEvent::CursorLost], false, None),
        (vec![met("s"), sending("1"), passed("e1"), met("s2")], false, None),
        (
            vec![sending("1"), CallEvent::Round(round.clone())],
            false,
            Some(ResumeMethod::Send(Some(round))),
        ),
        (vec![sending("1"), CallEvent::Task(task.clone())], false, Some(ResumeMethod::Task(task))),
        (
            vec![sending("1"), passed("e1"), CallEvent::Run { run_id: "r".to_owned() }],
            false,
            Some(ResumeMethod::Run("r".to_owned())),
        ),
    ] {
        let mut call = call();
        told(&mut call, &news);
        let way = call.bookmark.resume_method(repeatable);
        match wanted {
            Some(wanted) => assert_eq!(way, wanted, "{news:?}"),
            None => assert!(lost(&way), "{news:?}: {way:?}"),
        }
    }
}

#[test]
fn a_question_that_waits_outlives_the_process_but_not_its_session() {
    let mut call = call();
    told(&mut call, &[met("s"), sending("1"), asked("q1"), passed("e2"), asked("q2")]);
    told(&mut call, &[CallEvent::Answered { key: "q1".to_owned() }]);
    let text = serde_json::to_string(&call).unwrap();
    let mut again: HostCall = serde_json::from_str(&text).unwrap();
    assert_eq!(again.bookmark.questions.keys().collect::<Vec<_>>(), ["q2"]);
    told(&mut again, &[met("other")]);
    assert!(again.bookmark.questions.is_empty());
}

#[test]
fn a_server_that_talks_without_end_is_kept_up_to_a_bound_and_followed_beyond_it() {
    let mut call = call();
    let line = "あ".repeat(300_000);
    let log = CallEvent::Log(CallLogLine { level: "info".to_owned(), text: line });
    let events: Vec<_> = (0..100).filter_map(|_| call.apply_event(&log)).collect();
    let bytes: usize = events.iter().map(|event| event.data().len()).sum();
    assert!(
        bytes < 33 * 1024 * 1024 && events.len() > 30,
        "{} events, {bytes} bytes",
        events.len()
    );
    assert!(events.last().unwrap().data().contains("the rest is left out"));
    // What it asks is still known, and how far it is, and its end is told.
    assert_eq!(told(&mut call, &[asked("q"), progress(5.0)]), Vec::<&str>::new());
    assert!(call.bookmark.questions.contains_key("q"));
    assert_eq!(call.progress.as_ref().unwrap().progress, 5.0);
    let end = CallEvent::Ended(CallOutcome::Cancelled);
    assert_eq!(told(&mut call, &[CallEvent::Answered { key: "q".to_owned() }, end]), ["ended"]);
}
