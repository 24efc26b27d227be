//! One operation as one tool: everything that it takes in one schema, and where each part of that
//! goes in the request.
//!
//! Path parameters, query parameters and the fields of a body stand side by side. Where two have the
//! same name, a path parameter keeps it, and the other is called `query_NAME` or `body_NAME`. A body
//! that is no object with known fields (a list, a text, a choice) is the one argument `body`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::base::{self, Base, Place};
use crate::encode::Style;
use crate::error::SpecError;
use crate::flat;
use crate::names::{self, Names, fit_key};
use crate::request::Template;
use crate::schema::{Parts, Schemas, short};
use crate::security::{self, Moved, Scheme, Sent};

const MAX_DESCRIPTION: usize = 1_500;

#[derive(Clone, Debug)]
pub struct Operation {
    /// Unique in its document: 1 to 64 letters, digits, `_` and `-`.
    pub name: String,
    pub description: String,
    /// In capitals.
    pub method: &'static str,
    /// As the document has it.
    pub path: String,
    pub input_schema: Value,
    pub(crate) template: Template,
    pub(crate) inputs: Vec<Input>,
    pub(crate) body: Option<Body>,
    pub(crate) base: Base,
    /// Names under which a call may prove who makes it.
    pub(crate) keys: Vec<(String, Sent)>,
    pub(crate) moved: Moved,
}

/// An argument and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// In the tool's schema.
    pub(crate) key: String,
    /// In the request.
    pub(crate) name: String,
    pub(crate) goes: Goes,
    pub(crate) is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goes {
    Path {
        explode: bool,
    },
    Query {
        style: Style,
        explode: bool,
    },
    /// A field of the body.
    Field,
    /// The whole body.
    Body,
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) content_type: String,
    pub(crate) form: Form,
    pub(crate) is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    UrlEncoded,
    Text,
}

/// Why there is no tool for an operation.
pub(crate) enum Fault {
    /// The whole document is wrong.
    Wrong(SpecError),
    /// The others can be called.
    LeftOut(String),
}

impl From<SpecError> for Fault {
    fn from(error: SpecError) -> Self {
        Self::Wrong(error)
    }
}

/// What the operations of a document have in common.
pub(crate) struct Making<'d> {
    pub(crate) parts: Parts<'d>,
    pub(crate) place: Place<'d>,
    pub(crate) base: &'d Base,
    pub(crate) schemes: &'d [Scheme],
    pub(crate) names: Names,
}

impl<'d> Making<'d> {
    pub(crate) fn operation(
        &mut self,
        path: &str,
        item: &'d Value,
        method: &str,
        operation: &'d Value,
    ) -> Result<Operation, Fault> {
        let at = format!("paths/{path}/{method}");
        let template = Template::parse(path).map_err(Fault::LeftOut)?;
        let base = self.base_of(item, operation, &at)?;
        let moved = self.moved();
        let mut draft = Draft::new(self.parts);
        draft.parameters(&[item, operation], &template, &moved, &at)?;
        let body = match operation.get("requestBody") {
            Some(body) if !matches!(method, "get" | "head") => draft.body(body, &at)?,
            _ => None,
        };
        let keys = security::of_operation(self.schemes, operation, self.parts.root);
        let keys = keys.into_iter().map(|scheme| (scheme.name.clone(), scheme.place)).collect();
        let id = operation.get("operationId").and_then(Value::as_str);
        let (inputs, input_schema) = draft.finish()?;
        Ok(Operation {
            name: self.names.take([names::tool(id, method, path)]),
            description: description(operation, method, path),
            method: capitals(method),
            path: path.to_owned(),
            input_schema,
            template,
            inputs,
            body,
            base,
            keys,
            moved,
        })
    }

    /// An operation may have another address, but no other host.
    fn base_of(&self, item: &Value, operation: &Value, at: &str) -> Result<Base, Fault> {
        for part in [operation, item] {
            if let Some(own) = base::of_part(part, at, self.place)? {
                if !own.is_same_origin(self.base) {
                    let why = format!("its server {} is another host", own.as_str());
                    return Err(Fault::LeftOut(why));
                }
                return Ok(own);
            }
        }
        Ok(self.base.clone())
    }

    fn moved(&self) -> Moved {
        let named = |place: Sent| {
            let all = self.schemes.iter().filter(move |scheme| scheme.place == place);
            all.map(|scheme| scheme.name.clone()).collect::<BTreeSet<_>>()
        };
        Moved { to_query: named(Sent::Query), to_cookie: named(Sent::Cookie) }
    }
}

