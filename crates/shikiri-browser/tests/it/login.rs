//! Pages that are open for a person to log in.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use shikiri_browser::{BrowserBridge, BrowserOptions, BrowserPlan, plan_browser};
use shikiri_model::ids::TenantId;

use crate::world::{World, options};

/// Each round closes the page at another moment of a look at it.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_closing_login_page_is_never_reported_as_logged_out() {
    let Some(mut world) = World::start(&[("open", json!({ "marked": true }))]).await else {
        return;
    };
    let chrome_bin = Some(chrome_without_display(world.folder.path()));
    let with_window =
        BrowserOptions { chrome_bin, is_headless: false, ..options(world.folder.path()) };
    world.bridge = BrowserBridge::new(with_window);
    // It starts the browser, and stays.
    let _first = world.bridge.open_for_login(&TenantId::local()).await.unwrap();
    for round in 0..ROUNDS {
        let before = world.tabs();
        let pages = world.bridge.open_for_login(&TenantId::local()).await.unwrap();
        let [page] = &pages[..] else { panic!("{} pages of one provider", pages.len()) };
        while page.is_logged_in().await != Some(true) {}
        let close = async {
            for tab in world.tabs().iter().filter(|tab| !before.contains(tab)) {
                world.close_tab(tab).await;
            }
        };
        let look = async {
            while page.is_open() {
                assert_ne!(page.is_logged_in().await, Some(false), "round {round}");
            }
        };
        tokio::join!(close, look);
    }
}

/// Chrome as it is started for a person, on a machine without a display.
fn chrome_without_display(folder: &Path) -> PathBuf {
    let BrowserPlan::Start { program, .. } = plan_browser(&options(folder)).unwrap() else {
        panic!("these options start a browser");
    };
    let script = folder.join("chrome");
    let text = format!("#!/bin/sh\nexec '{}' --headless \"$@\"\n", program.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}
