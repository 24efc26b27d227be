//! One scenario, written once, for every engine.
//!
//! A scenario is a function that takes a `TestEngine`. `each_engine!` lists those of a module and
//! generates a test for each engine: `name::claude_code`, `name::anthropic` and `name::bedrock`. A
//! scenario that an engine cannot run says so, with the reason:
//!
//! ```text
//! each_engine! {
//!     text_comes_in_pieces;
//!     a_turn_ends_after_so_many_replies, only native: "limits are refused for other engines";
//! }
//! ```
//!
//! `only native: "…";` as the first line applies to all that follow.

use std::path::PathBuf;

use serde_json::{Value, json};

/// An engine, with the API of its models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestEngine {
    /// With this program.
    ClaudeCode(PathBuf),
    Anthropic,
    Bedrock,
}

impl TestEngine {
    pub fn is_native(&self) -> bool {
        !matches!(self, Self::ClaudeCode(_))
    }

    /// The engine's name in a model's record.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ClaudeCode(_) => "claude-code",
            Self::Anthropic => "anthropic",
            Self::Bedrock => "bedrock",
        }
    }

    /// Whether it tells what nested subagents do. Older versions of Claude Code keep that to themselves.
    pub fn tells_of_nested(&self) -> bool {
        const OLDER: &str = "2.1.197";
        let Self::ClaudeCode(program) = self else { return true };
        let version = std::process::Command::new(program).arg("--version").output();
        !version.is_ok_and(|version| version.stdout.starts_with(OLDER.as_bytes()))
    }

    /// The tool that starts a subagent.
    pub fn task(&self) -> &'static str {
        if self.is_native() { "Task" } else { "Agent" }
    }

    /// Input of that tool: the subagent gets `prompt`, and the caller waits for it.
    pub fn spawn(&self, prompt: &str) -> Value {
        let mut input = json!({
            "description": "調べる", "prompt": prompt, "subagent_type": "general-purpose",
        });
        if !self.is_native() {
            input["run_in_background"] = json!(false);
        }
        input
    }
}

#[macro_export]
macro_rules! each_engine {
    (only $which:ident: $why:literal; $($name:ident;)*) => {
        $(mod $name {
            $crate::engine_tests!($name $which);
        })*
    };
    ($($name:ident $(, only $which:ident: $why:literal)?;)*) => {
        $(mod $name {
            $crate::engine_tests!($name $($which)?);
        })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! engine_tests {
    ($name:ident) => {
        $crate::engine_tests!($name claude_code);
        $crate::engine_tests!($name native);
    };
    ($name:ident native) => {
        $crate::engine_tests!($name anthropic);
        $crate::engine_tests!($name bedrock);
    };
    ($name:ident claude_code) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn claude_code() {
            for program in $crate::claude_programs() {
                super::$name($crate::TestEngine::ClaudeCode(program)).await;
            }
        }
    };
    ($name:ident anthropic) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn anthropic() {
            super::$name($crate::TestEngine::Anthropic).await;
        }
    };
    ($name:ident bedrock) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn bedrock() {
            super::$name($crate::TestEngine::Bedrock).await;
        }
    };
}
