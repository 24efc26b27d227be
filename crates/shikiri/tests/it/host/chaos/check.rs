//! What must be true of a call over all processes that followed it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::world::Home;

/// A call that a test makes, told from others by its arguments.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) protocol: &'static str,
}

impl Plan {
    pub(super) fn words(&self) -> Vec<String> {
        let words = ["--protocol", self.protocol, "call", self.tool, "--events", "--yes", "--args"];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.push(self.arguments.to_string());
        words
    }

    /// What the tool answers, whatever happens on the way.
    fn is_right(&self, result: &Value) -> bool {
        let said = &result["structuredContent"];
        let given = |name: &str, default: &str| match self.arguments[name].as_str() {
            Some(text) => json!(text),
            None => json!(default),
        };
        match self.tool {
            "travel_agent" => {
                let notes = json!("Confirmed by user");
                said["booked"] == json!(true)
                    && said["destination"] == given("destination", "Paris")
                    && said["notes"] == notes
            }
            "research_agent" => {
                let topic = given("topic", "AI trends");
                let asked = format!("research on: {}", topic.as_str().expect("a text"));
                let summary = said["summary"].as_str().unwrap_or_default();
                said["topic"] == topic
                    && said["summary_source"] == "client"
                    && summary.starts_with("[offline")
                    && summary.ends_with(&asked)
            }
            _ => said == &json!({ "steps": self.arguments["steps"] }),
        }
    }
}

/// Everything that was shown of one call, by all processes in turn.
pub(super) struct Told {
    pub(super) plan: Plan,
    pub(super) events: Vec<Value>,
}

impl Told {
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["event"] == kind)
    }

    fn all<'a>(&'a self, kind: &'a str, field: &'a str) -> Vec<&'a Value> {
        self.of_kind(kind).map(|event| &event[field]).collect()
    }

    pub(super) fn progress(&self) -> Vec<f64> {
        self.of_kind("progress").filter_map(|event| event["progress"].as_f64()).collect()
    }

    pub(super) fn call_id(&self) -> Option<&str> {
        self.events.iter().find_map(|event| event["call_id"].as_str())
    }

    /// The end as it was shown, or else as it is kept.
    pub(super) fn check(&self, home: &Home) {
        let faults = self.faults(home);
        let lines: Vec<String> = self.events.iter().map(Value::to_string).collect();
        assert!(faults.is_empty(), "{:?}: {faults:?}\n{}", self.plan, lines.join("\n"));
    }

    fn faults(&self, home: &Home) -> Vec<String> {
        let mut faults = Vec::new();
        let ids: BTreeSet<_> = self.events.iter().map(|event| event["call_id"].as_str()).collect();
        if ids.len() != 1 {
            faults.push(format!("calls {ids:?}"));
        }
        let once = [
            ("sent", "request_id"),
            ("asked", "key"),
            ("answered", "key"),
            ("task", "id"),
            ("run", "run_id"),
            ("log", "text"),
        ];
        for (kind, field) in once {
            let all = self.all(kind, field);
            let different: BTreeSet<String> = all.iter().map(|value| value.to_string()).collect();
            if different.len() != all.len() {
                faults.push(format!("{kind} twice: {all:?}"));
            }
        }
        let progress = self.progress();
        if !progress.windows(2).all(|pair| pair[0] < pair[1]) {
            faults.push(format!("progress {progress:?}"));
        }
        let ended: Vec<_> = self.of_kind("ended").collect();
        let result = match ended.as_slice() {
            [] => self.kept_result(home),
            [one] if self.events.last() == Some(one) => one["result"].clone(),
            more => {
                faults.push(format!("ended {} times, or not at last", more.len()));
                Value::Null
            }
        };
        if !self.plan.is_right(&result) {
            faults.push(format!("the result {result}"));
        }
        faults
    }

    /// Killed between keeping the end and showing it: the next reader is told.
    fn kept_result(&self, home: &Home) -> Value {
        let Some(id) = self.call_id() else { return Value::Null };
        home.run(&["resume", id, "--json"]).done().json()["result"].clone()
    }
}
