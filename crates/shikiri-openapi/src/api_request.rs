//! Builds the HTTP request of a call. No argument can move it outside of the API's address.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::argument_check::{find_mismatch, find_mismatch_as_text};
use crate::error::ArgumentError;
use crate::operation::{ApiOperation, BodyEncoding, InputLocation, OperationBody};
use crate::parameter_encoding::{self, QueryStyle, RESERVED, in_path, in_query, is_path_traversal};
use crate::security_schemes::KeyLocation;

/// An HTTP request. It has no `Debug`, because its headers hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiRequest {
    pub method: &'static str,
    /// The whole encoded address.
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub body: Option<Vec<u8>>,
}

/// Why the path of an operation cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathTemplateError {
    #[error("its path holds a query")]
    Query,
    #[error("its path leads away")]
    Traversal,
    #[error("its path has a {{ without a }}")]
    OpenBrace,
}

/// A path with places for its parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathTemplate(Vec<PathTemplatePart>);

#[derive(Clone, Debug)]
enum PathTemplatePart {
    /// Encoded.
    Text(String),
    Parameter(String),
}

impl PathTemplate {
    pub(crate) fn parse(path: &str) -> Result<Self, PathTemplateError> {
        if path.contains(['?', '#']) {
            return Err(PathTemplateError::Query);
        }
        if path.split('/').any(is_path_traversal) {
            return Err(PathTemplateError::Traversal);
        }
        let (mut pieces, mut rest) = (Vec::new(), path);
        while let Some((text, after)) = rest.split_once('{') {
            let Some((name, left)) = after.split_once('}') else {
                return Err(PathTemplateError::OpenBrace);
            };
            pieces.push(PathTemplatePart::Text(literal(text)));
            pieces.push(PathTemplatePart::Parameter(name.to_owned()));
            rest = left;
        }
        pieces.push(PathTemplatePart::Text(literal(rest)));
        Ok(Self(pieces))
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for piece in &self.0 {
            if let PathTemplatePart::Parameter(name) = piece
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        names
    }

    fn fill(&self, values: &BTreeMap<&str, String>) -> String {
        let text = |piece: &PathTemplatePart| match piece {
            PathTemplatePart::Text(text) => text.clone(),
            PathTemplatePart::Parameter(name) => {
                values.get(name.as_str()).cloned().unwrap_or_default()
            }
        };
        self.0.iter().map(text).collect()
    }
}

/// What is no part of a URL's path as it is written.
const RESERVED_IN_PATH: &AsciiSet = &RESERVED
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/')
    .remove(b'%');

/// The document's own part of a path, as a URL has it.
fn literal(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_IN_PATH).to_string()
}

/// Arguments by where they go.
#[derive(Default)]
struct SortedArguments<'a> {
    path: BTreeMap<&'a str, String>,
    /// Pairs, encoded.
    query: Vec<String>,
    fields: Map<String, Value>,
    body: Option<Value>,
}

