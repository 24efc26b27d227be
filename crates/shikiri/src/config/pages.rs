//! The driver that asks providers.

use std::path::{Path, PathBuf};

use super::kinds::SettingKind;
use super::layers::Source;
use crate::exit::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pages {
    Browser,
    /// A stand-in that identifies itself. If a file is named, it writes each question there.
    Offline {
        sent_to: Option<PathBuf>,
    },
}

/// `browser`, `offline` or `offline:FILE`.
pub struct PageSource;

impl SettingKind for PageSource {
    type Written = String;
    type Value = Pages;

    fn form() -> String {
        "`browser`, `offline` or `offline:FILE`".to_owned()
    }

    fn check(written: String, source: &Source<'_>) -> Result<Pages, Failure> {
        match written.split_once(':').unwrap_or((&written, "")) {
            ("browser", "") => Ok(Pages::Browser),
            ("offline", "") => Ok(Pages::Offline { sent_to: None }),
            ("offline", path) => {
                Ok(Pages::Offline { sent_to: Some(source.layer.folder.join(path)) })
            }
            _ => {
                let what = format!("{written:?} is not known");
                Err(source.complaint(&what, "write browser or offline"))
            }
        }
    }

    fn show(value: &Pages) -> String {
        match value {
            Pages::Browser => "browser".to_owned(),
            Pages::Offline { sent_to: None } => "offline".to_owned(),
            Pages::Offline { sent_to: Some(path) } => format!("offline:{}", path.display()),
        }
    }

    fn request(written: &String, _: &Path) -> Option<String> {
        written.contains(':').then(|| format!("{written:?}"))
    }
}
