//! Replaces known secrets in text, also in text that arrives in pieces.

/// Stands in place of a secret.
pub const REDACTED: &str = "[REDACTED]";
/// Shorter values occur in other texts by chance.
const SHORTEST: usize = 6;

/// Values that must not be written or sent. They are secrets, so the type has no `Debug`.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    /// Longest first, so that the longer of two with the same start is replaced.
    values: Vec<String>,
}

impl KnownSecrets {
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<_> =
            values.into_iter().filter(|value| value.len() >= SHORTEST).collect();
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn contains(&self, value: &str) -> bool {
        self.values.iter().any(|known| known == value)
    }

    #[must_use]
    pub fn with(mut self, more: impl IntoIterator<Item = String>) -> Self {
        self.values.extend(more);
        Self::new(self.values)
    }

    /// With each secret also as it is escaped in a JSON string.
    #[must_use]
    pub fn with_json_escapes(self) -> Self {
        let escaped: Vec<_> = self.values.iter().map(|value| json_escaped(value)).collect();
        self.with(escaped)
    }

    pub fn redact(&self, text: &str) -> String {
        if self.values.iter().any(|value| text.contains(value.as_str())) {
            let (clean, _) = self.redact_piece(text.as_bytes(), true);
            String::from_utf8_lossy(&clean).into_owned()
        } else {
            text.to_owned()
        }
    }

    /// The start of a piece without secrets, and how many of its bytes that covers. The rest may be
    /// the start of a secret and belongs before the next piece; at the end of a text nothing is left.
    /// The pieces of a text give together the same as the whole.
    pub fn redact_piece(&self, piece: &[u8], is_end: bool) -> (Vec<u8>, usize) {
        let (mut clean, mut taken) = (Vec::with_capacity(piece.len()), 0);
        while let Some(next) = piece.get(taken) {
            let rest = &piece[taken..];
            let mut near =
                self.values.iter().filter(|value| value.as_bytes().first() == Some(next));
            if !is_end && near.clone().any(|value| is_cut_start(value, rest)) {
                break;
            }
            match near.find(|value| rest.starts_with(value.as_bytes())) {
                Some(found) => {
                    clean.extend_from_slice(REDACTED.as_bytes());
                    taken += found.len();
                }
                None => {
                    clean.push(*next);
                    taken += 1;
                }
            }
        }
        (clean, taken)
    }
}

/// Whether the rest of a piece is the start of a longer secret.
fn is_cut_start(secret: &str, rest: &[u8]) -> bool {
    secret.len() > rest.len() && secret.as_bytes().starts_with(rest)
}

fn json_escaped(value: &str) -> String {
    let quoted = serde_json::Value::from(value).to_string();
    quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> KnownSecrets {
        let values = ["hunter22", "hunter22-木-long", "quo\"ted\\", "short", ""];
        KnownSecrets::new(values.map(str::to_owned)).with_json_escapes()
    }

    #[test]
    fn a_secret_is_replaced_as_it_is_and_as_json_writes_it() {
        let secrets = secrets();
        assert_eq!(secrets.redact("a hunter22-木-long, hunter22!"), "a [REDACTED], [REDACTED]!");
        assert_eq!(secrets.redact(r#"{"a":"quo\"ted\\"}"#), r#"{"a":"[REDACTED]"}"#);
        assert_eq!(secrets.redact("a short quo\"ted\\"), "a short [REDACTED]");
        assert!(!secrets.contains("short") && secrets.contains("hunter22"));
    }

    #[test]
    fn however_a_text_is_cut_its_pieces_make_the_whole() {
        let secrets = secrets();
        let text = "hunter hunter22-木-lon hunter22-木-long hunhunter22 木quo\"ted\\".as_bytes();
        let (whole, taken) = secrets.redact_piece(text, true);
        assert_eq!(taken, text.len());
        for first in 0..text.len() {
            for second in first..text.len() {
                let (mut told, mut held) = (Vec::new(), Vec::new());
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    held.extend_from_slice(piece);
                    let (clean, taken) = secrets.redact_piece(&held, false);
                    told.extend(clean);
                    held.drain(..taken);
                }
                told.extend(secrets.redact_piece(&held, true).0);
                assert_eq!(told, whole, "cut at {first} and {second}");
            }
        }
    }
}
