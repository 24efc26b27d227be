//! Allows only the commands that this crate itself uses. They give no access to cookies, downloads,
//! other profiles or the machine's files.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::cdp::CdpCommand;
use crate::cdp::commands::{
    AttachToTarget, CloseTarget, CreateIsolatedWorld, CreateTarget, DispatchKeyEvent,
    EnableInspector, EnablePage, EvaluateScript, GetBrowserVersion, GetFrameTree, GetTargets,
    HandleDialog, InsertText, NavigatePage, SetFocusEmulation,
};

const BROWSER_METHODS: [&str; 5] = [
    GetBrowserVersion::METHOD,
    GetTargets::METHOD,
    CreateTarget::METHOD,
    CloseTarget::METHOD,
    AttachToTarget::METHOD,
];
const TAB_METHODS: [&str; 10] = [
    EnablePage::METHOD,
    EnableInspector::METHOD,
    SetFocusEmulation::METHOD,
    GetFrameTree::METHOD,
    NavigatePage::METHOD,
    CreateIsolatedWorld::METHOD,
    HandleDialog::METHOD,
    EvaluateScript::METHOD,
    InsertText::METHOD,
    DispatchKeyEvent::METHOD,
];
/// Events that clients receive.
const EVENTS: [&str; 4] = [
    "Inspector.targetCrashed",
    "Inspector.detached",
    "Page.javascriptDialogOpening",
    DETACHED_EVENT,
];
pub(super) const DETACHED_EVENT: &str = "Target.detachedFromTarget";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandRefusal {
    #[error("{0} is not allowed here")]
    Method(String),
    #[error("the parameters of {0} are not as they should be")]
    Parameters(&'static str),
    #[error("only http and https addresses can be gone to")]
    Address,
    #[error("this session is none of yours")]
    Session,
    #[error("too many commands are waiting for their answers")]
    TooMany,
}

pub(super) fn is_passed_event(method: &str) -> bool {
    EVENTS.contains(&method)
}

/// The parameters to send to Chrome for an allowed command. Parameters with an address or a target
/// are serialized again, so that Chrome reads exactly what was checked.
pub(super) fn check_command(
    method: &str,
    is_for_tab: bool,
    params: Option<&RawValue>,
) -> Result<Option<Box<RawValue>>, CommandRefusal> {
    let allowed: &[&str] = if is_for_tab { &TAB_METHODS } else { &BROWSER_METHODS };
    if !allowed.contains(&method) {
        return Err(CommandRefusal::Method(method.chars().take(100).collect()));
    }
    match method {
        NavigatePage::METHOD => navigate(params).map(Some),
        CreateTarget::METHOD => create_target(params).map(Some),
        AttachToTarget::METHOD => attach(params).map(Some),
        _ => Ok(params.map(RawValue::to_owned)),
    }
}

fn navigate(params: Option<&RawValue>) -> Result<Box<RawValue>, CommandRefusal> {
    #[derive(Deserialize)]
    struct NavigateParams {
        url: String,
    }
    let wanted: NavigateParams = parse(NavigatePage::METHOD, params)?;
    let url = Url::parse(&wanted.url).map_err(|_| CommandRefusal::Address)?;
    match url.scheme() {
        "http" | "https" => written(NavigatePage::METHOD, &json!({ "url": url.as_str() })),
        _ => Err(CommandRefusal::Address),
    }
}

fn create_target(params: Option<&RawValue>) -> Result<Box<RawValue>, CommandRefusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CreateTargetParams {
        url: String,
        new_window: Option<bool>,
        background: Option<bool>,
    }
    const EMPTY_TAB: &str = "about:blank";
    let wanted: CreateTargetParams = parse(CreateTarget::METHOD, params)?;
    if wanted.url != EMPTY_TAB {
        return Err(CommandRefusal::Address);
    }
    let (new_window, background) = (wanted.new_window, wanted.background);
    written(CreateTarget::METHOD, &CreateTarget { url: EMPTY_TAB, new_window, background })
}

fn attach(params: Option<&RawValue>) -> Result<Box<RawValue>, CommandRefusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct AttachParams {
        target_id: String,
    }
    let wanted: AttachParams = parse(AttachToTarget::METHOD, params)?;
    // Without `flatten` its messages would have no session id.
    let command = AttachToTarget { target_id: &wanted.target_id, flatten: true };
    written(AttachToTarget::METHOD, &command)
}

fn parse<'a, T: Deserialize<'a>>(
    method: &'static str,
    params: Option<&'a RawValue>,
) -> Result<T, CommandRefusal> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|_| CommandRefusal::Parameters(method))
}

fn written(
    method: &'static str,
    params: &impl serde::Serialize,
) -> Result<Box<RawValue>, CommandRefusal> {
    serde_json::value::to_raw_value(params).map_err(|_| CommandRefusal::Parameters(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, is_for_tab: bool, params: &str) -> Result<String, CommandRefusal> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let passed = check_command(method, is_for_tab, Some(&params))?;
        Ok(passed.unwrap().get().to_owned())
    }

    #[test]
    fn only_the_methods_in_use_pass() {
        for method in ["Network.getAllCookies", "Storage.getCookies", "Browser.close", "Page", ""] {
            for is_for_tab in [false, true] {
                let refused = check(method, is_for_tab, "{}").unwrap_err();
                assert_eq!(refused, CommandRefusal::Method(method.to_owned()));
            }
        }
        assert!(check("Runtime.evaluate", true, r#"{"expression":"1"}"#).is_ok());
        assert!(check("Runtime.evaluate", false, "{}").is_err(), "not of the browser itself");
        assert!(check("Target.attachToTarget", true, r#"{"targetId":"x"}"#).is_err());
    }

    #[test]
    fn navigation_to_files_and_internal_pages_is_refused() {
        let going = |url: &str| check("Page.navigate", true, &json!({ "url": url }).to_string());
        let refused = [
            "file:///etc/passwd",
            " FILE:///etc/passwd",
            "\tfi\nle:///etc/passwd",
            "view-source:file:///etc/passwd",
            "chrome://version",
            "javascript:1",
            "data:text/html,x",
            "about:blank",
            "blob:https://a.example/x",
            "/etc/passwd",
            "",
        ];
        for url in refused {
            assert_eq!(going(url), Err(CommandRefusal::Address), "{url}");
        }
        assert_eq!(going("https://a.example/c/1").unwrap(), r#"{"url":"https://a.example/c/1"}"#);
        // Only the checked fields are passed on.
        let twice = r#"{"url":"https://a.example","url":"file:///etc/passwd"}"#;
        assert!(check("Page.navigate", true, twice).is_err());
        let more = r#"{"url":"http://a.example/","referrer":"x"}"#;
        assert_eq!(check("Page.navigate", true, more).unwrap(), r#"{"url":"http://a.example/"}"#);
    }

    #[test]
    fn a_new_tab_is_empty_and_a_session_is_flat() {
        let file = r#"{"url":"file:///etc/passwd"}"#;
        assert_eq!(check("Target.createTarget", false, file), Err(CommandRefusal::Address));
        let made = check("Target.createTarget", false, r#"{"url":"about:blank","newWindow":true}"#);
        assert_eq!(made.unwrap(), r#"{"url":"about:blank","newWindow":true}"#);
        let attached = check("Target.attachToTarget", false, r#"{"targetId":"T","flatten":false}"#);
        assert_eq!(attached.unwrap(), r#"{"targetId":"T","flatten":true}"#);
    }
}
