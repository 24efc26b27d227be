//! What our script tells of a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Fields in the order of the script's object: the script compares the two as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) url: String,
    /// Of the document itself, as HTTP has it; 0 if that is not known.
    pub(crate) status: u16,
    pub(crate) loaded: bool,
    pub(crate) input: bool,
    /// The input box is there and holds nothing.
    pub(crate) empty: bool,
    /// There is a button to send with.
    pub(crate) send: bool,
    /// An answer is being written.
    pub(crate) busy: bool,
    pub(crate) login: bool,
    pub(crate) gone: bool,
    /// Something that can be dismissed.
    pub(crate) dialog: bool,
    pub(crate) questions: usize,
    pub(crate) answers: usize,
    /// The last question is ours.
    pub(crate) mine: bool,
    /// Of what answers it, in UTF-16 units.
    pub(crate) length: usize,
    /// By which its end is known again.
    pub(crate) mark: u32,
    /// The answer is marked as complete.
    pub(crate) done: bool,
}

impl Look {
    /// Of all that may change, what is about the answer.
    pub(crate) fn answer(&self) -> impl PartialEq + use<> {
        (self.length, self.mark, self.busy, self.done, self.questions, self.answers)
    }
}

/// What the input box holds, compared with what was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Typed {
    same: bool,
    head: bool,
    there: usize,
    wanted: usize,
}

impl Typed {
    /// Editors make lists and links of some texts, so that not all of it has to be the same.
    pub(crate) fn is_right(self) -> bool {
        self.same || (self.head && self.there >= self.wanted - self.wanted / 50)
    }
}

/// How often each selector of each field matches.
pub(crate) type Survey = BTreeMap<String, Vec<Match>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    pub selector: String,
    pub found: usize,
    pub visible: usize,
}
