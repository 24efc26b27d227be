mod checks;
mod following;
mod properties;
mod texts;

use serde_json::{Value, json};

use super::*;
use crate::ids::{HostCallId, PlanId, TenantId};
use crate::time::Timestamp;

fn plan(plan: Value) -> Result<HostPlan, String> {
    let read: HostPlan = serde_json::from_value(plan).map_err(|error| error.to_string())?;
    read.validate().map_err(|error| error.to_string())
}

fn run(of: Value) -> PlanRun {
    let plan = plan(of).unwrap();
    PlanRun::new(PlanId::mint(at(0), [0; 10]), TenantId::local(), plan, at(0)).unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn call(number: u8) -> HostCallId {
    HostCallId::mint(at(0), [number; 10])
}

fn said(text: &str) -> PlanTaskOutcome {
    PlanTaskOutcome::Answered(PlanTaskResult { text: text.to_owned(), structured: None })
}

fn structured(value: Value) -> PlanTaskOutcome {
    PlanTaskOutcome::Answered(PlanTaskResult { text: value.to_string(), structured: Some(value) })
}

fn gone(sent: bool) -> PlanTaskOutcome {
    PlanTaskOutcome::ServerFailed { reason: "cannot be reached".to_owned(), sent }
}

fn broken() -> PlanTaskOutcome {
    PlanTaskOutcome::ToolFailed { reason: "out of paper".to_owned() }
}

/// The tool `t` at these servers.
fn offered(by: &[&str]) -> ToolOffers {
    let by = by.iter().map(|name| (*name).to_owned()).collect();
    ToolOffers { tools: [("t".to_owned(), by)].into(), ..ToolOffers::default() }
}

/// Starts a task where it is to be started, and lets it end like this.
fn play(
    run: &mut PlanRun,
    id: &str,
    outcome: PlanTaskOutcome,
    offers: &ToolOffers,
    now: i64,
) -> PlanTaskDecision {
    let server = run.choose(id, offers).unwrap();
    run.start(id, &server, call(1), at(now));
    run.apply_outcome(id, Some(&server), outcome, offers, at(now))
}

fn two() -> Value {
    json!({ "task": [
        { "id": "a", "tool": "t" },
        { "id": "b", "tool": "t", "args": { "from": "${a.price}", "text": "It is ${a.price}." } },
    ]})
}
