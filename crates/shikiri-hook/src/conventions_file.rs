//! Reads `.shikiri/conventions.toml`.

use std::io::ErrorKind;
use std::path::Path;

use shikiri_model::hook::Conventions;

use crate::files;

/// Longer than this it is not what somebody wrote by hand.
const MOST_BYTES: u64 = 1024 * 1024;

/// None at all if there is no file. An error names the line and what is wrong with it.
pub fn load(path: &Path) -> Result<Conventions, String> {
    let text = match files::read_start(path, MOST_BYTES + 1) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Conventions::default()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("{} is larger than 1 MiB", path.display()));
    }
    let text = String::from_utf8(text)
        .map_err(|_| format!("{} is not written in UTF-8", path.display()))?;
    parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}

pub fn parse(text: &str) -> Result<Conventions, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{place}{}", error.message())
    })
}
