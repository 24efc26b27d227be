//! Installs and removes our hooks in the text of Claude Code's settings. Everything else, including
//! other hooks, stays as it is.

use serde_json::{Map, Value, json};

use super::edit::{append, remove};
use super::events::{Group, Hook, Ours};
use super::jsonc::{Fault, Item, Node, line_of, parse, without_layout};

/// One of our hooks in the text.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) event: String,
    pub(super) matcher: Option<String>,
    pub(super) hook: Value,
    pub(super) ours: Ours,
}

/// The meaning of an empty file.
const NOTHING: &str = "{}\n";

/// The text with this hook for all its events. Unchanged if it has them already.
pub(super) fn install(text: &str, hook: &Hook) -> Result<String, Fault> {
    if is_installed(text, hook)? {
        return Ok(text.to_owned());
    }
    let mut text = uninstall(text)?;
    if text.trim().is_empty() {
        NOTHING.clone_into(&mut text);
    }
    for event in hook.events() {
        text = with_list(text, event.name)?;
        let root = read(&text)?;
        if let Some(groups) = root.get("hooks").and_then(|hooks| hooks.get(event.name)) {
            let group = Group { matcher: event.matcher, hooks: [hook] };
            text = append(&text, &root, groups, None, &group);
        }
    }
    Ok(text)
}

/// The text with a list for an event's hooks.
fn with_list(mut text: String, event: &str) -> Result<String, Fault> {
    let root = read(&text)?;
    if root.get("hooks").is_none() {
        text = append(&text, &root, &root, Some("hooks"), &Map::new());
    }
    let root = read(&text)?;
    match root.get("hooks") {
        Some(hooks) if hooks.get(event).is_none() => {
            Ok(append(&text, &root, hooks, Some(event), &json!([])))
        }
        _ => Ok(text),
    }
}

/// The text without our hooks, and without containers that held nothing else.
pub(super) fn uninstall(text: &str) -> Result<String, Fault> {
    let mut text = text.to_owned();
    loop {
        let root = read(&text)?;
        let Some(hook_position) = hook_positions(&root).into_iter().next() else { return Ok(text) };
        text = without(&text, &root, &hook_position);
    }
}

/// All hooks of ours.
pub(super) fn found(text: &str) -> Result<Vec<Found>, Fault> {
    let root = read(text)?;
    Ok(hook_positions(&root).into_iter().map(|hook_position| hook_position.found).collect())
}

/// Whether the text is exactly what `install` writes into an empty file.
pub(super) fn is_made_by_install(text: &str) -> bool {
    let hook = found(text).ok().and_then(|found| found.into_iter().next());
    let hook = hook.and_then(|found| serde_json::from_value::<Hook>(found.hook).ok());
    hook.is_some_and(|hook| install("", &hook).is_ok_and(|made| made == text))
}

/// Whether two texts differ only in our hooks and in empty lists of hooks.
pub(super) fn differ_in_ours_only(one: &str, other: &str) -> Result<bool, Fault> {
    let rest = |text: &str| {
        let text = if text.trim().is_empty() { NOTHING } else { text };
        without_layout(&without_empty_lists(uninstall(text)?)?)
    };
    Ok(rest(one)? == rest(other)?)
}

/// A member of the settings, as it is written.
pub(super) fn setting(text: &str, key: &str) -> Option<Value> {
    read(text).ok()?.get(key).map(Node::to_value)
}

fn is_installed(text: &str, hook: &Hook) -> Result<bool, Fault> {
    let called = serde_json::to_value(hook).unwrap_or_default();
    let mut found: Vec<_> =
        found(text)?.into_iter().map(|found| (found.event, found.matcher, found.hook)).collect();
    let wanted = hook
        .events()
        .map(|event| (event.name.to_owned(), event.matcher.map(str::to_owned), called.clone()));
    let mut wanted: Vec<_> = wanted.collect();
    let compare = |one: &(String, Option<String>, Value),
                   other: &(String, Option<String>, Value)| {
        one.0.cmp(&other.0)
    };
    found.sort_by(compare);
    wanted.sort_by(compare);
    Ok(found == wanted)
}

/// Parses settings, and checks that hooks can be added to them.
fn read(text: &str) -> Result<Node, Fault> {
    let root = parse(if text.trim().is_empty() { NOTHING } else { text })?;
    let expect = |node: &Node, is_right: bool, what: &str| match is_right {
        true => Ok(()),
        false => Err(Fault { line: line_of(text, node.span.start), what: what.to_owned() }),
    };
    expect(&root, root.is_object(), "the settings are not an object")?;
    let Some(hooks) = root.get("hooks") else { return Ok(root) };
    expect(hooks, hooks.is_object(), "\"hooks\" is not an object")?;
    for event in hooks.items() {
        let what = format!("the hooks of {:?} are not a list", event.key.as_deref().unwrap_or(""));
        expect(&event.value, event.value.is_array(), &what)?;
    }
    Ok(root)
}

/// The position of a hook: the member `hooks`, the event, its group, and the hook in the group.
struct HookPosition {
    hooks: usize,
    event: usize,
    group: usize,
    hook: usize,
    found: Found,
}

fn hook_positions(root: &Node) -> Vec<HookPosition> {
    let mut hook_positions = Vec::new();
    let Some(hooks) = root.position("hooks") else { return hook_positions };
    for (event, of_event) in root.items()[hooks].value.items().iter().enumerate() {
        for (group, of_group) in of_event.value.items().iter().enumerate() {
            let matcher = of_group.value.get("matcher").and_then(|m| text_of(&m.to_value()));
            for (hook, found) in hooks_of(of_group).iter().enumerate() {
                let found = found.value.to_value();
                let Some(ours) = Ours::of(&found) else { continue };
                let name = of_event.key.clone().unwrap_or_default();
                let found = Found { event: name, matcher: matcher.clone(), hook: found, ours };
                hook_positions.push(HookPosition { hooks, event, group, hook, found });
            }
        }
    }
    hook_positions
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn hooks_of(group: &Item) -> &[Item] {
    group.value.get("hooks").map(Node::items).unwrap_or_default()
}

/// Removes the hook, and the containers around it that would be empty.
fn without(text: &str, root: &Node, hook_position: &HookPosition) -> String {
    let hooks = &root.items()[hook_position.hooks].value;
    let event = &hooks.items()[hook_position.event].value;
    let group = &event.items()[hook_position.group];
    match (hooks_of(group).len(), event.items().len(), hooks.items().len()) {
        (1, 1, 1) => remove(text, root, hook_position.hooks),
        (1, 1, _) => remove(text, hooks, hook_position.event),
        (1, _, _) => remove(text, event, hook_position.group),
        _ => match group.value.get("hooks") {
            Some(list) => remove(text, list, hook_position.hook),
            None => text.to_owned(),
        },
    }
}

fn without_empty_lists(mut text: String) -> Result<String, Fault> {
    loop {
        let root = read(&text)?;
        let Some(at) = root.position("hooks") else { return Ok(text) };
        let hooks = &root.items()[at].value;
        let empty = hooks.items().iter().position(|event| event.value.items().is_empty());
        text = match empty {
            _ if hooks.items().is_empty() => remove(&text, &root, at),
            Some(event) => remove(&text, hooks, event),
            None => return Ok(text),
        };
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
