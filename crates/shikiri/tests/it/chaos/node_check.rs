//! What must be true of every run, whatever happened to the processes that carried it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use shikiri_model::event::Seq;
use shikiri_model::ids::TenantId;
use shikiri_model::run::Run;
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

    /// A story that has ended is whole: one end, no gap in the journal, nothing told twice, and
    /// no step done more often than it was begun.
    pub(crate) fn check(&self) {
        assert!(self.events.iter().map(|event| event.seq).eq(1..=self.events.len() as u64));
        let ends: Vec<_> = self.of_kinds(&["result", "error"]).map(|event| event.seq).collect();
        assert_eq!(ends, [self.events.len() as u64], "one end, and nothing after it: {self:#?}");
        let attempts = self.of_kinds(&["started"]).map(|event| event.data["attempt"].as_u64());
        assert!(attempts.eq((1..).map(Some).take(self.of_kinds(&["started"]).count())));

        let mut journal: BTreeMap<u64, Vec<&Told>> = BTreeMap::new();
        for event in &self.events {
            if let Some(index) = event.data["index"].as_u64() {
                journal.entry(index).or_default().push(event);
            }
        }
        assert!(journal.keys().copied().eq(0..journal.len() as u64), "a gap: {self:#?}");
        for entry in journal.values() {
            self.check_entry(entry);
        }
    }

    fn check_entry(&self, entry: &[&Told]) {
        let kinds: Vec<_> = entry.iter().map(|event| event.kind.as_str()).collect();
        match kinds[..] {
            ["progress" | "log" | "partial"]
            | ["question", "answer"]
            | ["timer_set", "timer_fired"]
            | ["child_started", "child_ended"] => {}
            ["step_started", .., "step_completed"] => {
                let begun = entry.len() as u64 - 1;
                assert!(kinds[..kinds.len() - 1].iter().all(|kind| *kind == "step_started"));
                let attempts = entry.iter().filter_map(|event| event.data["attempt"].as_u64());
                assert!(attempts.eq(1..=begun), "{entry:#?}");
                let name = entry[0].data["name"].as_str().unwrap();
                let done = self.done.get(name).copied().unwrap_or(0);
                assert!((1..=begun).contains(&done), "{name} was done {done} times: {self:#?}");
            }
            _ => panic!("no journal has such an entry: {kinds:?} in {self:#?}"),
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