impl ApiOperation {
    /// The request of a call with these arguments, sent with these headers of the server record.
    pub fn build_request(
        &self,
        arguments: &Value,
        headers: &BTreeMap<String, String>,
    ) -> Result<ApiRequest, ArgumentError> {
        let empty = Map::new();
        let given = match arguments {
            Value::Object(given) => given,
            Value::Null => &empty,
            _ => return Err(ArgumentError("the arguments must be an object".to_owned())),
        };
        self.check_names(given)?;
        let SortedArguments { path, mut query, fields, body: whole } = self.sort(given)?;
        let (headers, keys) = self.apply_credentials(headers);
        query.extend(keys);
        let url = self.base.join_path(&self.template.fill(&path), &query.join("&"));
        let elsewhere = || ArgumentError("the arguments lead to another address".to_owned());
        let mut request = ApiRequest {
            method: self.method,
            url: url.ok_or_else(elsewhere)?,
            headers,
            body: None,
        };
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

    fn sort(&self, given: &Map<String, Value>) -> Result<SortedArguments<'_>, ArgumentError> {
        let mut sorted = SortedArguments::default();
        for input in &self.inputs {
            // Models pass null for an absent argument. Where the schema allows null, it is a value.
            let is_said = |value: &&Value| {
                let means_null = || self.check_value(&input.key, input.goes, value).is_ok();
                let is_in_body = matches!(input.goes, InputLocation::Field | InputLocation::Body);
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
                InputLocation::Path { explode } => {
                    check_part(&input.key, value)?;
                    sorted.path.insert(&input.name, in_path(value, explode));
                }
                InputLocation::Query { style, explode } => {
                    sorted.query.extend(in_query(&input.name, value, style, explode));
                }
                InputLocation::Field => {
                    drop(sorted.fields.insert(input.name.clone(), value.clone()))
                }
                InputLocation::Body => sorted.body = Some(value.clone()),
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

    fn check_value(
        &self,
        key: &str,
        goes: InputLocation,
        value: &Value,
    ) -> Result<(), ArgumentError> {
        let schema = &self.input_schema["properties"][key];
        let wrong = match goes {
            InputLocation::Path { .. } | InputLocation::Query { .. } => {
                find_mismatch_as_text(schema, &self.input_schema, value, key)
            }
            InputLocation::Field | InputLocation::Body => {
                find_mismatch(schema, &self.input_schema, value, key)
            }
        };
        wrong.map_or(Ok(()), |wrong| Err(ArgumentError(wrong)))
    }

    /// Headers as they are sent, and keys for the query.
    fn apply_credentials(
        &self,
        given: &BTreeMap<String, String>,
    ) -> (BTreeMap<String, String>, Vec<String>) {
        let (mut headers, mut query, mut cookies) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (name, value) in given {
            let is = |known: &String| known.eq_ignore_ascii_case(name);
            let to_query = self.moved.to_query.iter().find(|known| is(known));
            let to_cookie = self.moved.to_cookie.iter().find(|known| is(known));
            let is_wanted = |key: &String, place: KeyLocation| {
                self.keys.iter().any(|(known, of)| known == key && *of == place)
            };
            match (to_query, to_cookie) {
                (Some(key), _) => {
                    if is_wanted(key, KeyLocation::Query) {
                        let value = Value::String(value.clone());
                        query.extend(in_query(key, &value, QueryStyle::Form, true));
                    }
                }
                (None, Some(key)) => {
                    if is_wanted(key, KeyLocation::Cookie) {
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

/// Checks that a value stays one part of the path, even if it is decoded again.
fn check_part(key: &str, value: &Value) -> Result<(), ArgumentError> {
    let texts: Vec<String> = match value {
        Value::Array(items) => items.iter().map(parameter_encoding::text).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| [key.clone(), parameter_encoding::text(value)])
            .collect(),
        simple => vec![parameter_encoding::text(simple)],
    };
    if texts.iter().all(String::is_empty) {
        return Err(ArgumentError(format!("{key} must not be empty: it is a part of the path")));
    }
    if texts.iter().any(|text| is_path_traversal(text)) {
        let reason = "must not hold `.` or `..` as a part, nor control characters";
        return Err(ArgumentError(format!("{key} {reason}")));
    }
    Ok(())
}

impl OperationBody {
    fn write(&self, value: &Value) -> Vec<u8> {
        match (self.form, value) {
            (BodyEncoding::Json, _) => value.to_string().into_bytes(),
            (BodyEncoding::UrlEncoded, Value::Object(fields)) => {
                let pairs = fields.iter().filter(|(_, value)| !value.is_null());
                let pairs = pairs.flat_map(|(name, value)| {
                    // Lists are repeated, as in a query; nested objects are JSON.
                    let style = if value.is_object() { QueryStyle::Json } else { QueryStyle::Form };
                    in_query(name, value, style, true)
                });
                pairs.collect::<Vec<_>>().join("&").into_bytes()
            }
            (BodyEncoding::UrlEncoded | BodyEncoding::Text, _) => {
                parameter_encoding::text(value).into_bytes()
            }
        }
    }
}

impl ApiRequest {
    /// The request that follows a redirect; `None` for another host, or if the request may have
    /// effects.
    pub fn follow_redirect(&self, location: &str) -> Option<Self> {
        let from = url::Url::parse(&self.url).ok()?;
        let mut to = from.join(location).ok()?;
        to.set_fragment(None);
        let is_here = to.origin() == from.origin() && to.username().is_empty();
        let is_read = matches!(self.method, "GET" | "HEAD");
        (is_here && to.password().is_none() && is_read)
            .then(|| Self { url: to.into(), ..self.clone() })
    }
}
