//! Checks and helpers that the fields of many requests share.

use crate::error::AppError;

/// Refuses a text that does not have 1 to `longest` characters on one line.
pub fn check_text(field: &'static str, text: &str, longest: usize) -> Result<(), AppError> {
    let fits = !text.trim().is_empty()
        && text.chars().count() <= longest
        && !text.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    let reason = format!("must have 1 to {longest} characters, none of them a control character");
    Err(AppError::invalid(field, reason))
}

/// Refuses names of servers and skills that are not 1 to 64 letters, digits, `_` and `-`.
pub fn check_name(name: &str) -> Result<(), AppError> {
    if name.len() <= 64 && shikiri_model::ids::is_valid(name) {
        return Ok(());
    }
    Err(AppError::invalid("name", "must be 1 to 64 letters, digits, `_` or `-`"))
}

/// Sets a field if a value is given.
pub fn set<T: Clone>(field: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}
