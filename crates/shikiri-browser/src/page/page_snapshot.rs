//! Answers of the page script.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One state of a page. The fields have the order of the script's object, because the script
/// compares both as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageSnapshot {
    pub(crate) url: String,
    /// The HTTP status of the document; 0 if it is unknown.
    pub(crate) status: u16,
    pub(crate) loaded: bool,
    pub(crate) input: bool,
    /// The input box exists and is empty.
    pub(crate) empty: bool,
    /// A send button exists.
    pub(crate) send: bool,
    /// An answer is being written.
    pub(crate) busy: bool,
    pub(crate) login: bool,
    pub(crate) gone: bool,
    /// A dialog that can be dismissed.
    pub(crate) dialog: bool,
    pub(crate) questions: usize,
    pub(crate) answers: usize,
    /// The last question in the chat is the one that was asked.
    pub(crate) mine: bool,
    /// The answer's length in UTF-16 units.
    pub(crate) length: usize,
    /// A checksum of the answer's end.
    pub(crate) mark: u32,
    /// The answer is marked as complete.
    pub(crate) done: bool,
}

impl PageSnapshot {
    /// The fields that describe the answer.
    pub(crate) fn answer(&self) -> impl PartialEq + use<> {
        (self.length, self.mark, self.busy, self.done, self.questions, self.answers)
    }
}

/// The content of the input box compared with the typed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct TypedText {
    same: bool,
    head: bool,
    there: usize,
    wanted: usize,
}

impl TypedText {
    /// Whether the box holds the text. Editors reformat lists and links, so 2 % may differ.
    pub(crate) fn is_right(self) -> bool {
        self.same || (self.head && self.there >= self.wanted - self.wanted / 50)
    }
}

/// The matches of each field's selectors.
pub(crate) type SelectorSurvey = BTreeMap<String, Vec<SelectorMatch>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectorMatch {
    pub selector: String,
    pub found: usize,
    pub visible: usize,
}
