//! The tools of all servers, and the search for one by its typed name.

use serde_json::Value;
use shikiri_client::ServerTool;
use shikiri_host::ServerListing;
use shikiri_model::host::{sanitize_line, sanitize_text};

#[derive(Default)]
pub(super) struct Catalogue(Vec<(String, ServerTool)>);

impl Catalogue {
    pub(super) fn of(listed: &[ServerListing]) -> Self {
        let of_one = |one: &ServerListing| {
            let tools = one.offer.iter().flat_map(|(_, offer)| offer.tools.clone());
            tools.map(|tool| (one.server.clone(), tool)).collect::<Vec<_>>()
        };
        Self(listed.iter().flat_map(of_one).collect())
    }

    pub(super) fn tools(&self) -> &[(String, ServerTool)] {
        &self.0
    }

    /// The tool that the first words name, and the remaining words.
    pub(super) fn find<'a>(
        &self,
        words: &'a [String],
    ) -> Result<(&str, &ServerTool, &'a [String]), String> {
        let first = words.first().map(String::as_str).unwrap_or_default();
        let named = |wanted: &dyn Fn(&str, &str) -> bool| {
            self.0.iter().filter(|(server, tool)| wanted(server, &tool.name)).collect::<Vec<_>>()
        };
        if let [_, second, rest @ ..] = words
            && let [(server, tool)] = named(&|server, tool| server == first && tool == second)[..]
        {
            return Ok((server, tool, rest));
        }
        let rest = words.get(1..).unwrap_or_default();
        let whole =
            |server: &str, tool: &str| first.strip_prefix(server) == Some(&format!(".{tool}"));
        if let [(server, tool), ..] = named(&whole)[..] {
            return Ok((server, tool, rest));
        }
        match named(&|_, tool| tool == first)[..] {
            [(server, tool)] => Ok((server, tool, rest)),
            [] => Err(format!("there is no command or tool {first:?}: `help` tells what there is")),
            ref several => {
                let names = several.iter().map(|(server, tool)| format!("{server}.{}", tool.name));
                let names = names.collect::<Vec<_>>().join(" or ");
                Err(format!("several servers have {first:?}: write {names}"))
            }
        }
    }

    /// Completions: the names of tools, with their servers where names are ambiguous.
    pub(super) fn names(&self) -> Vec<String> {
        let is_unique =
            |name: &str| self.0.iter().filter(|(_, tool)| tool.name == name).count() == 1;
        let name = |(server, tool): &(String, ServerTool)| match is_unique(&tool.name) {
            true => tool.name.clone(),
            false => format!("{server}.{}", tool.name),
        };
        self.0.iter().map(name).collect()
    }
}

/// A tool's description and arguments.
pub(super) fn details(server: &str, tool: &ServerTool) -> Vec<String> {
    let title = tool.title.as_deref().map(|title| format!(" — {}", sanitize_line(title)));
    let name = sanitize_line(&tool.name);
    let mut lines = vec![format!("{server}.{name}{}", title.unwrap_or_default())];
    lines.extend(sanitize_text(&tool.description).lines().map(|line| format!("  {line}")));
    let arguments = tool.arguments();
    if arguments.is_empty() {
        lines.push("  It takes no arguments.".to_owned());
    }
    for (name, schema, required) in arguments {
        let must = if required { "required" } else { "optional" };
        let mut line = format!("  {} ({}, {must})", sanitize_line(name), kind(schema));
        if let Some(default) = schema.get("default") {
            line += &format!(" [{}]", shown(default));
        }
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            line += &format!(": {}", sanitize_line(text));
        }
        lines.push(line);
        if let Some(options) = schema.get("enum").and_then(Value::as_array) {
            let options = options.iter().map(shown).collect::<Vec<_>>();
            lines.push(format!("    one of {}", options.join(", ")));
        }
    }
    lines
}

/// A value as JSON. Text is cleaned before it is quoted, so that no control character remains.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => Value::String(sanitize_line(text)).to_string(),
        other => sanitize_line(&other.to_string()),
    }
}

fn kind(schema: &Value) -> String {
    match schema.get("type") {
        Some(Value::String(kind)) => sanitize_line(kind),
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str).map(sanitize_line);
            kinds.collect::<Vec<_>>().join(" or ")
        }
        _ => "anything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> ServerTool {
        ServerTool {
            name: name.to_owned(),
            title: None,
            description: "does\u{1b}[2J it".to_owned(),
            input_schema: json!({
                "properties": {
                    "city": { "type": "string", "default": "Pa\u{1b}[2Jris", "description": "where\u{7} to" },
                    "class": { "type": ["string", "null"], "enum": ["eco", "biz"] },
                },
                "required": ["class"],
            }),
            annotations: Value::Null,
            fingerprint: String::new(),
            is_repeatable: false,
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_tool_is_found_by_its_name_or_with_its_server() {
        let pairs = [("a", "go"), ("b", "go"), ("b", "stay"), ("c.d", "x.y")];
        let known = Catalogue(pairs.map(|(s, t)| (s.to_owned(), tool(t))).to_vec());
        let find = |line: &str| {
            let words = words(line);
            let found = known.find(&words);
            found.map(|(server, tool, rest)| format!("{server}|{}|{}", tool.name, rest.join(" ")))
        };
        assert_eq!(find("stay n=1"), Ok("b|stay|n=1".to_owned()));
        assert_eq!(find("a.go n=1"), Ok("a|go|n=1".to_owned()));
        assert_eq!(find("b go n=1"), Ok("b|go|n=1".to_owned()));
        assert_eq!(find("c.d.x.y"), Ok("c.d|x.y|".to_owned()));
        assert_eq!(find("x.y"), Ok("c.d|x.y|".to_owned()));
        let several = "several servers have \"go\": write a.go or b.go";
        assert_eq!(find("go"), Err(several.to_owned()));
        assert!(find("gone").is_err());
        assert_eq!(known.names(), ["a.go", "b.go", "stay", "x.y"]);
    }

    #[test]
    fn details_tell_types_defaults_and_options() {
        assert_eq!(
            details("a", &tool("go")),
            [
                "a.go",
                "  does it",
                "  city (string, optional) [\"Paris\"]: where to",
                "  class (string or null, required)",
                "    one of \"eco\", \"biz\"",
            ]
        );
    }
}
