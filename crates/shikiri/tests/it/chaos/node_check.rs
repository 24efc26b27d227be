//! What must be true of every run, whatever happened to the processes that carried it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::event::Seq;
use shikiri_model::ids::TenantId;
use shikiri_model::record::RecordQuery;
use shikiri_model::run::{Run, RunStatus};
use shikiri_store::Store;

/// A run's events, and how often each of its steps was really done.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) events: Vec<Told>,
    done: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) seq: Seq,
    pub(crate) kind: String,
    pub(crate) data: Value,
}

impl Story {
    /// As it lies in the log and in the steps' file.
    pub(crate) async fn of(run: &Run, store: &dyn Store, lines: &Path) -> Self {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page = store.read(&TenantId::local(), &run.stream(), after, 1 << 20).await.unwrap();
            for event in page.chunks.iter().flat_map(|chunk| chunk.events_after(after)) {
                let data = serde_json::from_str(event.data).unwrap();
                events.push(Told { seq: event.seq, kind: event.kind.to_owned(), data });
            }
            match page.chunks.last() {
                Some(chunk) => after = chunk.last_seq(),
                None => break,
            }
        }
        let prefix = format!("{}/", run.input["name"].as_str().unwrap());
        let mut done = BTreeMap::new();
        for line in fs::read_to_string(lines).unwrap_or_default().lines() {
            if let Some(step) = line.strip_prefix(&prefix) {
                *done.entry(step.to_owned()).or_default() += 1;
            }
        }
        Self { events, done }
    }

    /// Steps whose completion is in the log, and how often they were done by now.
    pub(crate) fn completed(&self) -> BTreeMap<String, u64> {
        let completed = self.events.iter().filter(|event| event.kind == "step_completed");
        completed
            .map(|event| event.data["name"].as_str().unwrap())
            .map(|name| (name.to_owned(), self.done.get(name).copied().unwrap_or(0)))
            .collect()
    }

    pub(crate) fn check(&self) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{faults:#?} in {self:#?}");
    }

    /// A story that has ended is whole: one end, no gap in the journal, nothing told twice, and
    /// no step done more often than it was begun, or after its completion was recorded.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |fault: bool, words: String| {
            if fault {
                faults.push(words);
            }
        };
        let count = self.events.len() as u64;
        wrong(!self.events.iter().map(|event| event.seq).eq(1..=count), "a gap".to_owned());
        let ends: Vec<_> = self.of_kinds(&["result", "error"]).map(|event| event.seq).collect();
        wrong(ends != [count], format!("ends at {ends:?} of {count}"));
        let starts: Vec<_> =
            self.of_kinds(&["started"]).map(|event| event.data["attempt"].as_u64()).collect();
        let in_order = starts.iter().copied().eq((1..=starts.len() as u64).map(Some));
        wrong(!in_order, format!("starts {starts:?}"));

        let mut journal: BTreeMap<u64, Vec<&Told>> = BTreeMap::new();
        for event in &self.events {
            if let Some(index) = event.data["index"].as_u64() {
                journal.entry(index).or_default().push(event);
            }
        }
        let indexes: Vec<_> = journal.keys().copied().collect();
        wrong(!indexes.iter().copied().eq(0..indexes.len() as u64), format!("{indexes:?}"));
        for (index, entry) in &journal {
            wrong(!self.is_sound(entry), format!("entry {index}: {entry:?}"));
        }
        faults
    }

    fn is_sound(&self, entry: &[&Told]) -> bool {
        let kinds: Vec<_> = entry.iter().map(|event| event.kind.as_str()).collect();
        match kinds[..] {
            ["progress" | "log" | "partial"]
            | ["question", "answer"]
            | ["timer_set", "timer_fired"]
            | ["child_started", "child_ended"] => true,
            [ref begun @ .., "step_completed"] => {
                let attempts = entry.iter().filter_map(|event| event.data["attempt"].as_u64());
                let name = entry[0].data["name"].as_str().unwrap_or_default();
                let done = self.done.get(name).copied().unwrap_or(0);
                begun.iter().all(|kind| *kind == "step_started")
                    && attempts.eq(1..=begun.len() as u64)
                    && (1..=begun.len() as u64).contains(&done)
            }
            _ => false,
        }
    }

    /// How often a node was lost while it carried the run.
    pub(crate) fn losses(&self) -> u64 {
        self.of_kinds(&["node_lost"]).count() as u64
    }

    fn of_kinds<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = &'a Told> {
        self.events.iter().filter(|event| kinds.contains(&event.kind.as_str()))
    }
}

/// The kept numbers of runs are those of a recount.
pub(crate) async fn check_run_counts(app: &App) {
    let local = TenantId::local();
    let runs: Vec<Run> = app.runtime.list_all(RecordQuery::of::<Run>(&local)).await.unwrap();
    let counts = app.runtime.count_runs_by_status(&local).await.unwrap();
    for status in RunStatus::ALL {
        let of_status = || runs.iter().filter(|run| run.status == status);
        let executions = of_status().filter(|run| run.execution.is_some()).count() as u64;
        let agents = of_status().count() as u64 - executions;
        let counted = (counts.agents.of(status), counts.executions.of(status));
        assert_eq!(counted, (agents, executions), "{status:?}");
    }
}

/// The checker can find fault: a whole story passes, and each way to spoil it is noticed.
#[test]
fn a_story_that_is_not_whole_is_found_out() {
    let whole = || {
        let told = [
            ("queued", json!({})),
            ("started", json!({ "attempt": 1 })),
            ("progress", json!({ "index": 0 })),
            ("step_started", json!({ "index": 1, "name": "a", "attempt": 1 })),
            ("node_lost", json!({})),
            ("started", json!({ "attempt": 2 })),
            ("step_started", json!({ "index": 1, "name": "a", "attempt": 2 })),
            ("step_completed", json!({ "index": 1, "name": "a" })),
            ("result", json!({})),
        ];
        let event =
            |(seq, (kind, data)): (Seq, (&str, Value))| Told { seq, kind: kind.into(), data };
        let events = (1..).zip(told).map(event).collect();
        Story { events, done: BTreeMap::from([("a".to_owned(), 2)]) }
    };
    assert_eq!(whole().faults(), Vec::<String>::new());

    let mut again = whole();
    again.done.insert("a".to_owned(), 3);
    let mut never = whole();
    never.done.clear();
    assert!(!again.faults().is_empty() && !never.faults().is_empty());
    for at in 0..whole().events.len() {
        let mut twice = whole();
        let event = twice.events[at].clone();
        twice.events.insert(at, event.clone());
        renumber(&mut twice);
        let harmless = ["queued", "node_lost"].contains(&event.kind.as_str());
        assert_eq!(twice.faults().is_empty(), harmless, "twice {event:?}");
        let mut without = whole();
        without.events.remove(at);
        renumber(&mut without);
        // That it was started once more is told by nothing else.
        let harmless = harmless || event.data["attempt"] == 2 && event.kind == "started";
        assert_eq!(without.faults().is_empty(), harmless, "without {event:?}");
    }
}

fn renumber(story: &mut Story) {
    for (seq, event) in (1..).zip(&mut story.events) {
        event.seq = seq;
    }
}
