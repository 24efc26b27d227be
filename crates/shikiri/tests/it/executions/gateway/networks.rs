//! Addresses beyond this machine, in networks that the test makes for itself: the whole test runs in a
//! network namespace of its own, whose only route leads to a second one with a host that has a public
//! address and a private one. Nothing is sent to any other network.

use std::process::Command;

use serde_json::json;

use super::World;
use super::egress::ask_all;

const INSIDE: &str = "SHIKIRI_TEST_INSIDE_NETWORK";
const PUBLIC: &str = "93.184.215.14";
const PRIVATE: &str = "10.77.0.2";
const PORT: u16 = 8080;

/// All namespaces and processes end with the first one.
const NETWORKS: &str = r#"
ip link set lo up || exit 9
unshare --net sleep 300 & other=$!
until [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add here type veth peer name there netns $other || exit 9
ip addr add 10.77.0.1/24 dev here && ip link set here up
nsenter --net --target $other sh -c "
    ip link set lo up; ip addr add PRIVATE/24 dev there; ip link set there up
    ip addr add PUBLIC/32 dev lo" || exit 9
ip route add default via PRIVATE || exit 9
mkdir "$FOLDER/www" && echo far > "$FOLDER/www/index.html"
nsenter --net --target $other env PATH=/usr/bin:$PATH \
    python3 -m http.server PORT --directory "$FOLDER/www" > /dev/null 2>&1 &
until curl -s -o /dev/null http://PUBLIC:PORT/; do sleep 0.1; done
"$@"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn curl_reaches_public_addresses_and_private_ones_only_if_allowed() {
    if std::env::var_os(INSIDE).is_some() {
        return ask_by_every_policy().await;
    }
    let has_veth = Command::new("unshare")
        .args(["--net", "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"])
        .output();
    if !has_veth.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: curl to other networks: the tests cannot make networks");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let words = NETWORKS.replace("PUBLIC", PUBLIC).replace("PRIVATE", PRIVATE);
    let words = words.replace("PORT", &PORT.to_string());
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["timeout", "200", "sh", "-c", &words, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("FOLDER", folder.path())
        .output()
        .unwrap();
    let told = format!("{output:?}");
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

async fn ask_by_every_policy() {
    let world = World::start(&[("ANTHROPIC_API_KEY", "sk-operator")], json!({})).await;
    for (egress, public, private) in [
        ("none", "403 403", "403 403"),
        ("public", "200 200", "403 403"),
        ("open", "200 200", "200 200"),
    ] {
        let patch = json!({ "egress": egress });
        world.app.client().patch("/v1/tenants/local", &patch).await.expect(200);
        let told = world.bash(&ask_all(&[PUBLIC, PRIVATE], PORT)).await;
        assert_eq!(told, format!("{PUBLIC} {public}\n{PRIVATE} {private}\n"), "{egress}");
        // As programs ask that know nothing but the variables, and past the proxy.
        let code = format!(
            "curl -s -m 20 http://{PUBLIC}:{PORT}/; \
             curl -s -m 5 --noproxy '*' http://{PUBLIC}:{PORT}/ || echo no way"
        );
        let told = world.bash(&code).await;
        assert_eq!(told.contains("far\n"), egress != "none", "{egress}: {told}");
        assert!(told.ends_with("no way\n"), "{egress}: {told}");
    }
}
