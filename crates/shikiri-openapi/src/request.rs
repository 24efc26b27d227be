//! The request that a call is. It goes below the API's address, whatever the arguments are.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::arguments::{misfit, misfit_as_text};
use crate::encode::{self, Style, in_path, in_query, leads_away, percent};
use crate::error::ArgumentError;
use crate::operation::{Body, Form, Goes, Operation};
use crate::security::Sent;

/// What is sent. Its headers hold secrets: this is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    pub method: &'static str,
    /// Whole and encoded.
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: Option<Vec<u8>>,
}

/// A path with places for its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    /// Encoded.
    Text(String),
    Parameter(String),
}

impl Template {
    pub(crate) fn parse(path: &str) -> Result<Self, String> {
        if path.contains(['?', '#']) {
            return Err("its path holds a query".to_owned());
        }
        if path.split('/').any(leads_away) {
            return Err("its path leads away".to_owned());
        }
        let (mut pieces, mut rest) = (Vec::new(), path);
        while let Some((text, after)) = rest.split_once('{') {
            let Some((name, left)) = after.split_once('}') else {
                return Err("its path has a { without a }".to_owned());
            };
            pieces.push(Piece::Text(literal(text)));
            pieces.push(Piece::Parameter(name.to_owned()));
            rest = left;
        }
        pieces.push(Piece::Text(literal(rest)));
        Ok(Self(pieces))
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for piece in &self.0 {
            if let Piece::Parameter(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    fn fill(&self, values: &BTreeMap<&str, String>) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Parameter(name) => values.get(name.as_str()).cloned().unwrap_or_default(),
        };
        self.0.iter().map(text).collect()
    }
}

/// The document's own part of a path, as a URL has it.
fn literal(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c);
    text.chars()
        .map(|c| if is_plain(c) { c.to_string() } else { percent(&c.to_string()) })
        .collect()
}

/// Arguments by where they go.
#[derive(Default)]
struct Sorted<'a> {
    path: BTreeMap<&'a str, String>,
    /// Pairs, encoded.
    query: Vec<String>,
    fields: Map<String, Value>,
    body: Option<Value>,
}

impl Operation {
    /// The request of a call with these arguments, sent with these headers of the server record.
    pub fn request(
        &self,
        arguments: &Value,
        headers: &BTreeMap<String, String>,
    ) -> Result<Request, ArgumentError> {
        let empty = Map::new();
        let given = match arguments {
            Value::Object(given) => given,
            Value::Null => &empty,
            _ => return Err(ArgumentError("the arguments must be an object".to_owned())),
        };
        self.check_names(given)?;
        let Sorted { path, mut query, fields, body: whole } = self.sort(given)?;
        let (headers, keys) = self.prove(headers);
        query.extend(keys);
        let url = self.base.at(&self.template.fill(&path), &query.join("&"));
        let elsewhere = || ArgumentError("the arguments lead to another address".to_owned());
        let mut request =
            Request { method: self.method, url: url.ok_or_else(elsewhere)?, headers, body: None };
        if let Some(body) = &self.body {
            let is_said = !fields.is_empty() || body.is_required;
            let said = whole.or_else(|| is_said.then_some(Value::Object(fields)));
            if let Some(said) = said {
                request.headers.insert("Content-Type".to_owned(), body.content_type.clone());
                request.body = Some(body.write(&said));
            }
        }
        Ok(request)
    }

