//! One operation as one tool: everything that it takes in one schema, and where each part of that
//! goes in the request.
//!
//! Path parameters, query parameters and the fields of a body stand side by side. Where two have the
//! same name, a path parameter keeps it, and the other is called `query_NAME` or `body_NAME`. A body
//! that is no object with known fields (a list, a text, a choice) is the one argument `body`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::api_request::PathTemplate;
use crate::base_url::{self, ApiLocation, BaseUrl};
use crate::body_fields;
use crate::error::ApiDocumentError;
use crate::parameter_encoding::QueryStyle;
use crate::schema_converter::{RefResolver, SchemaConverter, short};
use crate::security_schemes::{self, KeyLocation, NonHeaderKeys, SecurityScheme};
use crate::tool_names::{self, UniqueNames, argument_name};

const MAX_DESCRIPTION: usize = 1_500;

#[derive(Clone, Debug)]
pub struct ApiOperation {
    /// Unique in its document: 1 to 64 letters, digits, `_` and `-`.
    pub name: String,
    pub description: String,
    /// In capitals.
    pub method: &'static str,
    /// As the document has it.
    pub path: String,
    pub input_schema: Value,
    pub(crate) template: PathTemplate,
    pub(crate) inputs: Vec<OperationInput>,
    pub(crate) body: Option<OperationBody>,
    pub(crate) base: BaseUrl,
    /// Names of the credentials that a call may need.
    pub(crate) keys: Vec<(String, KeyLocation)>,
    pub(crate) moved: NonHeaderKeys,
}

/// An argument and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct OperationInput {
    /// In the tool's schema.
    pub(crate) key: String,
    /// In the request.
    pub(crate) name: String,
    pub(crate) goes: InputLocation,
    pub(crate) is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputLocation {
    Path {
        explode: bool,
    },
    Query {
        style: QueryStyle,
        explode: bool,
    },
    /// A field of the body.
    Field,
    /// The whole body.
    Body,
}

#[derive(Clone, Debug)]
pub(crate) struct OperationBody {
    pub(crate) content_type: String,
    pub(crate) form: BodyEncoding,
    pub(crate) is_required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Json,
    UrlEncoded,
    Text,
}

/// Why there is no tool for an operation.
pub(crate) enum OperationError {
    /// The whole document is wrong.
    Wrong(ApiDocumentError),
    /// The others can be called.
    LeftOut(String),
}

impl From<ApiDocumentError> for OperationError {
    fn from(error: ApiDocumentError) -> Self {
        Self::Wrong(error)
    }
}

/// Builds the operations of one document.
pub(crate) struct OperationBuilder<'d> {
    pub(crate) parts: RefResolver<'d>,
    pub(crate) place: ApiLocation<'d>,
    pub(crate) base: &'d BaseUrl,
    pub(crate) schemes: &'d [SecurityScheme],
    pub(crate) names: UniqueNames,
}

