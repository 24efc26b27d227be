//! The limits of lanes among the settings, and what puts their questions.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use shikiri_app::lane::LaneOptions;
use shikiri_model::lane::LaneLimits;

use crate::config::Layers;
use crate::exit::Failure;

/// What puts questions to the providers' pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    #[default]
    Browser,
    /// A stand-in that says so; it writes what it was sent to a file, if one is named.
    Offline { sent_to: Option<PathBuf> },
}

/// A number as somebody wrote it. What is none counts for nothing: the bridge that lanes come from
/// had it so, and its users' settings go on working.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loose(pub String);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Whole(i64),
            Number(f64),
            Text(String),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Whole(number) => number.to_string(),
            Written::Number(number) => number.to_string(),
            Written::Text(text) => text,
        }))
    }
}

impl Layers {
    pub(crate) fn lanes(&self, root: &Path) -> Result<LaneOptions, Failure> {
        let usual = LaneOptions::default();
        let ttl = self.find(|s| s.session_ttl_minutes.clone()).map(|(ttl, _)| ttl.0);
        let max = self.find(|s| s.max_agents.clone()).map(|(max, _)| max.0);
        let project = root.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(LaneOptions {
            limits: LaneLimits::read(ttl.as_deref(), max.as_deref()),
            max_questions: self
                .count("max_questions", |s| s.max_questions)?
                .unwrap_or(usual.max_questions),
            max_queued: self
                .count("max_queued_questions", |s| s.max_queued_questions)?
                .unwrap_or(usual.max_queued),
            queue_wait: self
                .seconds("question_wait_seconds", |s| s.question_wait_seconds)?
                .unwrap_or(usual.queue_wait),
            project: project.unwrap_or_default(),
            ..usual
        })
    }

    pub(crate) fn pages(&self) -> Result<Pages, Failure> {
        let Some((text, layer)) = self.find(|s| s.pages.clone()) else {
            return Ok(Pages::default());
        };
        match text.split_once(':').unwrap_or((&text, "")) {
            ("browser", "") => Ok(Pages::Browser),
            ("offline", "") => Ok(Pages::Offline { sent_to: None }),
            ("offline", path) => Ok(Pages::Offline { sent_to: Some(layer.folder.join(path)) }),
            _ => {
                let what = format!("{}: {text:?} is not known", layer.origin.name("pages"));
                Err(Failure::usage(what, "write browser or offline"))
            }
        }
    }
}
