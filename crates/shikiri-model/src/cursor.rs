//! Checks whether a reader's cursor is valid for a stream.

use crate::event::Seq;

/// The events that a stream holds, `first_kept..=head`, and whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamExtent {
    pub first_kept: Seq,
    pub head: Seq,
    pub closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error("event {after} never existed: the newest is {head}")]
    Ahead { after: Seq, head: Seq },
    #[error("events up to {kept_after} are no longer kept: start again from there")]
    Expired { kept_after: Seq },
}

impl StreamExtent {
    /// Accepts a cursor if every event after it is still stored.
    pub fn check(self, after: Seq) -> Result<(), CursorError> {
        if after > self.head {
            return Err(CursorError::Ahead { after, head: self.head });
        }
        if after + 1 < self.first_kept {
            return Err(CursorError::Expired { kept_after: self.first_kept - 1 });
        }
        Ok(())
    }

    /// Whether nothing follows `after`, now or later.
    pub fn is_exhausted_at(self, after: Seq) -> bool {
        self.closed && after >= self.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_while_its_suffix_is_whole() {
        let extent = StreamExtent { first_kept: 4, head: 9, closed: false };
        assert_eq!(extent.check(3), Ok(()));
        assert_eq!(extent.check(9), Ok(()));
        assert_eq!(extent.check(2), Err(CursorError::Expired { kept_after: 3 }));
        assert_eq!(extent.check(10), Err(CursorError::Ahead { after: 10, head: 9 }));
        assert!(!extent.is_exhausted_at(9));
        assert!(StreamExtent { closed: true, ..extent }.is_exhausted_at(9));
    }
}
