//! Our hooks in a text of Claude Code's settings: put in and taken out, with everything else in it
//! left as it is, hooks of others among it.

use serde_json::{Map, Value, json};

use super::edit::{append, remove};
use super::events::{Group, Hook, Ours};
use super::jsonc::{Fault, Item, Node, line_of, parse, without_layout};

/// One of our hooks, as it was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) event: String,
    pub(super) matcher: Option<String>,
    pub(super) hook: Value,
    pub(super) ours: Ours,
}

/// What an empty file means.
const NOTHING: &str = "{}\n";

/// The text with this hook for all its events. Unchanged if that is what it says already.
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

/// The text with a list for the hooks of an event.
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

/// The text without any hook of ours, and without what held nothing else.
pub(super) fn uninstall(text: &str) -> Result<String, Fault> {
    let mut text = text.to_owned();
    loop {
        let root = read(&text)?;
        let Some(place) = places(&root).into_iter().next() else { return Ok(text) };
        text = without(&text, &root, &place);
    }
}

/// All hooks of ours.
pub(super) fn found(text: &str) -> Result<Vec<Found>, Fault> {
    let root = read(text)?;
    Ok(places(&root).into_iter().map(|place| place.found).collect())
}

/// Whether it is to the byte what `install` writes where there was nothing.
pub(super) fn is_made_by_install(text: &str) -> bool {
    let hook = found(text).ok().and_then(|found| found.into_iter().next());
    let hook = hook.and_then(|found| serde_json::from_value::<Hook>(found.hook).ok());
    hook.is_some_and(|hook| install("", &hook).is_ok_and(|made| made == text))
}

/// Whether two texts say the same but for our hooks, and for lists of hooks that are empty.
pub(super) fn differ_in_ours_only(one: &str, other: &str) -> Result<bool, Fault> {
    let rest = |text: &str| {
        let text = if text.trim().is_empty() { NOTHING } else { text };
        without_layout(&without_empty_lists(uninstall(text)?)?)
    };
    Ok(rest(one)? == rest(other)?)
}

/// A member of the settings, whose meaning is not ours to judge.
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
    let order = |one: &(String, Option<String>, Value), other: &(String, Option<String>, Value)| {
        one.0.cmp(&other.0)
    };
    found.sort_by(order);
    wanted.sort_by(order);
    Ok(found == wanted)
}

/// Reads settings, and sees that hooks are where they can be put in.
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

/// Where a hook is: the member `hooks`, the event, its group, and the hook in the group.
struct Place {
    hooks: usize,
    event: usize,
    group: usize,
    hook: usize,
    found: Found,
}

fn places(root: &Node) -> Vec<Place> {
    let mut places = Vec::new();
    let Some(hooks) = root.position("hooks") else { return places };
    for (event, of_event) in root.items()[hooks].value.items().iter().enumerate() {
        for (group, of_group) in of_event.value.items().iter().enumerate() {
            let matcher = of_group.value.get("matcher").and_then(|m| text_of(&m.to_value()));
            for (hook, found) in hooks_of(of_group).iter().enumerate() {
                let found = found.value.to_value();
                let Some(ours) = Ours::of(&found) else { continue };
                let name = of_event.key.clone().unwrap_or_default();
                let found = Found { event: name, matcher: matcher.clone(), hook: found, ours };
                places.push(Place { hooks, event, group, hook, found });
            }
        }
    }
    places
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn hooks_of(group: &Item) -> &[Item] {
    group.value.get("hooks").map(Node::items).unwrap_or_default()
}

/// Takes out the hook, or as much around it as then would hold nothing.
fn without(text: &str, root: &Node, place: &Place) -> String {
    let hooks = &root.items()[place.hooks].value;
    let event = &hooks.items()[place.event].value;
    let group = &event.items()[place.group];
    match (hooks_of(group).len(), event.items().len(), hooks.items().len()) {
        (1, 1, 1) => remove(text, root, place.hooks),
        (1, 1, _) => remove(text, hooks, place.event),
        (1, _, _) => remove(text, event, place.group),
        _ => match group.value.get("hooks") {
            Some(list) => remove(text, list, place.hook),
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