impl<'d> OperationBuilder<'d> {
    pub(crate) fn operation(
        &mut self,
        path: &str,
        item: &'d Value,
        method: &str,
        operation: &'d Value,
    ) -> Result<ApiOperation, OperationError> {
        let at = format!("paths/{path}/{method}");
        let template = PathTemplate::parse(path)
            .map_err(|error| OperationError::LeftOut(error.to_string()))?;
        let base = self.base_of(item, operation, &at)?;
        let moved = self.non_header_keys();
        let mut draft = InputSchemaBuilder::new(self.parts);
        draft.parameters(&[item, operation], &template, &moved, &at)?;
        let body = match operation.get("requestBody") {
            Some(body) if !matches!(method, "get" | "head") => draft.body(body, &at)?,
            _ => None,
        };
        let keys = security_schemes::operation_schemes(self.schemes, operation, self.parts.root);
        let keys = keys.into_iter().map(|scheme| (scheme.name.clone(), scheme.place)).collect();
        let id = operation.get("operationId").and_then(Value::as_str);
        let (inputs, input_schema) = draft.finish()?;
        Ok(ApiOperation {
            name: self.names.claim_unique([tool_names::tool(id, method, path)]),
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
    fn base_of(
        &self,
        item: &Value,
        operation: &Value,
        at: &str,
    ) -> Result<BaseUrl, OperationError> {
        for part in [operation, item] {
            if let Some(own) = base_url::part_base_url(part, at, self.place)? {
                if !own.is_same_origin(self.base) {
                    let why = format!("its server {} is another host", own.as_str());
                    return Err(OperationError::LeftOut(why));
                }
                return Ok(own);
            }
        }
        Ok(self.base.clone())
    }

    fn non_header_keys(&self) -> NonHeaderKeys {
        let named = |place: KeyLocation| {
            let all = self.schemes.iter().filter(move |scheme| scheme.place == place);
            all.map(|scheme| scheme.name.clone()).collect::<BTreeSet<_>>()
        };
        NonHeaderKeys { to_query: named(KeyLocation::Query), to_cookie: named(KeyLocation::Cookie) }
    }
}

/// Collects the inputs of one operation.
struct InputSchemaBuilder<'d> {
    parts: RefResolver<'d>,
    schemas: SchemaConverter<'d>,
    names: UniqueNames,
    inputs: Vec<OperationInput>,
    properties: Map<String, Value>,
}

impl<'d> InputSchemaBuilder<'d> {
    fn new(parts: RefResolver<'d>) -> Self {
        Self {
            parts,
            schemas: SchemaConverter::new(parts),
            names: UniqueNames::default(),
            inputs: Vec::new(),
            properties: Map::new(),
        }
    }

    /// Those of the path first, which keep their names.
    fn parameters(
        &mut self,
        owners: &[&'d Value],
        template: &PathTemplate,
        moved: &NonHeaderKeys,
        at: &str,
    ) -> Result<(), OperationError> {
        // An operation's own takes the place of its path's.
        let mut all: Vec<(&str, &str, &'d Value)> = Vec::new();
        for owner in owners {
            let listed = owner.get("parameters").and_then(Value::as_array).into_iter().flatten();
            for parameter in listed {
                let parameter = self.parts.resolve(parameter, &format!("{at}/parameters"))?;
                let text = |key: &str| parameter.get(key).and_then(Value::as_str);
                let (Some(name), Some(place)) = (text("name"), text("in")) else {
                    let reason = "a parameter needs `name` and `in`";
                    return Err(ApiDocumentError::wrong(format!("{at}/parameters"), reason).into());
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
    ) -> Result<(), OperationError> {
        let style = parameter.and_then(|it| it.get("style")).and_then(Value::as_str);
        if style.is_some_and(|style| style != "simple") {
            return Err(OperationError::LeftOut(format!(
                "the style of {name:?} is not understood"
            )));
        }
        let explode = parameter.and_then(|it| it.get("explode")) == Some(&Value::Bool(true));
        let schema = match parameter {
            Some(parameter) => self.parameter_schema(parameter, name, at)?.0,
            None => json!({ "type": "string" }),
        };
        self.add(name, "path", InputLocation::Path { explode }, true, schema);
        Ok(())
    }

    fn query_parameter(
        &mut self,
        name: &str,
        parameter: &'d Value,
        at: &str,
    ) -> Result<(), OperationError> {
        let (schema, is_json) = self.parameter_schema(parameter, name, at)?;
        let style = match parameter.get("style").and_then(Value::as_str).unwrap_or("form") {
            _ if is_json => QueryStyle::Json,
            "form" => QueryStyle::Form,
            "spaceDelimited" => QueryStyle::Space,
            "pipeDelimited" => QueryStyle::Pipe,
            "deepObject" => QueryStyle::DeepObject,
            _ => {
                return Err(OperationError::LeftOut(format!(
                    "the style of {name:?} is not understood"
                )));
            }
        };
        let explode = parameter.get("explode").and_then(Value::as_bool);
        let explode = explode.unwrap_or(matches!(style, QueryStyle::Form | QueryStyle::DeepObject));
        let is_required = parameter.get("required") == Some(&Value::Bool(true));
        self.add(name, "query", InputLocation::Query { style, explode }, is_required, schema);
        Ok(())
    }

    /// Its schema with what is said of it, and whether its value is JSON.
    fn parameter_schema(
        &mut self,
        parameter: &'d Value,
        name: &str,
        at: &str,
    ) -> Result<(Value, bool), ApiDocumentError> {
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

    fn body(&mut self, body: &'d Value, at: &str) -> Result<Option<OperationBody>, OperationError> {
        let at = format!("{at}/requestBody");
        let body = self.parts.resolve(body, &at)?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        let Some((content_type, form, media)) = content.and_then(best_form) else {
            return match is_required {
                true => Err(OperationError::LeftOut(
                    "its body is in a form that is not understood".to_owned(),
                )),
                false => Ok(None),
            };
        };
        let schema = media.get("schema").filter(|_| form != BodyEncoding::Text);
        let flat = schema.map(|schema| body_fields::fields(self.parts, schema, &at)).transpose()?;
        match (flat.flatten(), schema) {
            (Some(fields), _) => {
                for (name, field) in fields.properties {
                    let schema = self.schemas.convert(field, &format!("{at}/{name}"))?;
                    let is_needed = is_required && fields.required.contains(name);
                    self.add(name, "body", InputLocation::Field, is_needed, schema);
                }
            }
            (None, Some(schema)) => {
                let schema = self.schemas.convert(schema, &at)?;
                self.add("body", "body", InputLocation::Body, is_required, schema);
            }
            (None, None) => {
                let schema = if form == BodyEncoding::Text {
                    json!({ "type": "string" })
                } else {
                    json!({})
                };
                self.add("body", "body", InputLocation::Body, is_required, schema);
            }
        }
        Ok(Some(OperationBody { content_type, form, is_required }))
    }

    fn add(
        &mut self,
        name: &str,
        of: &str,
        goes: InputLocation,
        is_required: bool,
        mut schema: Value,
    ) {
        let wishes = [argument_name(name), argument_name(&format!("{of}_{name}"))];
        let key = self.names.claim_unique(wishes);
        if key != name
            && let Some(fields) = schema.as_object_mut()
        {
            let said = fields.get("description").and_then(Value::as_str).unwrap_or_default();
            let what = match goes {
                InputLocation::Path { .. } => "path parameter",
                InputLocation::Query { .. } => "query parameter",
                InputLocation::Field | InputLocation::Body => "body's field",
            };
            let text = format!("The {what} `{name}`. {said}");
            fields.insert("description".to_owned(), json!(text.trim_end()));
        }
        self.properties.insert(key.clone(), schema);
        self.inputs.push(OperationInput { key, name: name.to_owned(), goes, is_required });
    }

    fn finish(self) -> Result<(Vec<OperationInput>, Value), ApiDocumentError> {
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
type MediaTypeTest = fn(&str) -> bool;

/// The form in which a body is best said, of those that a document offers.
fn best_form(content: &Map<String, Value>) -> Option<(String, BodyEncoding, &Value)> {
    let plain = |kind: &str| kind.split(';').next().unwrap_or(kind).trim().to_ascii_lowercase();
    let forms: [(MediaTypeTest, BodyEncoding); 4] = [
        (|kind| kind == "application/json", BodyEncoding::Json),
        (
            |kind| kind.ends_with("+json") || kind == "*/*" || kind == "application/*",
            BodyEncoding::Json,
        ),
        (|kind| kind == "application/x-www-form-urlencoded", BodyEncoding::UrlEncoded),
        (
            |kind| {
                kind.starts_with("text/")
                    || matches!(kind, "application/octet-stream" | "application/xml")
            },
            BodyEncoding::Text,
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

impl ApiOperation {
    /// Whether the operation only reads, so that it may be repeated.
    pub fn is_read(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }
}
