//! The requests of a project's files: their guarded entries and the hash of their content. Pure.

use serde_json::Value;
use shikiri_hook::trust_file::content_hash;

use crate::text::short;

/// The longest form of a shown entry.
const MAX_SHOWN: usize = 400;

/// A project file that can contain requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectFile {
    /// `shikiri.toml`
    Settings,
    /// `.mcp.json`
    McpServers,
    /// `.shikiri/providers.toml`
    Providers,
}

impl ProjectFile {
    pub const ALL: [Self; 3] = [Self::Settings, Self::McpServers, Self::Providers];

    /// Its path in the project's folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Settings => "shikiri.toml",
            Self::McpServers => ".mcp.json",
            Self::Providers => ".shikiri/providers.toml",
        }
    }
}

/// One request of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedEntry {
    /// The key of a setting, or the name of a server or provider.
    pub name: String,
    /// The entry for a person to read: one line without control characters.
    pub text: String,
}

impl GuardedEntry {
    pub fn new(name: &str, text: String) -> Self {
        Self { name: short(name, MAX_SHOWN), text: short(&text, MAX_SHOWN) }
    }
}

/// The requests of a file with one content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRequest {
    pub file: ProjectFile,
    pub sha256: String,
    pub entries: Vec<GuardedEntry>,
}

impl FileRequest {
    pub fn new(file: ProjectFile, content: &str, entries: Vec<GuardedEntry>) -> Self {
        Self { file, sha256: content_hash(content), entries }
    }

    pub fn mcp_servers(content: &str) -> Self {
        Self::new(ProjectFile::McpServers, content, server_entries(content))
    }

    pub fn providers(content: &str) -> Self {
        Self::new(ProjectFile::Providers, content, provider_entries(content))
    }

    pub fn texts(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.text.clone()).collect()
    }

    /// The names of its entries, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.dedup();
        names
    }
}

/// A file that is not JSON names no servers; the code that uses it reports the error.
fn server_entries(content: &str) -> Vec<GuardedEntry> {
    let file: Value = serde_json::from_str(content).unwrap_or_default();
    let servers = file.get("mcpServers").and_then(Value::as_object);
    let entry = |(name, server): (&String, &Value)| {
        GuardedEntry::new(name, format!("server {name:?} {}", server_text(server)))
    };
    servers.into_iter().flatten().map(entry).collect()
}

fn server_text(server: &Value) -> String {
    let text = |key: &str| server[key].as_str().unwrap_or_default();
    let mut parts = Vec::new();
    if server.get("command").is_some() {
        let args = server["args"].as_array().into_iter().flatten();
        let words = std::iter::once(text("command")).chain(args.filter_map(Value::as_str));
        parts.push(format!("starts: {}", words.collect::<Vec<_>>().join(" ")));
    }
    if server.get("url").is_some() {
        parts.push(format!("is called at {}", text("url")));
    }
    if server.get("cwd").is_some() {
        parts.push(format!("in the folder {}", text("cwd")));
    }
    let env = server["env"].as_object().into_iter().flatten();
    // Values control a program as much as its arguments do.
    parts.extend(env.map(|(name, value)| format!("with {name}={}", plain(value))));
    let headers = server["headers"].as_object().into_iter().flatten();
    parts.extend(headers.map(|(name, value)| format!("with the header {name}: {}", masked(value))));
    let mut variables = Vec::new();
    collect_variables(server, &mut variables);
    if !variables.is_empty() {
        parts.push(format!("receives of your environment: {}", variables.join(", ")));
    }
    parts.join("; ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A literal header is usually secret; one with variables shows their names.
fn masked(value: &Value) -> String {
    let text = plain(value);
    if text.contains("${") { text } else { "(a literal value)".to_owned() }
}

/// The names of `${NAME}` and `${NAME:-otherwise}` in all texts.
fn collect_variables(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            for part in text.split("${").skip(1) {
                let Some((inner, _)) = part.split_once('}') else { continue };
                let name = inner.split(":-").next().unwrap_or(inner).to_owned();
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_variables(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| collect_variables(field, found)),
        _ => {}
    }
}

/// As for servers: a file that is not TOML describes no providers.
fn provider_entries(content: &str) -> Vec<GuardedEntry> {
    let mut entries = Vec::new();
    for (provider, value) in content.parse::<toml::Table>().unwrap_or_default() {
        let mut lines = Vec::new();
        flatten(&provider, &value, &mut lines);
        entries.extend(lines.into_iter().map(|line| GuardedEntry::new(&provider, line)));
    }
    entries
}

fn flatten(path: &str, value: &toml::Value, lines: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                flatten(&format!("{path}.{key}"), value, lines);
            }
        }
        value => lines.push(format!("{path} = {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_show_program_variables_and_receivers_without_secrets() {
        let content = r#"{"mcpServers": {
            "a": {"command": "npx", "args": ["x", "${TOKEN}"], "env": {"LD_PRELOAD": "./e.so"}},
            "b": {"url": "https://b.example/mcp", "headers":
                  {"Authorization": "Bearer ${KEY:-none}", "X-Key": "hunter2"}}
        }}"#;
        let request = FileRequest::mcp_servers(content);
        assert_eq!(request.names(), ["a", "b"]);
        assert_eq!(
            request.texts(),
            [
                "server \"a\" starts: npx x ${TOKEN}; with LD_PRELOAD=./e.so; receives of your \
                 environment: TOKEN",
                "server \"b\" is called at https://b.example/mcp; with the header Authorization: \
                 Bearer ${KEY:-none}; with the header X-Key: (a literal value); receives of your \
                 environment: KEY",
            ]
        );
        assert!(FileRequest::mcp_servers("{").entries.is_empty());
        assert!(FileRequest::mcp_servers("{}").entries.is_empty());
    }

    #[test]
    fn providers_show_every_value_that_they_change() {
        let content =
            "[chatgpt]\nnew_chat = 'https://e.example/'\n[chatgpt.selectors]\nsend = ['#x']";
        let request = FileRequest::providers(content);
        assert_eq!(request.names(), ["chatgpt"]);
        assert_eq!(
            request.texts(),
            ["chatgpt.new_chat = \"https://e.example/\"", "chatgpt.selectors.send = [\"#x\"]"]
        );
        assert!(FileRequest::providers("# nothing\n").entries.is_empty());
        assert!(FileRequest::providers("[chatgpt").entries.is_empty());
    }

    #[test]
    fn content_decides_the_hash() {
        let hash = |content| FileRequest::providers(content).sha256;
        assert_eq!(hash("a = 1"), hash("a = 1"));
        assert_ne!(hash("a = 1"), hash("a = 1 "));
        assert_eq!(hash("").len(), 64);
    }
}