/// The inputs of one operation in the making.
struct Draft<'d> {
    parts: Parts<'d>,
    schemas: Schemas<'d>,
    names: Names,
    inputs: Vec<Input>,
    properties: Map<String, Value>,
}

impl<'d> Draft<'d> {
    fn new(parts: Parts<'d>) -> Self {
        Self {
            parts,
            schemas: Schemas::new(parts),
            names: Names::default(),
            inputs: Vec::new(),
            properties: Map::new(),
        }
    }

    /// Those of the path first, which keep their names.
    fn parameters(
        &mut self,
        owners: &[&'d Value],
        template: &Template,
        moved: &Moved,
        at: &str,
    ) -> Result<(), Fault> {
        // An operation's own takes the place of its path's.
        let mut all: Vec<(&str, &str, &'d Value)> = Vec::new();
        for owner in owners {
            let listed = owner.get("parameters").and_then(Value::as_array).into_iter().flatten();
            for parameter in listed {
                let parameter = self.parts.resolve(parameter, &format!("{at}/parameters"))?;
                let text = |key: &str| parameter.get(key).and_then(Value::as_str);
                let (Some(name), Some(place)) = (text("name"), text("in")) else {
                    let reason = "a parameter needs `name` and `in`";
                    return Err(SpecError::wrong(format!("{at}/parameters"), reason).into());
                };
                all.retain(|(known, of, _)| (*known, *of) != (name, place));
                all.push((name, place, parameter));
            }
        }
        for name in template.names() {
            let known = all.iter().find(|(known, place, _)| *known == name && *place == "path");
            self.path_parameter(name, known.map(|(.., parameter)| *parameter), at)?;
        }
        for (name, place, parameter) in all {
            if place == "query" && !moved.to_query.contains(name) {
                self.query_parameter(name, parameter, at)?;
            }
        }
        Ok(())
    }

    fn path_parameter(
        &mut self,
        name: &str,
        parameter: Option<&'d Value>,
        at: &str,
    ) -> Result<(), Fault> {
        let style = parameter.and_then(|it| it.get("style")).and_then(Value::as_str);
        if style.is_some_and(|style| style != "simple") {
            return Err(Fault::LeftOut(format!("the style of {name:?} is not understood")));
        }
        let explode = parameter.and_then(|it| it.get("explode")) == Some(&Value::Bool(true));
        let schema = match parameter {
            Some(parameter) => self.parameter_schema(parameter, name, at)?.0,
            None => json!({ "type": "string" }),
        };
        self.add(name, "path", Goes::Path { explode }, true, schema);
        Ok(())
    }

    fn query_parameter(&mut self, name: &str, parameter: &'d Value, at: &str) -> Result<(), Fault> {
        let (schema, is_json) = self.parameter_schema(parameter, name, at)?;
        let style = match parameter.get("style").and_then(Value::as_str).unwrap_or("form") {
            _ if is_json => Style::Json,
            "form" => Style::Form,
            "spaceDelimited" => Style::Space,
            "pipeDelimited" => Style::Pipe,
            "deepObject" => Style::DeepObject,
            _ => return Err(Fault::LeftOut(format!("the style of {name:?} is not understood"))),
        };
        let explode = parameter.get("explode").and_then(Value::as_bool);
        let explode = explode.unwrap_or(matches!(style, Style::Form | Style::DeepObject));
        let is_required = parameter.get("required") == Some(&Value::Bool(true));
        self.add(name, "query", Goes::Query { style, explode }, is_required, schema);
        Ok(())
    }

    /// Its schema with what is said of it, and whether its value is JSON.
    fn parameter_schema(
        &mut self,
        parameter: &'d Value,
        name: &str,
        at: &str,
    ) -> Result<(Value, bool), SpecError> {
        let at = format!("{at}/parameters/{name}");
        let content = parameter.get("content").and_then(Value::as_object);
        let content = content.and_then(|content| content.values().next());
        let is_json = content.is_some();
        let raw = content.unwrap_or(parameter).get("schema");
        let mut schema = match raw {
            Some(raw) => self.schemas.convert(raw, &at)?,
            None => json!({}),
        };
        if let (Some(said), Some(fields)) =
            (parameter.get("description").and_then(Value::as_str), schema.as_object_mut())
        {
            fields.entry("description").or_insert_with(|| json!(short(said, 1_000)));
        }
        Ok((schema, is_json))
    }

    fn body(&mut self, body: &'d Value, at: &str) -> Result<Option<Body>, Fault> {
        let at = format!("{at}/requestBody");
        let body = self.parts.resolve(body, &at)?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        let Some((content_type, form, media)) = content.and_then(best_form) else {
            return match is_required {
                true => {
                    Err(Fault::LeftOut("its body is in a form that is not understood".to_owned()))
                }
                false => Ok(None),
            };
        };
        let schema = media.get("schema").filter(|_| form != Form::Text);
        let flat = schema.map(|schema| flat::fields(self.parts, schema, &at)).transpose()?;
        match (flat.flatten(), schema) {
            (Some(fields), _) => {
                for (name, field) in fields.properties {
                    let schema = self.schemas.convert(field, &format!("{at}/{name}"))?;
                    let is_needed = is_required && fields.required.contains(name);
                    self.add(name, "body", Goes::Field, is_needed, schema);
                }
            }
            (None, Some(schema)) => {
                let schema = self.schemas.convert(schema, &at)?;
                self.add("body", "body", Goes::Body, is_required, schema);
            }
            (None, None) => {
                let schema =
                    if form == Form::Text { json!({ "type": "string" }) } else { json!({}) };
                self.add("body", "body", Goes::Body, is_required, schema);
            }
        }
        Ok(Some(Body { content_type, form, is_required }))
    }

    fn add(&mut self, name: &str, of: &str, goes: Goes, is_required: bool, mut schema: Value) {
        let wishes = [fit_key(name), fit_key(&format!("{of}_{name}"))];
        let key = self.names.take(wishes);
        if key != name
            && let Some(fields) = schema.as_object_mut()
        {
            let said = fields.get("description").and_then(Value::as_str).unwrap_or_default();
            let what = match goes {
                Goes::Path { .. } => "path parameter",
                Goes::Query { .. } => "query parameter",
                Goes::Field | Goes::Body => "body's field",
            };
            let text = format!("The {what} `{name}`. {said}");
            fields.insert("description".to_owned(), json!(text.trim_end()));
        }
        self.properties.insert(key.clone(), schema);
        self.inputs.push(Input { key, name: name.to_owned(), goes, is_required });
    }

    fn finish(self) -> Result<(Vec<Input>, Value), SpecError> {
        let needed = self.inputs.iter().filter(|input| input.is_required);
        let required: Vec<&str> = needed.map(|input| input.key.as_str()).collect();
        let mut schema = json!({
            "type": "object", "properties": self.properties, "additionalProperties": false,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let definitions = self.schemas.definitions()?;
        if !definitions.is_empty() {
            schema["$defs"] = Value::Object(definitions);
        }
        Ok((self.inputs, schema))
    }
}

/// Whether a media type is of a kind.
type Fits = fn(&str) -> bool;

/// The form in which a body is best said, of those that a document offers.
fn best_form(content: &Map<String, Value>) -> Option<(String, Form, &Value)> {
    let plain = |kind: &str| kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
    let forms: [(Fits, Form); 4] = [
        (|kind| kind == "application/json", Form::Json),
        (|kind| kind.ends_with("+json") || kind == "*/*" || kind == "application/*", Form::Json),
        (|kind| kind == "application/x-www-form-urlencoded", Form::UrlEncoded),
        (
            |kind| {
                kind.starts_with("text/")
                    || matches!(kind, "application/octet-stream" | "application/xml")
            },
            Form::Text,
        ),
    ];
    forms.into_iter().find_map(|(fits, form)| {
        let (kind, media) = content.iter().find(|(kind, _)| fits(&plain(kind)))?;
        let kind = if kind.contains('*') { "application/json" } else { kind };
        let is_clean = !kind.contains(|c: char| c.is_control() || !c.is_ascii());
        is_clean.then(|| (kind.to_owned(), form, media))
    })
}

fn description(operation: &Value, method: &str, path: &str) -> String {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default().trim();
    let (summary, more) = (text("summary"), text("description"));
    let said = match (summary, more) {
        ("", "") => format!("{} {path}", method.to_uppercase()),
        (one, "") | ("", one) => one.to_owned(),
        (summary, more) if more.starts_with(summary) => more.to_owned(),
        (summary, more) => format!("{summary}\n\n{more}"),
    };
    short(&said, MAX_DESCRIPTION)
}

fn capitals(method: &str) -> &'static str {
    match method {
        "put" => "PUT",
        "post" => "POST",
        "delete" => "DELETE",
        "options" => "OPTIONS",
        "head" => "HEAD",
        "patch" => "PATCH",
        _ => "GET",
    }
}

impl Operation {
    /// It only looks: calling it once more does no harm.
    pub fn is_read(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }
}
