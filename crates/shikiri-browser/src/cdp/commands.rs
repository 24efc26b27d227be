//! The DevTools commands in use, with the used parts of their answers.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) trait CdpCommand: Serialize {
    const METHOD: &'static str;
    type Answer: DeserializeOwned;
}

/// An answer whose content is not used.
#[derive(Debug, Deserialize)]
pub(crate) struct EmptyAnswer {}

/// Ties a type to its method and to the type of its answer.
macro_rules! command {
    ($type:ty, $method:literal, $answer:ty) => {
        impl CdpCommand for $type {
            const METHOD: &'static str = $method;
            type Answer = $answer;
        }
    };
}

#[derive(Serialize)]
pub(crate) struct GetBrowserVersion {}
command!(GetBrowserVersion, "Browser.getVersion", BrowserVersion);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BrowserVersion {
    pub(crate) user_agent: String,
}

#[derive(Serialize)]
pub(crate) struct GetTargets {}
command!(GetTargets, "Target.getTargets", TargetList);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetList {
    pub(crate) target_infos: Vec<TargetInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetInfo {
    pub(crate) target_id: String,
    pub(crate) r#type: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateTarget {
    pub(crate) url: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_window: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) background: Option<bool>,
}
command!(CreateTarget, "Target.createTarget", CreatedTarget);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreatedTarget {
    pub(crate) target_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CloseTarget<'a> {
    pub(crate) target_id: &'a str,
}
command!(CloseTarget<'_>, "Target.closeTarget", EmptyAnswer);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttachToTarget<'a> {
    pub(crate) target_id: &'a str,
    /// Sends the session's messages on this connection, with the session's id.
    pub(crate) flatten: bool,
}
command!(AttachToTarget<'_>, "Target.attachToTarget", AttachedTarget);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttachedTarget {
    pub(crate) session_id: String,
}

#[derive(Serialize)]
pub(crate) struct EnablePage {}
command!(EnablePage, "Page.enable", EmptyAnswer);

#[derive(Serialize)]
pub(crate) struct EnableInspector {}
command!(EnableInspector, "Inspector.enable", EmptyAnswer);

#[derive(Serialize)]
pub(crate) struct SetFocusEmulation {
    pub(crate) enabled: bool,
}
command!(SetFocusEmulation, "Emulation.setFocusEmulationEnabled", EmptyAnswer);

#[derive(Serialize)]
pub(crate) struct GetFrameTree {}
command!(GetFrameTree, "Page.getFrameTree", FrameTreeAnswer);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FrameTreeAnswer {
    pub(crate) frame_tree: FrameTree,
}

#[derive(Deserialize)]
pub(crate) struct FrameTree {
    pub(crate) frame: PageFrame,
}

#[derive(Deserialize)]
pub(crate) struct PageFrame {
    pub(crate) id: String,
}

#[derive(Serialize)]
pub(crate) struct NavigatePage<'a> {
    pub(crate) url: &'a str,
}
command!(NavigatePage<'_>, "Page.navigate", NavigatedPage);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NavigatedPage {
    pub(crate) error_text: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateIsolatedWorld<'a> {
    pub(crate) frame_id: &'a str,
    pub(crate) world_name: &'a str,
}
command!(CreateIsolatedWorld<'_>, "Page.createIsolatedWorld", IsolatedWorld);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IsolatedWorld {
    pub(crate) execution_context_id: i64,
}

#[derive(Serialize)]
pub(crate) struct HandleDialog {
    pub(crate) accept: bool,
}
command!(HandleDialog, "Page.handleJavaScriptDialog", EmptyAnswer);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EvaluateScript<'a> {
    pub(crate) expression: &'a str,
    pub(crate) context_id: i64,
    pub(crate) await_promise: bool,
    pub(crate) return_by_value: bool,
    pub(crate) user_gesture: bool,
}
command!(EvaluateScript<'_>, "Runtime.evaluate", ScriptAnswer);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScriptAnswer {
    #[serde(default)]
    pub(crate) result: ScriptResult,
    pub(crate) exception_details: Option<Value>,
}

#[derive(Default, Deserialize)]
pub(crate) struct ScriptResult {
    #[serde(default)]
    pub(crate) value: Value,
}

#[derive(Serialize)]
pub(crate) struct InsertText<'a> {
    pub(crate) text: &'a str,
}
command!(InsertText<'_>, "Input.insertText", EmptyAnswer);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DispatchKeyEvent {
    pub(crate) r#type: &'static str,
    pub(crate) key: &'static str,
    pub(crate) code: &'static str,
    pub(crate) windows_virtual_key_code: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<&'static str>,
}
command!(DispatchKeyEvent, "Input.dispatchKeyEvent", EmptyAnswer);
