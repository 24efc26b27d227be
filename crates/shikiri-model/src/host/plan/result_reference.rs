//! `${task.path.in.result}` in texts and in the strings of arguments. `$${` stands for `${`.

use serde_json::{Map, Value};

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePiece<'a> {
    Text(&'a str),
    Reference(ResultReference<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResultReference<'a> {
    pub(super) task: &'a str,
    pub(super) path: Vec<&'a str>,
    /// The text between the braces.
    pub(super) written: &'a str,
}

/// Why a text cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReferenceSyntaxError {
    #[error("`${{` without its `}}`")]
    Open,
    #[error("`${{{0}}}` has an empty part")]
    Empty(String),
}

pub(super) fn pieces(text: &str) -> Result<Vec<TemplatePiece<'_>>, ReferenceSyntaxError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // `$${` is a literal `${`.
            push(&mut pieces, &rest[..at - 1]);
            push(&mut pieces, &rest[at..at + 2]);
            rest = &rest[at + 2..];
            continue;
        }
        push(&mut pieces, &rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside.find('}').ok_or(ReferenceSyntaxError::Open)?;
        pieces.push(TemplatePiece::Reference(reference(&inside[..end])?));
        rest = &inside[end + 1..];
    }
    push(&mut pieces, rest);
    Ok(pieces)
}

fn push<'a>(pieces: &mut Vec<TemplatePiece<'a>>, text: &'a str) {
    if !text.is_empty() {
        pieces.push(TemplatePiece::Text(text));
    }
}

fn reference(written: &str) -> Result<ResultReference<'_>, ReferenceSyntaxError> {
    let mut parts = written.split('.');
    let task = parts.next().unwrap_or_default();
    let path: Vec<_> = parts.collect();
    if task.is_empty() || path.iter().any(|part| part.is_empty()) {
        return Err(ReferenceSyntaxError::Empty(written.to_owned()));
    }
    Ok(ResultReference { task, path, written })
}

/// The tasks that a text refers to; empty if it cannot be parsed.
pub(super) fn named_in_text(text: &str) -> Vec<&str> {
    let pieces = pieces(text).unwrap_or_default();
    let named = pieces.into_iter().filter_map(|piece| match piece {
        TemplatePiece::Reference(reference) => Some(reference.task),
        TemplatePiece::Text(_) => None,
    });
    named.collect()
}

/// The tasks that the strings in a value refer to.
pub(super) fn named_in(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => named_in_text(text),
        Value::Array(items) => items.iter().flat_map(named_in).collect(),
        Value::Object(fields) => fields.values().flat_map(named_in).collect(),
        _ => Vec::new(),
    }
}

/// The first error in the strings of a value.
pub(super) fn unreadable_in(value: &Value) -> Option<ReferenceSyntaxError> {
    match value {
        Value::String(text) => pieces(text).err(),
        Value::Array(items) => items.iter().find_map(unreadable_in),
        Value::Object(fields) => fields.values().find_map(unreadable_in),
        _ => None,
    }
}

/// Replaces the references in a value. A string that is only one reference becomes the referenced
/// value, of any type. Elsewhere a reference becomes text.
pub(super) fn fill<E>(
    value: &Value,
    find: &impl Fn(&ResultReference<'_>) -> Result<Value, E>,
) -> Result<Value, E> {
    Ok(match value {
        Value::String(text) => match pieces(text).unwrap_or_default().as_slice() {
            [TemplatePiece::Reference(reference)] => find(reference)?,
            pieces => Value::String(fill_text(pieces, find)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill(item, find)).collect::<Result<_, E>>()?)
        }
        Value::Object(fields) => {
            let filled = fields.iter().map(|(key, value)| Ok((key.clone(), fill(value, find)?)));
            Value::Object(filled.collect::<Result<Map<_, _>, E>>()?)
        }
        other => other.clone(),
    })
}

pub(super) fn fill_text<E>(
    pieces: &[TemplatePiece<'_>],
    find: &impl Fn(&ResultReference<'_>) -> Result<Value, E>,
) -> Result<String, E> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            TemplatePiece::Text(piece) => text.push_str(piece),
            TemplatePiece::Reference(reference) => match find(reference)? {
                Value::String(found) => text.push_str(&found),
                other => text.push_str(&other.to_string()),
            },
        }
    }
    Ok(text)
}
