//! What a person agreed to, and whether it covers a file. Pure.

use shikiri_hook::trust_file::FileAgreement;
use shikiri_model::time::Timestamp;

use super::request::FileRequest;

/// Whether a file's guarded entries apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTrust {
    Trusted {
        agreed_at: Timestamp,
    },
    /// The person agreed to a different content.
    Changed(Vec<EntryChange>),
    Untrusted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryChange {
    Removed(String),
    Added(String),
}

impl FileTrust {
    pub fn judge(request: &FileRequest, agreement: Option<&FileAgreement>) -> Self {
        match agreement {
            None => Self::Untrusted,
            Some(agreement) if agreement.sha256 == request.sha256 => {
                Self::Trusted { agreed_at: agreement.agreed_at }
            }
            Some(agreement) => Self::Changed(changes(&agreement.entries, &request.texts())),
        }
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted { .. } => "trusted",
            Self::Changed(_) => "changed",
            Self::Untrusted => "untrusted",
        }
    }
}

/// Empty if only other parts of the file changed.
fn changes(old: &[String], new: &[String]) -> Vec<EntryChange> {
    let removed = old.iter().filter(|entry| !new.contains(entry)).cloned();
    let added = new.iter().filter(|entry| !old.contains(entry)).cloned();
    removed.map(EntryChange::Removed).chain(added.map(EntryChange::Added)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::request::{GuardedEntry, ProjectFile};
    use super::*;

    fn request(content: &str, entries: &[&str]) -> FileRequest {
        let entry = |text: &&str| GuardedEntry::new("name", (*text).to_owned());
        FileRequest::new(ProjectFile::Settings, content, entries.iter().map(entry).collect())
    }

    fn agreement(request: &FileRequest) -> FileAgreement {
        FileAgreement {
            sha256: request.sha256.clone(),
            entries: request.texts(),
            agreed_at: Timestamp::from_millis(1),
        }
    }

    #[test]
    fn only_the_agreed_content_is_trusted() {
        let first = request("1", &["a", "b"]);
        assert_eq!(FileTrust::judge(&first, None), FileTrust::Untrusted);
        let agreed = agreement(&first);
        let trusted = FileTrust::Trusted { agreed_at: agreed.agreed_at };
        assert_eq!(FileTrust::judge(&first, Some(&agreed)), trusted);

        let changed = FileTrust::judge(&request("2", &["b", "c"]), Some(&agreed));
        let expected =
            vec![EntryChange::Removed("a".to_owned()), EntryChange::Added("c".to_owned())];
        assert_eq!(changed, FileTrust::Changed(expected));
        let elsewhere = FileTrust::judge(&request("3", &["a", "b"]), Some(&agreed));
        assert_eq!(elsewhere, FileTrust::Changed(Vec::new()));
    }
}
