use serde_json::{Value, json};

use super::*;
use crate::ids::TenantId;
use crate::time::Timestamp;

const NOW: i64 = 1_763_236_800_005;

fn read(file: &Value) -> Result<SessionsFile, SessionsFileError> {
    read_sessions(&file.to_string())
}

/// Takes a file in, beside what is there.
fn take(file: &Value, lanes: &mut Vec<Lane>) -> ImportPlan {
    let file = read(file).unwrap();
    let mut next = lanes.len();
    let mint = || {
        next += 1;
        format!("lan_{next}").parse().unwrap()
    };
    let (tenant, limits) = (TenantId::local(), LaneLimits::default());
    let plan = plan_import(&file, lanes, &tenant, &limits, Timestamp::from_millis(NOW), mint);
    lanes.extend(plan.lanes.clone());
    plan
}

fn names(lanes: &[Lane]) -> Vec<&str> {
    lanes.iter().map(|lane| lane.name.as_str()).collect()
}

fn v1() -> Value {
    json!({ "projects": {
        "my-project": {
            "chatgpt": { "url": "https://chatgpt.com/c/abc123" },
            "gemini": { "url": "https://gemini.google.com/app/xyz789", "tabId": 42 },
        },
        "my_project": { "chatgpt": { "url": "https://chatgpt.com/c/second" }, "gemini": null },
        "私の 計画": { "chatgpt": { "url": "https://chatgpt.com/c/third" } },
    } })
}

#[test]
fn version_1_is_converted_under_the_rule_for_names_and_clashes_are_numbered() {
    let mut lanes = Vec::new();
    take(&v1(), &mut lanes);
    let wanted = ["legacy-my_project", "legacy-my_project-2", "legacy-_____"];
    assert_eq!(names(&lanes), wanted);
    assert_eq!(lanes[0].url("gemini"), Some("https://gemini.google.com/app/xyz789"));
    assert_eq!(lanes[1].url("chatgpt"), Some("https://chatgpt.com/c/second"));
    assert_eq!(lanes[0].last_access, Timestamp::from_millis(NOW));
}

#[test]
fn importing_again_changes_nothing() {
    let mut lanes = Vec::new();
    take(&v1(), &mut lanes);
    let plan = take(&v1(), &mut lanes);
    assert_eq!((plan.lanes.len(), plan.known.len()), (0, 3));

    let exported = export(&lanes, &LaneLimits::default());
    let plan = take(&exported, &mut lanes);
    assert_eq!((plan.lanes.len(), plan.known.len()), (0, 3));
    // In an empty store it makes the same.
    let mut elsewhere = Vec::new();
    take(&exported, &mut elsewhere);
    assert_eq!(export(&elsewhere, &LaneLimits::default()), exported);
}

#[test]
fn version_2_keeps_names_times_and_tabs_and_does_not_overwrite() {
    let file = |url: &str| {
        json!({
            "version": 2,
            "agents": { "my-agent-12345": {
                "lastAccess": "2025-11-15T19:59:59.001Z",
                "chatgpt": { "url": url, "tabId": 7 },
                "gemini": null,
            } },
            "config": { "sessionTtlMinutes": 5, "maxAgents": 3 },
        })
    };
    let mut lanes = Vec::new();
    take(&file("https://chatgpt.com/c/a"), &mut lanes);
    assert_eq!(lanes[0].agent, "my-agent");
    assert_eq!(lanes[0].last_access.to_string(), "2025-11-15T19:59:59.001Z");
    lanes[0].source = None;
    take(&file("https://chatgpt.com/c/b"), &mut lanes);
    assert_eq!(names(&lanes), ["my-agent-12345", "my-agent-12345-2"]);
    assert_eq!(lanes[0].url("chatgpt"), Some("https://chatgpt.com/c/a"));

    let exported = export(&lanes[..1], &LaneLimits { ttl_minutes: 1.5, max_lanes: 4 });
    assert_eq!(
        exported,
        json!({
            "version": 2,
            "agents": { "my-agent-12345": {
                "lastAccess": "2025-11-15T19:59:59.001Z",
                "chatgpt": { "url": "https://chatgpt.com/c/a", "tabId": 7 },
                "gemini": null,
            } },
            "config": { "sessionTtlMinutes": 1.5, "maxAgents": 4 },
        })
    );
}

