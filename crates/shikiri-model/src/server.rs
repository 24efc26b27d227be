//! MCP servers of a tenant: the tools that its executions can use besides the engine's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ServerId, TenantId};
use crate::macros::document;
use crate::models::ActiveStatus;
use crate::record::RecordColumns;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    pub id: ServerId,
    pub tenant: TenantId,
    /// Unique in the tenant. Part of its tools' names, `mcp__NAME__TOOL`.
    pub name: String,
    #[serde(flatten)]
    pub transport: McpServerTransport,
    /// Values may hold `${name}`, which is filled in from the tokens of each request.
    #[serde(default)]
    pub headers_template: BTreeMap<String, String>,
    /// The allowed tools; None for all.
    #[serde(default)]
    pub allowed_tools: Option<Vec<String>>,
    #[serde(default)]
    pub allow_private: bool,
    #[serde(default)]
    pub status: ActiveStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpServerTransport {
    Http {
        url: String,
    },
    Sse {
        url: String,
    },
    /// A program and its arguments, split at spaces.
    Stdio {
        command: Vec<String>,
    },
    /// An HTTP API whose operations are tools.
    Openapi {
        /// The OpenAPI document, or its address.
        spec: String,
        /// The address of the API, if the document's own is not right.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
}

impl McpServerTransport {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
            Self::Stdio { .. } => "stdio",
            Self::Openapi { .. } => "openapi",
        }
    }
}

/// The address in a `spec`; None if it is the document itself.
pub fn spec_url(spec: &str) -> Option<&str> {
    let spec = spec.trim();
    let is_address = spec.starts_with("http://") || spec.starts_with("https://");
    // A document contains white space, an address does not.
    (is_address && !spec.contains(char::is_whitespace)).then_some(spec)
}

/// A template names a token that the request does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the request must give the token {0:?}")]
    Missing(String),
    #[error("the token {0:?} holds a line break or another control character")]
    Unfit(String),
}

/// Fills in each `${name}` of a template.
pub fn fill_template(
    template: &str,
    tokens: &BTreeMap<String, String>,
) -> Result<String, TemplateError> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        // An unclosed brace is text.
        let Some((name, left)) = after.split_once('}') else {
            rest = &rest[before.len()..];
            break;
        };
        let value = tokens.get(name).ok_or_else(|| TemplateError::Missing(name.to_owned()))?;
        if value.chars().any(char::is_control) {
            return Err(TemplateError::Unfit(name.to_owned()));
        }
        filled.push_str(value);
        rest = left;
    }
    filled.push_str(rest);
    Ok(filled)
}

impl McpServer {
    /// The headers with secrets masked.
    pub fn shown_headers(&self) -> BTreeMap<String, String> {
        let shown = |(name, value): (&String, &String)| (name.clone(), mask_template(value));
        self.headers_template.iter().map(shown).collect()
    }
}

/// Replaces a secret in an answer.
pub const MASK: &str = "***";

/// A header's template with secrets masked: placeholders stay, and the scheme before a credential
/// (`Bearer `). Any other literal text may be a secret.
pub fn mask_template(template: &str) -> String {
    let mut shown = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, left)) = after.split_once('}') else { break };
        shown.push_str(mask_literal(before));
        shown.push_str("${");
        shown.push_str(name);
        shown.push('}');
        rest = left;
    }
    // Without a placeholder the whole value is the credential.
    let is_literal = shown.is_empty();
    shown.push_str(if is_literal && !rest.is_empty() { MASK } else { mask_literal(rest) });
    shown
}

fn mask_literal(literal: &str) -> &str {
    let word = literal.strip_suffix(' ').unwrap_or_default();
    let is_scheme = (1..=20).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphabetic());
    if literal.is_empty() || is_scheme { literal } else { MASK }
}

document!(McpServer, "mcp_server", tenant, id, |server| RecordColumns {
    state: server.status.as_str().to_owned(),
    unique: Some(server.name.clone()),
    ..RecordColumns::default()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_template_is_filled_in_or_missed_by_name() {
        let tokens = BTreeMap::from([
            ("a".to_owned(), "鍵${b}".to_owned()),
            ("bad".to_owned(), "x\r\nHost: y".to_owned()),
        ]);
        let filled = |template| fill_template(template, &tokens);
        assert_eq!(
            filled("Bearer ${a}"),
            Ok("Bearer 鍵${b}".to_owned()),
            "values are not templates"
        );
        assert_eq!(filled("plain $a {a} ${"), Ok("plain $a {a} ${".to_owned()));
        assert_eq!(filled("${a}${a}"), Ok("鍵${b}鍵${b}".to_owned()));
        assert_eq!(filled("x ${b}"), Err(TemplateError::Missing("b".to_owned())));
        assert_eq!(filled("${}"), Err(TemplateError::Missing(String::new())));
        assert_eq!(filled("${bad}"), Err(TemplateError::Unfit("bad".to_owned())));
    }

    #[test]
    fn only_placeholders_and_the_words_before_them_are_shown() {
        for (template, shown) in [
            ("Bearer ${github}", "Bearer ${github}"),
            ("${a}${b}", "${a}${b}"),
            ("", ""),
            ("secret", "***"),
            ("Bearer secret", "***"),
            ("Bearer ", "***"),
            ("Basic abc${b}", "***${b}"),
            ("${a}:secret", "${a}***"),
            ("Token ${a} tail", "Token ${a}***"),
            ("sk-${unclosed", "***"),
            ("${a}${unclosed", "${a}***"),
        ] {
            assert_eq!(mask_template(template), shown, "{template}");
            assert_eq!(mask_template(shown), shown, "a mask shows nothing new");
        }
    }
}
