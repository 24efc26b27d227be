//! What must be true of every call over MCP, whatever happened to its connections and servers: the
//! client was told the run's story, all of it, once and in order.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shikiri_testkit::{Cut, Frame, McpClient, Policy, Resuming, Sent, StreamLog, Tenant};

/// The step of `travel_agent` that must not be done twice.
pub(crate) const BOOKING: &str = "Booking flight...";

/// A call that was answered: what its client saw, what the run's log says, and what a reader sees
/// who follows the stream again.
pub(crate) struct Followed {
    pub(crate) log: StreamLog,
    pub(crate) run: Vec<Frame>,
    pub(crate) replay: Vec<Frame>,
}

impl Followed {
    /// Once nothing is killed any more.
    pub(crate) async fn of(call: &Resuming, local: &Tenant) -> Self {
        let log = call.log().clone();
        let run = events(local, &log.run_id()).await;
        Self { run, replay: call.replay().await, log }
    }

    pub(crate) fn check(&self) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{}\nin {}", faults.join("\n"), self.log);
    }

    /// How often a node was lost while it carried the run.
    pub(crate) fn losses(&self) -> usize {
        of_kind(&self.run, "node_lost").count()
    }

    pub(crate) fn status(&self) -> &str {
        let reply = self.log.reply.as_ref().expect("a response");
        reply["result"]["structuredContent"]["status"].as_str().unwrap_or_default()
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = run_faults(&self.run);
        let mut wrong = |fault: bool, words: String| {
            if fault {
                faults.push(words);
            }
        };
        let numbered = self.log.numbered();
        let heard: Vec<_> = numbered.iter().map(heard).collect();
        let told: Vec<_> = self.run.iter().filter_map(told).collect();
        wrong(heard != told, difference(&heard, &told));
        let (seen, again) = (shown(&numbered), shown(&self.replay));
        wrong(seen != again, format!("read again, {}", difference(&seen, &again)));
        let ids: Vec<u128> = numbered.iter().filter_map(number).collect();
        let rises = ids.len() == numbered.len() && ids.windows(2).all(|pair| pair[0] < pair[1]);
        wrong(!rises, format!("ids {ids:?}"));
        let progress: Vec<_> = self.log.events.iter().filter_map(progress).collect();
        wrong(!progress.is_sorted(), format!("progress {progress:?}"));
        let replies = self.log.events.iter().filter(|event| event.json()["method"].is_null());
        wrong(replies.count() != 1, "more than one response".to_owned());
        for sent in &self.log.answers {
            // Refused at once means that an answer was taken that this client never sent.
            // Without an answer, or with one that the store was away, it may have been taken.
            let is_unknown = sent.tries.iter().any(|status| matches!(status, None | Some(503)));
            let taken = sent.tries.last() == Some(&Some(202)) || is_unknown;
            wrong(!taken, format!("{sent:?}"));
        }
        faults
    }
}

/// All events of a run that has ended.
pub(crate) async fn events(local: &Tenant, run: &str) -> Vec<Frame> {
    local.reader(run, Cut::End).rest().await
}

pub(crate) fn of_kind<'a>(run: &'a [Frame], kind: &'a str) -> impl Iterator<Item = &'a Frame> {
    run.iter().filter(move |frame| frame.event == kind)
}

/// How often the trip was booked.
pub(crate) fn bookings(run: &[Frame]) -> usize {
    of_kind(run, "step_completed").filter(|frame| frame.json()["name"] == BOOKING).count()
}

/// A committed step is neither done nor begun again; every question has at most one answer; there
/// is one end, and it is the last event.
pub(crate) fn run_faults(run: &[Frame]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut completed: BTreeMap<u64, u32> = BTreeMap::new();
    let mut answered: BTreeMap<String, u32> = BTreeMap::new();
    for frame in run {
        let data = frame.json();
        let index = data["index"].as_u64().unwrap_or_default();
        match frame.event.as_str() {
            "step_started" if completed.contains_key(&index) => {
                faults.push(format!("begun again: {data}"));
            }
            "step_completed" => *completed.entry(index).or_default() += 1,
            "answer" => *answered.entry(data["question_id"].to_string()).or_default() += 1,
            _ => {}
        }
    }
    let twice = completed.values().chain(answered.values()).any(|count| *count > 1);
    if twice {
        faults.push(format!("done twice: steps {completed:?}, answers {answered:?}"));
    }
    let ends = run.iter().filter(|frame| frame.is_terminal()).count();
    if ends != 1 || !run.last().is_some_and(Frame::is_terminal) {
        faults.push(format!("{ends} ends"));
    }
    faults
}

/// What an event of the run has to say to the caller, in words that both sides share.
fn told(frame: &Frame) -> Option<Value> {
    let data = frame.json();
    Some(match frame.event.as_str() {
        "progress" => json!({ "at": [data["progress"], data["total"], data["message"]] }),
        "log" => json!({ "log": [data["level"], data["logger"], data["message"]] }),
        "question" => json!({ "asks": data["question_id"], "message": data["message"] }),
        "result" => json!({ "result": data["result"] }),
        "error" => json!({ "error": data["message"] }),
        _ => return None,
    })
}

