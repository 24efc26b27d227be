//! What the fields of requests have in common: how long a text may be, what a patch leaves alone.

use crate::error::AppError;

/// A text of 1 to `longest` characters on one line.
pub(crate) fn check_text(field: &'static str, text: &str, longest: usize) -> Result<(), AppError> {
    let fits = !text.trim().is_empty()
        && text.chars().count() <= longest
        && !text.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    let reason = format!("must have 1 to {longest} characters, none of them a control character");
    Err(AppError::invalid(field, reason))
}

/// The form that names of servers and skills have: 1 to 64 letters, digits, `_` and `-`.
pub(crate) fn check_name(name: &str) -> Result<(), AppError> {
    if name.len() <= 64 && shikiri_model::ids::is_valid(name) {
        return Ok(());
    }
    Err(AppError::invalid("name", "must be 1 to 64 letters, digits, `_` or `-`"))
}

/// Absent values leave a field as it is.
pub(crate) fn set<T: Clone>(field: &mut T, value: Option<&T>) {
    if let Some(value) = value {
        field.clone_from(value);
    }
}
