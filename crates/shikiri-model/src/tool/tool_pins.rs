//! Pinned tool definitions of a server: as first seen, or as a person last accepted them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::tool_change::{ToolChange, ToolChangeKind};
use super::tool_definition::{ToolDefinition, ToolDescription};
use crate::ids::TenantId;
use crate::macros::document;

/// The most text that is stored of one definition and of all definitions of a server. Of a longer
/// one only the fingerprint is stored: a change is noticed, but the earlier text cannot be shown.
const MAX_TEXT: usize = 32 * 1024;
const MAX_TEXTS: usize = 1024 * 1024;

/// The pinned definitions of one server's tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolPins {
    /// The id of the server's record, or a hash of a host server's name and address.
    pub id: String,
    pub tenant: TenantId,
    /// The server's address. At another address it is another server, whose tools are new.
    pub place: String,
    pub tools: BTreeMap<String, PinnedTool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PinnedTool {
    pub fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<ToolDescription>,
}

impl ToolPins {
    pub fn new(tenant: TenantId, id: String, place: String) -> Self {
        Self { id, tenant, place, tools: BTreeMap::new() }
    }

    /// Compares a server's list with the pins.
    pub fn compare(&self, listed: &[ToolDefinition]) -> Vec<ToolChange> {
        let change = |tool: &ToolDefinition| {
            let pinned = self.tools.get(&tool.name);
            if pinned.is_some_and(|pinned| pinned.fingerprint == tool.fingerprint) {
                return None;
            }
            let kind =
                if pinned.is_some() { ToolChangeKind::Changed } else { ToolChangeKind::Added };
            let before = pinned.and_then(|pinned| pinned.definition.clone());
            Some(ToolChange {
                tool: tool.name.clone(),
                kind,
                before,
                after: Some(tool.shown.clone()),
            })
        };
        let names: BTreeSet<_> = listed.iter().map(|tool| tool.name.as_str()).collect();
        let gone = self.tools.iter().filter(|(name, _)| !names.contains(name.as_str()));
        let removed = gone.map(|(name, pinned)| ToolChange {
            tool: name.clone(),
            kind: ToolChangeKind::Removed,
            before: pinned.definition.clone(),
            after: None,
        });
        listed.iter().filter_map(change).chain(removed).collect()
    }

    /// Pins new tools. Changed and removed tools keep their pins, so a tool that returns is
    /// compared with its earlier definition.
    pub fn add_new(&mut self, listed: &[ToolDefinition]) {
        let new = listed.iter().filter(|tool| !self.tools.contains_key(&tool.name));
        let new: Vec<_> = new.collect();
        self.pin(&new);
    }

    /// Replaces all pins by the list.
    pub fn accept_all(&mut self, listed: &[ToolDefinition]) {
        self.tools.clear();
        self.pin(&listed.iter().collect::<Vec<_>>());
    }

    /// Pins one tool as listed.
    pub fn accept(&mut self, tool: &ToolDefinition) {
        self.tools.remove(&tool.name);
        self.pin(&[tool]);
    }

    fn pin(&mut self, tools: &[&ToolDefinition]) {
        let known = self.tools.values().filter_map(|it| it.definition.as_ref());
        let mut kept: usize = if tools.is_empty() { 0 } else { known.map(size).sum() };
        for tool in tools {
            let more = size(&tool.shown);
            let has_room = more <= MAX_TEXT && kept + more <= MAX_TEXTS;
            kept += if has_room { more } else { 0 };
            let pinned = PinnedTool {
                fingerprint: tool.fingerprint.clone(),
                definition: has_room.then(|| tool.shown.clone()),
            };
            self.tools.insert(tool.name.clone(), pinned);
        }
    }
}

/// The approximate size of a definition in the store.
fn size(definition: &ToolDescription) -> usize {
    serde_json::to_string(definition).map_or(usize::MAX / 2, |text| text.len())
}

document!(ToolPins, "tool_pins", tenant, id);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        ToolDefinition::read(&json!({ "name": name, "description": description })).unwrap()
    }

    fn pins(listed: &[ToolDefinition]) -> ToolPins {
        let mut pins = ToolPins::new(TenantId::local(), "s".to_owned(), "here".to_owned());
        pins.add_new(listed);
        pins
    }

    fn told(pins: &ToolPins, listed: &[ToolDefinition]) -> Vec<(String, &'static str)> {
        pins.compare(listed).into_iter().map(|it| (it.tool, it.kind.as_str())).collect()
    }

    #[test]
    fn a_changed_definition_stays_changed_until_it_is_accepted() {
        let first = [tool("a", "1"), tool("b", "1")];
        let mut pins = pins(&first);
        assert_eq!(told(&pins, &first), []);
        let second = [tool("a", "2"), tool("c", "1")];
        let all = [("a".into(), "changed"), ("c".into(), "added"), ("b".into(), "removed")];
        assert_eq!(told(&pins, &second), all);
        assert_eq!(pins.compare(&second)[0].before, Some(first[0].shown.clone()));

        pins.add_new(&second);
        assert_eq!(told(&pins, &second), [("a".into(), "changed"), ("b".into(), "removed")]);
        // A tool that was away for a while is compared with its earlier definition.
        let back = [tool("a", "2"), tool("b", "2"), tool("c", "1")];
        assert_eq!(told(&pins, &back), [("a".into(), "changed"), ("b".into(), "changed")]);
        pins.accept(&back[0]);
        assert_eq!(told(&pins, &back), [("b".into(), "changed")]);
        pins.accept_all(&second);
        assert_eq!(told(&pins, &second), []);
    }

    #[test]
    fn a_definition_that_is_too_long_to_keep_is_known_by_its_fingerprint() {
        let pins = pins(&[tool("a", &"x".repeat(MAX_TEXT + 1))]);
        assert_eq!(pins.tools["a"].definition, None);
        let changes = pins.compare(&[tool("a", "y")]);
        assert_eq!((changes[0].kind, &changes[0].before), (ToolChangeKind::Changed, &None));
        assert_eq!(changes[0].parts(), ["definition"]);
    }
}