/// The same of what the client heard.
fn heard(frame: &Frame) -> Value {
    let message = frame.json();
    let params = &message["params"];
    match message["method"].as_str() {
        Some("notifications/progress") => {
            json!({ "at": [params["progress"], params["total"], params["message"]] })
        }
        Some("notifications/message") => {
            json!({ "log": [params["level"], params["logger"], params["data"]] })
        }
        Some("elicitation/create") => {
            let question = message["id"].as_str().and_then(|id| id.split('.').next());
            json!({ "asks": question, "message": params["message"] })
        }
        None if message.get("result").is_some() => {
            json!({ "result": message["result"]["structuredContent"] })
        }
        _ => message,
    }
}

/// The first place where two lists part, for people.
fn difference<T: PartialEq + std::fmt::Debug>(seen: &[T], told: &[T]) -> String {
    let same = seen.iter().zip(told).take_while(|(seen, told)| seen == told).count();
    let (seen, told) = (seen.get(same), told.get(same));
    format!("event {same}: heard {seen:?} where the log has {told:?}")
}

fn shown(frames: &[Frame]) -> Vec<(Option<&str>, String)> {
    let text = |frame: &Frame| String::from_utf8_lossy(&frame.data).into_owned();
    frames.iter().map(|frame| (frame.id.as_deref(), text(frame))).collect()
}

fn progress(frame: &Frame) -> Option<f64> {
    frame.json()["params"]["progress"].as_f64()
}

/// Event ids of one stream are numbers that rise.
pub(crate) fn number(frame: &Frame) -> Option<u128> {
    frame.id.as_ref()?.parse().ok()
}

/// A trip that cannot be mixed up with another.
pub(crate) fn trip(door: &McpClient, to: &str, step_ms: u64, policy: Policy) -> Resuming {
    // To its end, however long the kills make it.
    let arguments = json!({ "destination": to, "step_ms": step_ms, "wait": true });
    Resuming::call(door, "travel_agent", arguments, policy)
}

/// The checker can find fault: a whole history passes, and each way to spoil it is noticed.
#[test]
fn a_history_that_is_not_whole_is_found_out() {
    let frame = |id: Option<&str>, event: &str, data: Value| Frame {
        id: id.map(str::to_owned),
        event: event.to_owned(),
        data: data.to_string().into_bytes(),
    };
    let progress = |id, at| {
        let params = json!({ "progress": at, "total": 100.0, "message": "x" });
        frame(id, "message", json!({ "method": "notifications/progress", "params": params }))
    };
    let whole = || {
        let step = |kind| frame(None, kind, json!({ "index": 1, "name": BOOKING }));
        let told = |at| json!({ "progress": at, "total": 100.0, "message": "x" });
        let run = vec![
            frame(Some("1"), "progress", told(25.0)),
            step("step_started"),
            step("step_completed"),
            frame(Some("4"), "progress", told(50.0)),
            frame(Some("5"), "result", json!({ "result": { "booked": true } })),
        ];
        let reply = json!({ "id": 1, "result": { "structuredContent": { "booked": true } } });
        let last = frame(Some("9"), "message", reply.clone());
        let beat = progress(None, 25.5);
        let events =
            vec![progress(Some("7"), 25.0), beat.clone(), progress(Some("8"), 50.0), last.clone()];
        let replay = vec![events[0].clone(), events[2].clone(), last];
        let answers = vec![Sent { question: "q".to_owned(), tries: vec![None, Some(400)] }];
        let log = StreamLog { events, answers, reply: Some(reply), ..StreamLog::default() };
        Followed { log, run, replay }
    };
    assert_eq!(whole().faults(), Vec::<String>::new());

    let spoilt = |spoil: &dyn Fn(&mut Followed)| {
        let mut followed = whole();
        spoil(&mut followed);
        assert!(!followed.faults().is_empty(), "{}", followed.log);
    };
    for at in [0, 2, 3] {
        spoilt(&|followed| drop(followed.log.events.remove(at)));
        spoilt(&|followed| {
            let again = followed.log.events[at].clone();
            followed.log.events.insert(at, again);
        });
    }
    spoilt(&|followed| followed.log.events.swap(0, 2));
    spoilt(&|followed| followed.log.events[1] = progress(None, 24.0));
    spoilt(&|followed| followed.log.events[1].id = Some("7".to_owned()));
    spoilt(&|followed| drop(followed.replay.pop()));
    spoilt(&|followed| followed.log.answers[0].tries = vec![Some(400)]);
    for at in [1, 2, 4] {
        spoilt(&|followed| {
            let again = followed.run[at].clone();
            followed.run.push(again);
        });
    }
}
