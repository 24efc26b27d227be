//! `${task.path.in.result}` in texts and in the strings of arguments. `$${` stands for `${`.

use serde_json::{Map, Value};

/// A text in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Reference(Reference<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference<'a> {
    pub(super) task: &'a str,
    pub(super) path: Vec<&'a str>,
    /// As it is written, between the braces.
    pub(super) written: &'a str,
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("`${{` without its `}}`")]
    Open,
    #[error("`${{{0}}}` has an empty part")]
    Empty(String),
}

pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Unreadable> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            // The second dollar sign and the brace are meant as they are.
            push(&mut pieces, &rest[..at - 1]);
            push(&mut pieces, &rest[at..at + 2]);
            rest = &rest[at + 2..];
            continue;
        }
        push(&mut pieces, &rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside.find('}').ok_or(Unreadable::Open)?;
        pieces.push(Piece::Reference(reference(&inside[..end])?));
        rest = &inside[end + 1..];
    }
    push(&mut pieces, rest);
    Ok(pieces)
}

fn push<'a>(pieces: &mut Vec<Piece<'a>>, text: &'a str) {
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

fn reference(written: &str) -> Result<Reference<'_>, Unreadable> {
    let mut parts = written.split('.');
    let task = parts.next().unwrap_or_default();
    let path: Vec<_> = parts.collect();
    if task.is_empty() || path.iter().any(|part| part.is_empty()) {
        return Err(Unreadable::Empty(written.to_owned()));
    }
    Ok(Reference { task, path, written })
}

/// The tasks that a text refers to; none for one that cannot be read.
pub(super) fn named_in_text(text: &str) -> Vec<&str> {
    let pieces = pieces(text).unwrap_or_default();
    let named = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Reference(reference) => Some(reference.task),
        Piece::Text(_) => None,
    });
    named.collect()
}

/// The same of every string in a value.
pub(super) fn named_in(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => named_in_text(text),
        Value::Array(items) => items.iter().flat_map(named_in).collect(),
        Value::Object(fields) => fields.values().flat_map(named_in).collect(),
        _ => Vec::new(),
    }
}

/// The first string in a value that cannot be read.
pub(super) fn unreadable_in(value: &Value) -> Option<Unreadable> {
    match value {
        Value::String(text) => pieces(text).err(),
        Value::Array(items) => items.iter().find_map(unreadable_in),
        Value::Object(fields) => fields.values().find_map(unreadable_in),
        _ => None,
    }
}

/// A value with what it refers to put in. A string that is nothing but one reference becomes what
/// it refers to, of whichever type; elsewhere it becomes text.
pub(super) fn fill<E>(
    value: &Value,
    find: &impl Fn(&Reference<'_>) -> Result<Value, E>,
) -> Result<Value, E> {
    Ok(match value {
        Value::String(text) => match pieces(text).unwrap_or_default().as_slice() {
            [Piece::Reference(reference)] => find(reference)?,
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
    pieces: &[Piece<'_>],
    find: &impl Fn(&Reference<'_>) -> Result<Value, E>,
) -> Result<String, E> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Reference(reference) => match find(reference)? {
                Value::String(found) => text.push_str(&found),
                other => text.push_str(&other.to_string()),
            },
        }
    }
    Ok(text)
}
