//! What the OpenAPI document says of the API as a whole: its description, with the errors, and its groups.

use std::fmt::Write as _;

use serde_json::json;
use shikiri_app::problem::ProblemCode;
use utoipa::Modify;
use utoipa::openapi::OpenApi;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::tag::{Tag, TagBuilder};

/// A heading of the index, with its tags: name, title, description.
type TagGroup = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

const GROUPS: &[TagGroup] = &[
    (
        "Agents",
        &[(
            "runs",
            "Runs",
            "Durable calls of agents. A run goes on without its caller, and survives its server.",
        )],
    ),
    (
        "Conversations",
        &[
            (
                "conversations",
                "Conversations",
                "Chats of a tenant's users. Each has one writer at a time.",
            ),
            (
                "executions",
                "Executions",
                "Turns of a conversation, done by an engine, with their tools, subagents and cost. \
                 An execution is a run.",
            ),
            (
                "files",
                "Files",
                "The workspace of a conversation, in which an engine reads and writes.",
            ),
            ("skills", "Skills", "Instructions that a tenant's executions can load."),
            (
                "mcp-servers",
                "Tool servers",
                "MCP servers, and APIs with an OpenAPI document, whose tools executions call.",
            ),
            ("models", "Models", "The models of this server, each with its engine and prices."),
        ],
    ),
    (
        "Teams",
        &[
            (
                "teams",
                "Teams",
                "Projects with their agents, tasks, messages, delegations and dialogues.",
            ),
            (
                "lanes",
                "Lanes",
                "Each agent's own chats at the providers, and what was asked there.",
            ),
        ],
    ),
    (
        "Claude Code",
        &[(
            "hooks",
            "Hooks",
            "Events of Claude Code's hooks, and the subagents that they tell of.",
        )],
    ),
    (
        "Administration",
        &[
            ("tenants", "Tenants", "Owners of everything else, kept apart from each other."),
            ("keys", "Keys", "Keys of a tenant. A secret is shown once."),
            ("usage", "Usage", "What a tenant's executions spent."),
            ("audit", "Audit", "Who changed who may do what."),
            ("server", "Server", "Health, metrics and this description. These need no key."),
        ],
    ),
];

pub(crate) struct GuideModifier;

impl Modify for GuideModifier {
    fn modify(&self, document: &mut OpenApi) {
        document.info.description = Some(description());
        document.tags = Some(GROUPS.iter().flat_map(|(_, tags)| *tags).map(tag).collect());
        let groups: Vec<_> = GROUPS
            .iter()
            .map(|(name, tags)| {
                let tags: Vec<_> = tags.iter().map(|(name, _, _)| *name).collect();
                json!({ "name": name, "tags": tags })
            })
            .collect();
        document.extensions = Some(Extensions::from_iter([("x-tagGroups", groups)]));
    }
}

fn tag((name, title, description): &(&str, &str, &str)) -> Tag {
    let title = Extensions::from_iter([("x-displayName", *title)]);
    TagBuilder::new().name(*name).description(Some(*description)).extensions(Some(title)).build()
}

/// The guide, and the table of all codes.
fn description() -> String {
    let mut text = include_str!("guide.md").to_owned();
    text.push_str("| HTTP | `code` | meaning |\n|---|---|---|\n");
    let mut codes = ProblemCode::ALL.map(ProblemCode::row);
    // Stable, so within a status the order is that of the list.
    codes.sort_by_key(|(status, _, _)| *status);
    for (status, code, title) in codes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | `{code}` | {title} |", status.as_u16());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(crate::openapi::document()).unwrap()
    }

    #[test]
    fn every_operation_is_in_one_group_and_no_group_is_empty() {
        let document = document();
        let mut used = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let tags = operation["tags"].as_array().unwrap();
                assert_eq!(tags.len(), 1, "{method} {path}");
                used.insert(tags[0].as_str().unwrap().to_owned());
            }
        }
        let listed: Vec<_> =
            GROUPS.iter().flat_map(|(_, tags)| *tags).map(|tag| tag.0.to_owned()).collect();
        assert_eq!(listed.len(), used.len(), "a tag is listed twice, or not at all");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), used);
        assert_eq!(document["tags"].as_array().unwrap().len(), used.len());
    }

    #[test]
    fn each_code_is_told_once() {
        let document = document();
        let text = document["info"]["description"].as_str().unwrap();
        for (status, code, _) in ProblemCode::ALL.map(ProblemCode::row) {
            let row = format!("| {} | `{code}` |", status.as_u16());
            assert_eq!(text.matches(&row).count(), 1, "{row}");
        }
    }
}
