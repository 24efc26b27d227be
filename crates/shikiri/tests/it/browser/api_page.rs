//! `/docs` in a real Chromium: what a reader finds there, and that nothing is asked of others.

use std::path::PathBuf;

use shikiri_browser::{BrowserOptions, BrowserPlan, plan_browser};
use shikiri_testkit::{TestApp, skip, until_blocking};

use super::watched_page::WatchedPage;
use crate::PROGRAM;

const OPERATION: &str = "POST/v1/tenants/{t}/runs/{r}/answers";

/// None, loudly, where there is no Chromium.
fn chromium() -> Option<PathBuf> {
    let chrome_bin = std::env::var_os("SHIKIRI_CHROME_BIN").map(Into::into);
    match plan_browser(&BrowserOptions { chrome_bin, ..BrowserOptions::default() }) {
        Ok(BrowserPlan::Start { program, .. }) => Some(program),
        Ok(BrowserPlan::Attach { .. }) => unreachable!("no address was given"),
        Err(error) => {
            skip("a test with Chromium", &error.to_string());
            None
        }
    }
}

fn wait_for(page: &mut WatchedPage, what: &str, condition: &str) {
    until_blocking(what, || page.evaluate(condition) == true);
}

/// JavaScript that is true once the first such element was clicked.
fn click(selector: &str, text: &str) -> String {
    format!(
        "(() => {{ const found = [...document.querySelectorAll({selector:?})]\
         .find(element => element.innerText.trim() === {text:?});\
         found?.click(); return !!found; }})()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_page_has_groups_search_and_samples_and_asks_only_its_server() {
    let Some(chromium) = chromium() else { return };
    let app = TestApp::new(PROGRAM).start().await;
    let mut page = WatchedPage::open(&chromium, app.client().base());
    tokio::task::block_in_place(|| {
        let has = |text: &str| format!("document.body?.innerText.includes({text:?}) ?? false");
        for group in ["Agents", "Conversations", "Teams", "Claude Code", "Administration"] {
            wait_for(&mut page, group, &has(group));
        }
        assert_eq!(page.evaluate("location.pathname"), "/docs", "`/` leads there");
        // The errors, and where MCP is.
        for text in ["CONVERSATION_LOCKED", "The conversation is busy", "/mcp"] {
            wait_for(&mut page, text, &has(text));
        }

        let search = "(() => { const open = [...document.querySelectorAll('button')]\
                      .find(button => button.innerText.includes('Search')); open?.click(); return !!open; })()";
        wait_for(&mut page, "a way to search", search);
        wait_for(&mut page, "an input", "document.activeElement?.tagName === 'INPUT'");
        page.type_text("answers an open question");
        let found = "(() => { const found = document.querySelector('[role=dialog] [role=option]');\
                     if (!found?.innerText.includes('Answers an open question of a run')) return false;\
                     found.click(); return true; })()";
        wait_for(&mut page, "the operation is found", found);

        let section = format!(
            "[...document.querySelectorAll('section')].find(e => e.id.endsWith({OPERATION:?}))"
        );
        let shown = |words: &str| format!("({section})?.innerText.includes({words:?}) ?? false");
        wait_for(
            &mut page,
            "its sample",
            &shown("curl http://127.0.0.1:7420/v1/tenants/local/runs/RUN_ID/answers"),
        );
        let languages = format!(
            "(() => {{ const button = [...({section}).querySelectorAll('button')]\
             .find(button => button.innerText.trim() === 'curl'); button?.click(); return !!button; }})()"
        );
        wait_for(&mut page, "the languages", &languages);
        wait_for(
            &mut page,
            "TypeScript is one",
            "[...document.querySelectorAll('[role=option]')]\
             .some(option => option.innerText.trim() === 'TypeScript')",
        );
        wait_for(&mut page, "Python is one", &click("[role=option]", "Python"));
        wait_for(&mut page, "a sample in Python", &shown("urllib.request.Request("));
    });

    let server = format!("{}/", app.client().base());
    let others: Vec<_> = page
        .requested()
        .iter()
        .filter(|url| !url.starts_with(&server) && !url.starts_with("data:"))
        .collect();
    assert!(others.is_empty(), "the page asks others: {others:?}");
    assert!(
        page.requested().iter().any(|url| url.ends_with("/openapi.json")),
        "{:?}",
        page.requested()
    );
    assert!(page.complaints().is_empty(), "{:#?}", page.complaints());
}

/// What the test above relies on.
#[test]
fn a_page_that_asks_others_or_complains_is_noticed() {
    let Some(chromium) = chromium() else { return };
    // An address that no machine has.
    let other = "http://192.0.2.1/picture.png";
    let html = format!("<img src='{other}'><script>console.error('a complaint')</script>");
    let mut page = WatchedPage::open(&chromium, &format!("data:text/html,{html}"));
    until_blocking("both are recorded", || {
        page.evaluate("document.readyState");
        page.requested().iter().any(|url| url == other) && !page.complaints().is_empty()
    });
}
