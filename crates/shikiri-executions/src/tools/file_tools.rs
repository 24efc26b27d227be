//! The files of a conversation's workspace, for a model: read, write, edit, list, search. All
//! access goes through `workspace`, whose handles do not lead out of the folder.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_runtime::AppError;
use tokio::io::AsyncReadExt as _;
use tokio::sync::Mutex;

use super::tool_results::{MAX_TEXT, cut};
use crate::Executions;
use crate::execution::{ToolCallResult, ToolContent, ToolSpec};
use crate::workspace::{FilePath, FileRecord};

/// Size limit for reading or editing a file.
const MAX_READ: u64 = 8 * 1024 * 1024;
/// Size limit for a file shown as an image.
const MAX_IMAGE: u64 = 3 * 1024 * 1024;
const MAX_LISTED: usize = 1_000;
const MAX_MATCHES: usize = 200;
const MAX_LINE: usize = 300;
/// Bytes that one search may read.
const MAX_SEARCHED: u64 = 128 * 1024 * 1024;
/// Size limit of a compiled pattern.
const MAX_PATTERN: usize = 1024 * 1024;

pub(super) struct WorkspaceFileTools {
    executions: Executions,
    tenant: TenantId,
    conversation: ConversationId,
    /// Two edits of one file at once would lose one of them.
    writing: Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileTool {
    Read,
    Write,
    Edit,
    List,
    Search,
}

type FileToolResult<T> = Result<T, String>;

pub(super) fn tools() -> [(FileTool, ToolSpec); 5] {
    let path = json!({ "type": "string", "description": "Relative to the workspace, with / between its parts" });
    let folder = json!({ "type": "string", "description": "Only below this folder" });
    let tool = |kind, name: &str, description: &str, properties: Value, required: &[&str]| {
        let input_schema = json!({ "type": "object", "properties": properties, "required": required,
            "additionalProperties": false });
        let (name, description) = (name.to_owned(), description.to_owned());
        let is_repeatable = kind != FileTool::Edit;
        (kind, ToolSpec { name, description, input_schema, is_repeatable })
    };
    [
        tool(
            FileTool::Read,
            "Read",
            "Reads a file of the workspace: text, or an image. Long ones are cut; `offset` and \
             `limit` choose lines.",
            json!({ "path": path, "offset": { "type": "integer", "minimum": 1, "description": "The first line, from 1" },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines" } }),
            &["path"],
        ),
        tool(
            FileTool::Write,
            "Write",
            "Writes a file of the workspace, in place of one that has its name. Folders are made.",
            json!({ "path": path, "content": { "type": "string" } }),
            &["path", "content"],
        ),
        tool(
            FileTool::Edit,
            "Edit",
            "Replaces a text in a file of the workspace. `old` must stand there exactly once, unless \
             `all` is true.",
            json!({ "path": path, "old": { "type": "string" }, "new": { "type": "string" },
                "all": { "type": "boolean" } }),
            &["path", "old", "new"],
        ),
        tool(
            FileTool::List,
            "List",
            "Lists the files of the workspace with their sizes.",
            json!({ "folder": folder }),
            &[],
        ),
        tool(
            FileTool::Search,
            "Search",
            "Searches the text files of the workspace, line by line, for a regular expression.",
            json!({ "pattern": { "type": "string" }, "folder": folder,
                "ignore_case": { "type": "boolean" } }),
            &["pattern"],
        ),
    ]
}

impl WorkspaceFileTools {
    pub(super) fn new(
        executions: Executions,
        tenant: TenantId,
        conversation: ConversationId,
    ) -> Self {
        Self { executions, tenant, conversation, writing: Mutex::new(()) }
    }

    pub(super) async fn call(&self, tool: FileTool, input: &Map<String, Value>) -> ToolCallResult {
        let done = match tool {
            FileTool::Read => self.read(input).await,
            FileTool::Write => self.write(input).await.map(ToolCallResult::text),
            FileTool::Edit => self.edit(input).await.map(ToolCallResult::text),
            FileTool::List => self.list(input).await.map(ToolCallResult::text),
            FileTool::Search => self.search(input).await.map(ToolCallResult::text),
        };
        done.unwrap_or_else(ToolCallResult::error)
    }

    async fn read(&self, input: &Map<String, Value>) -> FileToolResult<ToolCallResult> {
        let path = path(input)?;
        let (offset, limit) = (number(input, "offset")?, number(input, "limit")?);
        let (record, bytes) = self.bytes(&path).await?;
        if let Some(media_type) = image_type(&bytes) {
            if record.size > MAX_IMAGE {
                return Err(format!("{path} is an image of {} bytes: too large", record.size));
            }
            let data = STANDARD.encode(&bytes);
            let image = ToolContent::Image { media_type: media_type.to_owned(), data };
            return Ok(ToolCallResult { content: vec![image], is_error: false });
        }
        let is_whole = record.size == bytes.len() as u64;
        let text = text(&path, bytes, is_whole)?;
        let chosen: String = match (offset, limit) {
            (None, None) => text,
            _ => {
                let lines = text.split_inclusive('\n').skip(offset.unwrap_or(1).saturating_sub(1));
                lines.take(limit.unwrap_or(usize::MAX)).collect()
            }
        };
        let mut shown = cut(chosen, MAX_TEXT);
        if !is_whole {
            let _ =
                write!(shown, "\n[only the first {MAX_READ} of {} bytes are read]", record.size);
        }
        Ok(ToolCallResult::text(shown))
    }

    async fn write(&self, input: &Map<String, Value>) -> FileToolResult<String> {
        let path = path(input)?;
        let content = required_text(input, "content")?;
        let _turn = self.writing.lock().await;
        self.put(&path, content).await
    }

    async fn edit(&self, input: &Map<String, Value>) -> FileToolResult<String> {
        let path = path(input)?;
        let (old, new) = (required_text(input, "old")?, required_text(input, "new")?);
        let all = flag(input, "all")?;
        if old.is_empty() {
            return Err("old must not be empty: use Write for a new file".to_owned());
        }
        let _turn = self.writing.lock().await;
        let (record, bytes) = self.bytes(&path).await?;
        if record.size > MAX_READ {
            return Err(format!("{path} has {} bytes: too many to be edited", record.size));
        }
        let text = text(&path, bytes, true)?;
        let changed = match (text.matches(old).count(), all) {
            (0, _) => return Err(format!("{path} does not hold the text `old`")),
            (1, _) | (_, true) => text.replace(old, new),
            (count, false) => {
                return Err(format!(
                    "{path} holds the text `old` {count} times: give more of it, or set all"
                ));
            }
        };
        self.put(&path, &changed).await
    }

    async fn list(&self, input: &Map<String, Value>) -> FileToolResult<String> {
        let files = self.below(input).await?;
        if files.is_empty() {
            return Ok("There are no files.".to_owned());
        }
        let mut text = String::new();
        for file in files.iter().take(MAX_LISTED) {
            let _ = writeln!(text, "{} ({} bytes)", file.path, file.size);
        }
        if files.len() > MAX_LISTED {
            let _ = writeln!(text, "[cut: {} more]", files.len() - MAX_LISTED);
        }
        Ok(cut(text, MAX_TEXT))
    }

    async fn search(&self, input: &Map<String, Value>) -> FileToolResult<String> {
        let pattern = pattern(input)?;
        let (mut found, mut matches, mut left) = (String::new(), 0, MAX_SEARCHED);
        for file in self.below(input).await? {
            let Ok(path) = FilePath::parse(&file.path) else { continue };
            if file.size > MAX_READ || file.size > left {
                continue;
            }
            left -= file.size;
            // Skip a file that was removed meanwhile or is not text.
            let Ok((_, bytes)) = self.bytes(&path).await else { continue };
            let Ok(text) = text(&path, bytes, true) else { continue };
            for (number, line) in (1..).zip(text.lines()) {
                if !pattern.is_match(line) {
                    continue;
                }
                matches += 1;
                if matches > MAX_MATCHES {
                    found.push_str("[cut: there is more]\n");
                    return Ok(found);
                }
                let line: String = line.chars().take(MAX_LINE).collect();
                let _ = writeln!(found, "{path}:{number}: {line}");
            }
            // Do not block other tasks during a long search.
            tokio::task::yield_now().await;
        }
        if found.is_empty() { Ok("Nothing was found.".to_owned()) } else { Ok(found) }
    }

    /// The files below a folder, or all files.
    async fn below(&self, input: &Map<String, Value>) -> FileToolResult<Vec<FileRecord>> {
        let folder = optional_text(input, "folder")?.unwrap_or_default();
        let mut files =
            self.executions.list_files_of(&self.conversation).await.map_err(error_text)?;
        let folder = folder.trim_start_matches("./").trim_end_matches('/');
        if !matches!(folder, "" | ".") {
            let folder = FilePath::parse(folder).map_err(error_text)?;
            let start = format!("{folder}/");
            files.retain(|file| file.path.starts_with(&start));
        }
        Ok(files)
    }

    /// Reads a file up to the size limit.
    async fn bytes(&self, path: &FilePath) -> FileToolResult<(FileRecord, Vec<u8>)> {
        let opened =
            self.executions.read_file(&self.tenant, &self.conversation, path.clone()).await;
        let (record, file) = opened.map_err(error_text)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_READ).read_to_end(&mut bytes).await;
        read.map_err(|error| format!("{path} cannot be read: {error}"))?;
        Ok((record, bytes))
    }

    async fn put(&self, path: &FilePath, content: &str) -> FileToolResult<String> {
        let size = content.len() as u64;
        let started = self
            .executions
            .start_upload(&self.tenant, &self.conversation, path.clone(), size)
            .await;
        let mut upload = started.map_err(error_text)?;
        upload.write(content.as_bytes()).await.map_err(error_text)?;
        let placed = upload.finish().await.map_err(error_text)?;
        let done = if placed.is_new { "is new" } else { "is changed" };
        Ok(format!("{path} {done} ({size} bytes)."))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is where an error ends")]
fn error_text(error: AppError) -> String {
    error.to_string()
}

fn text(path: &FilePath, bytes: Vec<u8>, is_whole: bool) -> FileToolResult<String> {
    let size = bytes.len();
    let no_text = || format!("{path} is no text ({size} bytes)");
    if bytes.contains(&0) {
        return Err(no_text());
    }
    String::from_utf8(bytes).or_else(|error| {
        let good = error.utf8_error().valid_up_to();
        // A character cut at the end by the size limit is not an error.
        if is_whole || size - good >= 4 {
            return Err(no_text());
        }
        Ok(String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned())
    })
}

fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn pattern(input: &Map<String, Value>) -> FileToolResult<Regex> {
    let mut builder = RegexBuilder::new(required_text(input, "pattern")?);
    builder.case_insensitive(flag(input, "ignore_case")?);
    builder.size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
    builder.build().map_err(|error| format!("pattern is no regular expression: {error}"))
}

fn path(input: &Map<String, Value>) -> FileToolResult<FilePath> {
    let text = required_text(input, "path")?;
    FilePath::parse(text.strip_prefix("./").unwrap_or(text)).map_err(error_text)
}

fn required_text<'a>(input: &'a Map<String, Value>, key: &str) -> FileToolResult<&'a str> {
    optional_text(input, key)?.ok_or_else(|| format!("{key} is needed"))
}

fn optional_text<'a>(input: &'a Map<String, Value>, key: &str) -> FileToolResult<Option<&'a str>> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{key} must be a text")),
    }
}

fn number(input: &Map<String, Value>, key: &str) -> FileToolResult<Option<usize>> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|number| *number > 0);
            number.map(Some).ok_or_else(|| format!("{key} must be a whole number from 1"))
        }
    }
}

fn flag(input: &Map<String, Value>, key: &str) -> FileToolResult<bool> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("{key} must be true or false")),
    }
}

#[cfg(test)]
#[path = "file_tools_tests.rs"]
mod tests;