#[test]
fn ended_lanes_are_not_in_the_file() {
    let mut lanes = Vec::new();
    take(&v1(), &mut lanes);
    lanes[0].end();
    let exported = export(&lanes, &LaneLimits::default());
    assert_eq!(exported["agents"].as_object().unwrap().len(), 2);
    assert_eq!(exported["config"], json!({ "sessionTtlMinutes": 30, "maxAgents": 10 }));
}

#[test]
fn an_address_that_is_no_chat_is_left_out_and_told() {
    let file = json!({ "projects": { "p": {
        "chatgpt": { "url": "https://chatgpt.com/" },
        "lastUsed": 5,
        "notes": "mine",
    } } });
    let read = read(&file).unwrap();
    assert_eq!(read.left_out, ["projects.p.chatgpt: https://chatgpt.com/"]);
    assert!(read.entries[0].threads.is_empty());
}

#[test]
fn a_broken_file_is_refused_as_a_whole_with_the_place() {
    let entry = |entry: Value| json!({ "version": 2, "agents": { "a": {}, "b": entry } });
    let url = |url: &str| entry(json!({ "chatgpt": { "url": url } }));
    for (file, reason) in [
        (json!([]), "is no sessions file: it is not an object"),
        (json!({}), "is no sessions file: it has neither `projects`"),
        (json!({ "version": 3, "agents": {} }), "is no sessions file: its version is 3"),
        (json!({ "version": "2", "agents": {} }), "is no sessions file: its version is \"2\""),
        (json!({ "version": 2 }), "agents: must be an object"),
        (json!({ "projects": [] }), "projects: must be an object"),
        (entry(json!(5)), "agents.b: must be an object"),
        (entry(json!({ "lastAccess": "soon" })), "agents.b.lastAccess: is no time"),
        (entry(json!({ "lastAccess": 5 })), "agents.b.lastAccess: must be a time as text"),
        (entry(json!({ "chatgpt": "x" })), "agents.b.chatgpt: must be null or an object"),
        (entry(json!({ "gemini": { "url": 5 } })), "agents.b.gemini.url: must be text"),
        (url("javascript:alert(1)"), "agents.b.chatgpt.url: is no http or https address"),
        (
            entry(json!({ "chatgpt": { "url": "https://chatgpt.com/c/1", "tabId": [] } })),
            "agents.b.chatgpt.tabId: must be",
        ),
    ] {
        let told = read(&file).unwrap_err().to_string();
        assert!(told.starts_with(reason), "{told} for {file}");
    }
    assert!(read_sessions("host\n").is_err());
    assert!(read_sessions("").is_err());
    let long = "n".repeat(501);
    assert!(read(&json!({ "version": 2, "agents": { long: {} } })).is_err());
}

#[test]
fn a_huge_file_is_read_or_refused_before_it_takes_long() {
    let entry = |n: usize| {
        let url = format!("https://chatgpt.com/c/{n}");
        (format!("agent-{n}"), json!({ "chatgpt": { "url": url } }))
    };
    let file = |count: usize| {
        let agents: serde_json::Map<String, Value> = (0..count).map(entry).collect();
        json!({ "version": 2, "agents": agents })
    };
    assert_eq!(read(&file(10_000)).unwrap().entries.len(), 10_000);
    assert!(read(&file(10_001)).unwrap_err().to_string().contains("more than 10000"));
    let too_long = format!("{{\"projects\":{{}},\"x\":\"{}\"}}", "y".repeat(17 * 1024 * 1024));
    assert!(read_sessions(&too_long).unwrap_err().to_string().contains("16 MiB"));
}

#[test]
fn a_mark_before_the_first_character_does_no_harm() {
    assert!(read_sessions("\u{feff}{\"projects\":{}}").is_ok());
}