    fn sort(&self, given: &Map<String, Value>) -> Result<Sorted<'_>, ArgumentError> {
        let mut sorted = Sorted::default();
        for input in &self.inputs {
            // A model that has nothing to say says null, which is a value where null is one.
            let is_said = |value: &&Value| {
                let means_null = || self.check_value(&input.key, input.goes, value).is_ok();
                let is_in_body = matches!(input.goes, Goes::Field | Goes::Body);
                input.is_required || !value.is_null() || (is_in_body && means_null())
            };
            let Some(value) = given.get(&input.key).filter(is_said) else {
                if input.is_required {
                    return Err(ArgumentError(format!("{} is needed", input.key)));
                }
                continue;
            };
            self.check_value(&input.key, input.goes, value)?;
            match input.goes {
                Goes::Path { explode } => {
                    check_part(&input.key, value)?;
                    sorted.path.insert(&input.name, in_path(value, explode));
                }
                Goes::Query { style, explode } => {
                    sorted.query.extend(in_query(&input.name, value, style, explode));
                }
                Goes::Field => drop(sorted.fields.insert(input.name.clone(), value.clone())),
                Goes::Body => sorted.body = Some(value.clone()),
            }
        }
        Ok(sorted)
    }

    fn check_names(&self, given: &Map<String, Value>) -> Result<(), ArgumentError> {
        let is_known = |name: &str| self.inputs.iter().any(|input| input.key == name);
        let Some(unknown) = given.keys().find(|name| !is_known(name)) else { return Ok(()) };
        let known: Vec<&str> = self.inputs.iter().map(|input| input.key.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let shown: String = unknown.chars().take(100).collect();
        Err(ArgumentError(format!("there is no argument {shown:?}: {} takes {known}", self.name)))
    }

    fn check_value(&self, key: &str, goes: Goes, value: &Value) -> Result<(), ArgumentError> {
        let schema = &self.input_schema["properties"][key];
        let wrong = match goes {
            Goes::Path { .. } | Goes::Query { .. } => {
                misfit_as_text(schema, &self.input_schema, value, key)
            }
            Goes::Field | Goes::Body => misfit(schema, &self.input_schema, value, key),
        };
        wrong.map_or(Ok(()), |wrong| Err(ArgumentError(wrong)))
    }

    /// Headers as they are sent, and keys for the query.
    fn prove(&self, given: &BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
        let (mut headers, mut query, mut cookies) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (name, value) in given {
            let is = |known: &String| known.eq_ignore_ascii_case(name);
            let to_query = self.moved.to_query.iter().find(|known| is(known));
            let to_cookie = self.moved.to_cookie.iter().find(|known| is(known));
            let is_wanted = |key: &String, place: Sent| {
                self.keys.iter().any(|(known, of)| known == key && *of == place)
            };
            match (to_query, to_cookie) {
                (Some(key), _) => {
                    if is_wanted(key, Sent::Query) {
                        let value = Value::String(value.clone());
                        query.extend(in_query(key, &value, Style::Form, true));
                    }
                }
                (None, Some(key)) => {
                    if is_wanted(key, Sent::Cookie) {
                        cookies.push(format!("{key}={value}"));
                    }
                }
                (None, None) => drop(headers.insert(name.clone(), value.clone())),
            }
        }
        if !cookies.is_empty() {
            headers.insert("Cookie".to_owned(), cookies.join("; "));
        }
        (headers, query)
    }
}

/// A part of a path stays one part, wherever it is decoded.
fn check_part(key: &str, value: &Value) -> Result<(), ArgumentError> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(encode::text).collect(),
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| [key.clone(), encode::text(value)]).collect()
        }
        simple => vec![encode::text(simple)],
    };
    if texts.iter().all(String::is_empty) {
        return Err(ArgumentError(format!("{key} must not be empty: it is a part of the path")));
    }
    if texts.iter().any(|text| leads_away(text)) {
        let reason = "must not hold `.` or `..` as a part, nor control characters";
        return Err(ArgumentError(format!("{key} {reason}")));
    }
    Ok(())
}

impl Body {
    fn write(&self, value: &Value) -> Vec<u8> {
        match (self.form, value) {
            (Form::Json, _) => value.to_string().into_bytes(),
            (Form::UrlEncoded, Value::Object(fields)) => {
                let pairs = fields.iter().filter(|(_, value)| !value.is_null());
                let pairs = pairs.flat_map(|(name, value)| {
                    // Lists are repeated, as in a query; what is nested has no form but JSON.
                    let style = if value.is_object() { Style::Json } else { Style::Form };
                    in_query(name, value, style, true)
                });
                pairs.collect::<Vec<_>>().join("&").into_bytes()
            }
            (Form::UrlEncoded | Form::Text, _) => encode::text(value).into_bytes(),
        }
    }
}

impl Request {
    /// The same request at the place that an answer sends it on to. None if that is another host,
    /// or if asking again could do something twice.
    pub fn redirected(&self, location: &str) -> Option<Self> {
        let from = url::Url::parse(&self.url).ok()?;
        let mut to = from.join(location).ok()?;
        to.set_fragment(None);
        let is_here = to.origin() == from.origin() && to.username().is_empty();
        let is_read = matches!(self.method, "GET" | "HEAD");
        (is_here && to.password().is_none() && is_read)
            .then(|| Self { url: to.into(), ..self.clone() })
    }
}
