//! Which parts of which records are secrets, and how they are sealed and opened within them.

use serde_json::Value;
use shikiri_model::models::Model;
use shikiri_model::record::{Document as _, RecordKey};
use shikiri_model::server::{McpServer, mask_template};

use super::{SealingError, SealingKey, is_sealed};
use crate::error::AppError;

/// A field of a record whose values may be secrets, and how to tell whether one is.
pub(super) struct SecretField {
    name: &'static str,
    is_secret: fn(&str) -> bool,
}

/// None for kinds of records that hold no secrets.
pub(super) fn secret_field(kind: &str) -> Option<SecretField> {
    match kind {
        Model::KIND => Some(SecretField { name: "env", is_secret: |_| true }),
        // A template that only names tokens is no secret.
        McpServer::KIND => Some(SecretField {
            name: "headers_template",
            is_secret: |value| mask_template(value) != value,
        }),
        _ => None,
    }
}

impl SecretField {
    fn values<'a>(&self, doc: &'a mut Value) -> impl Iterator<Item = (&'a String, &'a mut String)> {
        let entries = doc.get_mut(self.name).and_then(Value::as_object_mut).into_iter().flatten();
        entries.filter_map(|(name, value)| match value {
            Value::String(text) => Some((name, text)),
            _ => None,
        })
    }

    fn is_plain_secret(&self, value: &str) -> bool {
        !value.is_empty() && !is_sealed(value) && (self.is_secret)(value)
    }

    /// Says what a seal is for: one value of one record.
    fn label(&self, key: &RecordKey, name: &str) -> String {
        format!("shikiri record\n{}\n{}\n{}\n{}\n{name}", key.kind, key.tenant, key.id, self.name)
    }

    pub(super) fn has_plain_secret(&self, doc: &str) -> bool {
        let Ok(mut doc) = serde_json::from_str(doc) else { return false };
        self.values(&mut doc).any(|(_, value)| self.is_plain_secret(value))
    }

    pub(super) fn has_sealed(&self, doc: &str) -> bool {
        let Ok(mut doc) = serde_json::from_str(doc) else { return false };
        self.values(&mut doc).any(|(_, value)| is_sealed(value))
    }

    pub(super) fn seal(
        &self,
        sealing: &SealingKey,
        key: &RecordKey,
        doc: &str,
    ) -> Result<String, SealingError> {
        let mut doc: Value = serde_json::from_str(doc).map_err(|_| SealingError::NotSealed)?;
        for (name, value) in self.values(&mut doc) {
            if self.is_plain_secret(value) {
                *value = sealing.seal(&self.label(key, name), value.as_bytes())?;
            }
        }
        Ok(doc.to_string())
    }

    /// Values that this key cannot open stay sealed: a reader that only lists does not need them.
    pub(super) fn open(&self, sealing: &SealingKey, key: &RecordKey, doc: &str) -> Option<String> {
        let mut doc: Value = serde_json::from_str(doc).ok()?;
        for (name, value) in self.values(&mut doc) {
            let opened = sealing.open(&self.label(key, name), value);
            if let Some(opened) = opened.and_then(|bytes| String::from_utf8(bytes).ok()) {
                *value = opened;
            }
        }
        Some(doc.to_string())
    }
}

/// Refuses to use a value that could not be opened.
pub fn refuse_sealed<'a>(
    what: &str,
    values: impl IntoIterator<Item = &'a String>,
) -> Result<(), AppError> {
    if values.into_iter().any(|value| is_sealed(value)) {
        return Err(AppError::Broken(format!(
            "secrets of {what} are sealed with a key that is not here: start with the store's key \
             file, named by SHIKIRI_SEALING_KEY_FILE"
        )));
    }
    Ok(())
}
